"""The provider's own concurrency limit, and the first-in-first-out queue before it."""

from __future__ import annotations

import asyncio
from collections import deque


class Capacity:
    """`limit` places (None: any number) and `queue` waiting ones (None: any number); `queued` wait now.

    Times are the caller's. A place that is handed over was free when the work before it was due to end, even where its
    timer fired late: so that many short calls in a row take as long as they are said to.
    """

    __slots__ = ("_limit", "_queue", "_taken", "_waiters", "queued")

    def __init__(self, limit: int | None, queue: int | None) -> None:
        self._limit = limit
        self._queue = queue
        self._taken = 0
        self._waiters: deque[asyncio.Future[float]] = deque()
        self.queued = 0

    def __repr__(self) -> str:
        return f"Capacity(taken={self._taken}/{self._limit}, queued={self.queued})"

    @property
    def free(self) -> bool:
        """Whether a place can be had without waiting."""
        return self._limit is None or self._taken < self._limit

    @property
    def full(self) -> bool:
        """Whether the next caller would neither get a place nor a place in the queue."""
        return not self.free and self._queue is not None and self.queued >= self._queue

    async def take(self, now: float) -> float:
        """Returns since when it has a place, in the order of calls; `give` frees it. A cancelled caller has none."""
        if self.free:
            self._taken += 1
            return now
        waiter: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.queued += 1
        try:
            return max(await waiter, now)
        except asyncio.CancelledError:
            if waiter.cancelled():
                self.queued -= 1
            else:
                self.give(waiter.result())
            raise

    def give(self, since: float) -> None:
        """Frees a place: the longest waiting caller has it from now on, and had it `since` then."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(since)
                self.queued -= 1
                return
        self._taken -= 1
