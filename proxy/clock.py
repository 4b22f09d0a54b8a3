"""Time as an argument: the only place that reads the system's clocks, so that everything runs under a virtual one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

SHORTEST_SLEEP = 0.001
"""Seconds; so that the rounding of a tiny remainder cannot spin."""


class Timer(Protocol):
    """A pending call; `cancel` may be called more than once."""

    def cancel(self) -> None:
        """Forgets the call."""
        ...


class Clock(Protocol):
    """Monotonic seconds, wall-clock nanoseconds, sleeping and timed calls."""

    def now(self) -> float:
        """Returns monotonic seconds."""
        ...

    def wall_ns(self) -> int:
        """Returns nanoseconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after at least `seconds`."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` on the event loop at `when`, in the seconds of `now()`."""
        ...


class SystemClock:
    """The system's monotonic clock. (uvloop's own is cached per iteration and counts whole milliseconds.)"""

    __slots__ = ("_loop", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self.now: Callable[[], float] = time.monotonic

    def wall_ns(self) -> int:
        """Returns nanoseconds since the epoch."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Returns after at least `seconds`: uvloop's timers may be early by a part of a millisecond."""
        until = time.monotonic() + seconds
        await asyncio.sleep(max(seconds, SHORTEST_SLEEP))
        while (left := until - time.monotonic()) > 0:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(max(left, SHORTEST_SLEEP))

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Calls `callback` on the event loop at `when`."""
        return self._loop.call_later(max(when - time.monotonic(), 0.0), callback)
