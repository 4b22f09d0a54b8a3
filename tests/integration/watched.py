"""What a process of ours does, as the kernel tells it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHECKER = b"proxy.policy.compile"


async def soon(holds: Callable[[], Any]) -> Any:
    """Waits until something is there; returns it. Looks often: what it waits for may be brief."""
    async with asyncio.timeout(20):
        while not (found := holds()):
            await asyncio.sleep(0.001)
    return found


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, by whichever of its threads."""
    found: list[int] = []
    for told in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, told.read_text().split())
    return found


def checker_of(pid: int) -> int | None:
    """The process that checks a policy for this proxy."""
    for child in children_of(pid):
        with suppress(OSError):
            if CHECKER in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    return None


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


def imports_still(pid: int) -> bool:
    """Whether a process has not loaded its event loop yet."""
    return "uvloop" not in Path(f"/proc/{pid}/maps").read_text()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process of ours that hangs; it is ended afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
