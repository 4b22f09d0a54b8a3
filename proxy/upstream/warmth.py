"""Warmth: some connections of one address are kept open and ready, so that a request need not wait for a dial.

They are dialled beside all requests, and give way to them: with those in use they are never more than the address may
have (`connections.max`). A provider that is not there is asked again with growing pauses; no breaker hears of it.
Where a name has several addresses, dials take turns among them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import ClientError

from proxy.clock import Clock
from proxy.tasks import start_task
from proxy.upstream.faults import why
from proxy.upstream.shortage import cure_of

if TYPE_CHECKING:
    from proxy.upstream.pool import Pool

TOGETHER: Final = 8
"""So many are dialled at a time: a start must not look like an attack, nor keep the processor for handshakes."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
EARLY_SECONDS: Final = 5.0
"""A server that ends an unused connection within this wants none: to open more at once would be a loop."""

_DIAL_ERRORS: Final = (ClientError, OSError, TimeoutError, ValueError)
_log = logging.getLogger("sponson.upstream")


class Warmth:
    """Keeps `want` idle connections in a pool; `dials` and `failures` are those of its own."""

    __slots__ = (
        "_clock", "_closed", "_dialling", "_due", "_failed", "_jitter", "_left", "_pool", "_spurned",
        "begun", "dials", "failures", "most", "seconds", "want",
    )  # fmt: skip

    def __init__(self, pool: Pool, *, clock: Clock, jitter: Callable[[], float]) -> None:
        """`jitter` returns a number between 0 and 1."""
        self._pool = pool
        self._clock = clock
        self._jitter = jitter
        self.want = self.most = 0
        self.seconds = 0.0
        self.dials = self.failures = self.begun = 0
        self._dialling: set[asyncio.Task[None]] = set()
        self._due = float("-inf")
        self._failed = self._spurned = self._left = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Warmth {self.want} wanted, {len(self._dialling)} dialled>"

    def reconfigure(self, *, want: int, most: int, seconds: float) -> None:
        """Takes what the policy wants: so many of at most so many, and the longest time for a dial in seconds."""
        self.want, self.most, self.seconds = min(want, most), most, seconds

    def look(self, now: float) -> None:
        """Dials what is missing, some at a time; after a failure one, when its pause is over."""
        self._left = self._missing(now)
        self._start(now)

    def _start(self, now: float) -> None:
        """Dials as many as may be dialled at a time, and no more than were missing: what ends too soon waits."""
        if self._closed or now < self._due:
            return
        together = 1 if self._failed or self._spurned else TOGETHER
        for _ in range(min(self._missing(now), self._left, together - len(self._dialling))):
            self._left -= 1
            task = start_task(self._dial(), name=f"keep {self._pool.address} warm")
            self._dialling.add(task)
            task.add_done_callback(self._ended)

    async def give_way(self) -> None:
        """A request dials: where the address would have more connections than it may, one of ours is given up."""
        while self._dialling and self._open() >= self.most:
            task = self._dialling.pop()
            task.cancel()
            await asyncio.wait([task])

    def over(self, *, unused: bool, after: float) -> None:
        """An idle connection has ended after so many seconds; `unused`: its peer ended it before any request."""
        if unused and after < EARLY_SECONDS:
            self._spurned += self._rests()
        else:
            self._spurned = 0

    async def close(self) -> None:
        """Gives up what is being dialled, and dials no more."""
        self._closed = True
        running = list(self._dialling)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _open(self) -> int:
        """Returns how many connections the address has, those that are about to be dialled here included."""
        return self._pool.dialer.open - self.begun + len(self._dialling)

    def _missing(self, now: float) -> int:
        if not self.want or self._pool.rests <= 0:
            return 0
        return min(self.want - self._pool.ready(now) - len(self._dialling), self.most - self._open())

    async def _dial(self) -> None:
        pool = self._pool
        self.begun += 1
        self.dials += 1
        try:
            connection = await pool.dialer.dial(self.seconds, spare=True)
        except _DIAL_ERRORS as error:
            self._missed(error)
            return
        finally:
            self.begun -= 1
        now = self._clock.now()
        pool.opened(connection, now)
        pool.put(connection, now)
        self._reached()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._dialling.discard(task)
        if task.cancelled():
            return
        if task.exception() is not None:
            self._failed += self._rests()
        self._start(self._clock.now())

    def _missed(self, error: Exception) -> None:
        self.failures += 1
        if not self._failed:
            _log.warning(
                "no connection to %s can be kept ready: %s; trying again with growing pauses",
                self._pool.address,
                cure_of(error) or why(error),
            )
        self._failed += self._rests() or not self._failed

    def _reached(self) -> None:
        if self._failed:
            _log.info("connections to %s are kept ready again", self._pool.address)
        self._failed = 0

    def _rests(self) -> bool:
        """Begins the next pause; False while one is under way: several that fail together fail once."""
        now, before = self._clock.now(), self._failed + self._spurned
        if now < self._due:
            return False
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(before, 10), LONGEST_PAUSE_SECONDS)
        self._due = now + pause * (1.0 + self._jitter()) / 2.0
        return True
