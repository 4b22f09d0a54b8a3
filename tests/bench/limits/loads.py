"""How calls come: as fast as they are answered, by so many at a time; or at random moments, whatever is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any, Protocol, Self, TypeVar

Asked = TypeVar("Asked")
Asks = TypeVar("Asks", contravariant=True)


class Calls(Protocol[Asks]):
    """Somebody who calls with what is asked, and returns when the call has ended."""

    async def call(self, asked: Asks, /) -> object:
        """Makes one call."""


class Loads:
    """Everybody who calls in an experiment. Leaving the context ends them all, with the calls they are at."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._stopped = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def saturate(self, caller: Calls[Asked], requests: Iterator[Asked], *, at_once: int) -> None:
        """So many callers, each of which calls again once it is answered, while there are requests."""
        for _ in range(at_once):
            self._begin(self._saturate(caller, requests))

    def arrive(self, caller: Calls[Asked], requests: Iterator[Asked], *, per_second: float, random: Random) -> None:
        """Calls that begin at random moments, on average so many a second."""
        self._begin(self._arrive(caller, requests, per_second, random))

    def stop(self) -> None:
        """Begins no more calls."""
        self._stopped = True

    async def ended(self, seconds: float) -> bool:
        """Waits until all calls have ended, and there are no more requests; returns False if that takes longer."""
        deadline = self._loop.time() + seconds
        while self._tasks and (left := deadline - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        return not self._tasks

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _saturate(self, caller: Calls[Asked], requests: Iterator[Asked]) -> None:
        for asked in requests:
            if self._stopped:
                return
            await caller.call(asked)

    async def _arrive(self, caller: Calls[Asked], requests: Iterator[Asked], per_second: float, random: Random) -> None:
        due = self._loop.time()
        for asked in requests:
            due += random.expovariate(per_second)
            await asyncio.sleep(due - self._loop.time())
            if self._stopped:
                return
            self._begin(self._call(caller, asked))

    async def _call(self, caller: Calls[Asked], asked: Asked) -> None:
        await caller.call(asked)
