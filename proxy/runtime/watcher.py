"""Something may have changed: inotify through watchfiles where it works, a poll every second in any case.

A watch that ends, fails, hears nothing or looks at what was replaced is made anew; without inotify it polls and says
so. Modification times show here that a watch is deaf; that a policy changed, they never decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The directory that is watched: `identity` is None where there is none; `changed_ns` is when its entries did."""

    directory: Path
    identity: tuple[int, int] | None
    changed_ns: int

    def same(self, other: _Place) -> bool:
        """Whether a watch on one hears of the other."""
        return self.directory == other.directory and self.identity == other.identity


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
        watching = _watch(place.directory, asked, told, events=events, revive_seconds=revive_seconds)
        return start_task(watching, name="policy watcher")

    place = _place(path)
    watcher, missed = start(), False
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_seconds):
                    await asked.wait()
            now, heard = _place(path), asked.is_set()
            unheard = now.changed_ns != place.changed_ns and not heard
            # An event may be on its way to us: only two silent polls show a deaf watch.
            if watcher.done() or not now.same(place) or (unheard and missed):
                watcher.cancel()
                place, missed = now, False
                watcher = start()
            elif heard:
                place, missed = now, False
            else:
                missed = unheard
            asked.clear()
            yield
    finally:
        watcher.cancel()


async def _watch(
    directory: Path, changed: asyncio.Event, told: Callable[[str], None], *, events: Events, revive_seconds: float
) -> None:
    """Sets `changed` at every event in the directory; starts again after any failure, of which it complains once."""
    complained = False
    while True:
        try:
            told("inotify and polling")
            async for _ in events(directory):
                complained = False
                changed.set()
        except Exception as error:  # noqa: BLE001 - whatever fails in there, the contents are compared all the same
            told("polling")
            if not complained:
                complained = True
                _log.warning("cannot watch %s (%s); its contents are compared every second", directory, error)
        await asyncio.sleep(revive_seconds)


def _place(path: Path) -> _Place:
    directory = path if os.path.isdir(path) else path.parent
    try:
        found = os.stat(directory)
    except OSError:
        return _Place(directory=directory, identity=None, changed_ns=0)
    return _Place(directory=directory, identity=(found.st_dev, found.st_ino), changed_ns=found.st_mtime_ns)
