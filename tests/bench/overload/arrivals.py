"""When calls begin: Poisson arrivals in an open loop, and how late the machine let them begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random


class Arrivals:
    """Calls `begin` with the time at which a call was due, on average `per_second` times a second, until stopped."""

    def __init__(self, begin: Callable[[float], None], *, per_second: float, random: Random) -> None:
        self._begin = begin
        self._per_second = per_second
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.late: list[float] = []
        """Seconds by which each call began after it was due."""

    def start(self) -> None:
        """Let the first call be due after a random gap."""
        self._wait_until(self._loop.time() + self._gap())

    def stop(self) -> None:
        """Begin no more calls."""
        if self._timer is not None:
            self._timer.cancel()

    def _gap(self) -> float:
        return self._random.expovariate(self._per_second)

    def _wait_until(self, due: float) -> None:
        self._timer = self._loop.call_at(due, self._arrive, due)

    def _arrive(self, due: float) -> None:
        now = self._loop.time()
        while due <= now:
            self.late.append(now - due)
            self._begin(due)
            due += self._gap()
        self._wait_until(due)
