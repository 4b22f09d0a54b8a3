"""The application's side: several callers at a time, or many at once. What each saw is a Sample."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import aiohttp

from proxy.clock import Clock
from proxy.outcome import Reason
from proxy.simulation.demo.operations import CALLS, Call, Operation

PAUSE_SECONDS = 0.05
PATIENCE = aiohttp.ClientTimeout(total=30)
NO_PLACE = frozenset({Reason.QUEUE_FULL.value, Reason.QUEUE_TIMEOUT.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request as its caller saw it; seconds from sending it to its first and last byte (0: none came).

    `tier` and `provider` say who answered (0 and "": nobody), `attempts` how many calls to providers it took,
    `reason` why the proxy itself refused it, `problem` what else went wrong.
    """

    operation: Operation
    burst: bool = False
    status: int = 0
    ok: bool = False
    tier: int = 0
    provider: str = ""
    attempts: int = 0
    reason: str = ""
    problem: str = ""
    first_byte_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def expected(self) -> bool:
        """Whether all is well: answered, or one of too many at once and refused for that."""
        return self.ok or (self.burst and self.reason in NO_PLACE)


class Callers:
    """Sends requests to the proxy at `url` and keeps what came of each."""

    def __init__(self, session: aiohttp.ClientSession, url: str, clock: Clock) -> None:
        self._session = session
        self._url = url
        self._clock = clock
        self.samples: list[Sample] = []
        self.in_flight = 0

    @contextlib.asynccontextmanager
    async def steady(self, counts: Mapping[Operation, int]) -> AsyncIterator[None]:
        """So many callers of each kind, one request after the other, until the block ends; none is cut short."""
        leaving = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for operation, count in counts.items():
                for _ in range(count):
                    group.create_task(self._keep_asking(operation, leaving))
            try:
                yield
            finally:
                leaving.set()

    async def burst(self, counts: Mapping[Operation, int]) -> None:
        """So many requests of each kind, all at once."""
        async with asyncio.TaskGroup() as group:
            for operation, count in counts.items():
                for _ in range(count):
                    group.create_task(self._ask(operation, burst=True))

    async def _keep_asking(self, operation: Operation, leaving: asyncio.Event) -> None:
        while not leaving.is_set():
            await self._ask(operation)
            await self._clock.sleep(PAUSE_SECONDS)

    async def _ask(self, operation: Operation, *, burst: bool = False) -> None:
        self.in_flight += 1
        try:
            self.samples.append(await self._sample(operation, CALLS[operation], burst=burst))
        finally:
            self.in_flight -= 1

    async def _sample(self, operation: Operation, call: Call, *, burst: bool) -> Sample:
        began = self._clock.now()
        first = 0.0
        body = bytearray()
        headers = {"content-type": "application/json"}
        try:
            async with self._session.post(
                f"{self._url}{call.path}", data=call.body, headers=headers, timeout=PATIENCE
            ) as response:
                async for piece in response.content.iter_any():
                    first = first or self._clock.now() - began
                    body += piece
        except (aiohttp.ClientError, TimeoutError) as error:
            return Sample(operation=operation, burst=burst, problem=f"{type(error).__name__}: {error}".rstrip(": "))
        ok = response.status == 200 and call.whole(bytes(body))
        told = response.headers
        return Sample(
            operation=operation,
            burst=burst,
            status=response.status,
            ok=ok,
            tier=int(told.get("x-sponson-tier", 0)),
            provider=told.get("x-sponson-provider", ""),
            attempts=int(told.get("x-sponson-attempts", 0)),
            reason=told.get("x-sponson-reason", ""),
            problem="" if ok or response.status != 200 else "the answer is not whole",
            first_byte_seconds=first,
            seconds=self._clock.now() - began,
        )
