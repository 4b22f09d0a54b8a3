"""Something may have changed: inotify through watchfiles where it works, a poll every second in any case.

A watcher that dies is revived; without inotify it polls and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from watchfiles import awatch

from proxy.tasks import start_task

POLL_SECONDS = 1.0
REVIVE_SECONDS = 5.0

_log = logging.getLogger("sponson.policy")


async def changes(path: Path, asked: asyncio.Event, told: Callable[[str], None]) -> AsyncGenerator[None, None]:
    """Yields when the policy is worth a look: after an event, when asked, and every second."""
    watcher = start_task(_watch(_directory(path), asked, told), name="policy watcher")
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await asked.wait()
            asked.clear()
            yield
    finally:
        watcher.cancel()


async def _watch(directory: Path, changed: asyncio.Event, told: Callable[[str], None]) -> None:
    """Sets `changed` at every event in the directory; starts again after any failure."""
    complained = False
    while True:
        try:
            told("inotify and polling")
            async for _ in awatch(directory, watch_filter=None, recursive=False, debounce=100, step=25):
                changed.set()
        except (OSError, RuntimeError) as error:
            told("polling")
            if not complained:
                complained = True
                _log.warning("cannot watch %s (%s); its contents are compared every second", directory, error)
        await asyncio.sleep(REVIVE_SECONDS)


def _directory(path: Path) -> Path:
    return path if path.is_dir() else path.parent
