"""Something may have changed: inotify through watchfiles where it works, a poll every second in any case.

A watcher that dies is revived; without inotify it polls and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

from watchfiles import awatch

from proxy.tasks import start_task

POLL_SECONDS = 1.0
REVIVE_SECONDS = 5.0

Events = Callable[[Path], AsyncIterator[object]]
"""Yields after events in a directory; may fail in any way."""

_log = logging.getLogger("sponson.policy")


def inotify(directory: Path) -> AsyncIterator[object]:
    """Yields after changes in the directory itself; raises OSError where it cannot be watched."""
    return awatch(directory, watch_filter=None, recursive=False, debounce=100, step=25)


async def changes(
    path: Path,
    asked: asyncio.Event,
    told: Callable[[str], None],
    *,
    events: Events = inotify,
    poll_seconds: float = POLL_SECONDS,
    revive_seconds: float = REVIVE_SECONDS,
) -> AsyncGenerator[None, None]:
    """Yields when the policy is worth a look: after an event, when asked, and every `poll_seconds`."""

    def start() -> asyncio.Task[None]:
        watching = _watch(_directory(path), asked, told, events=events, revive_seconds=revive_seconds)
        return start_task(watching, name="policy watcher")

    watcher = start()
    try:
        while True:
            if watcher.done():
                watcher = start()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_seconds):
                    await asked.wait()
            asked.clear()
            yield
    finally:
        watcher.cancel()


async def _watch(
    directory: Path, changed: asyncio.Event, told: Callable[[str], None], *, events: Events, revive_seconds: float
) -> None:
    """Sets `changed` at every event in the directory; starts again after any failure."""
    complained = False
    while True:
        try:
            told("inotify and polling")
            async for _ in events(directory):
                changed.set()
        except (OSError, RuntimeError) as error:
            told("polling")
            if not complained:
                complained = True
                _log.warning("cannot watch %s (%s); its contents are compared every second", directory, error)
        await asyncio.sleep(revive_seconds)


def _directory(path: Path) -> Path:
    return path if path.is_dir() else path.parent
