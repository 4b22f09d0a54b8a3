"""A provider in this process that counts its connections, and closes those that have been idle for too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import cast

from tests.bench.traffic import MessageReader

ANSWER_BODY = b'{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"yes"}}]}'
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER_BODY)
) + ANSWER_BODY
READY_SECONDS = 0.05
"""A connection that has waited so long for its first request was opened ahead of it, and not for it."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """Connections that were opened; requests, those on a connection that had one before, and those that were the first
    on one that waited for them.
    """

    connections: int = 0
    requests: int = 0
    reused: int = 0
    ready: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            connections=self.connections + other.connections,
            requests=self.requests + other.requests,
            reused=self.reused + other.reused,
            ready=self.ready + other.ready,
        )

    def __sub__(self, other: Counts) -> Counts:
        """What was counted since."""
        return Counts(
            connections=self.connections - other.connections,
            requests=self.requests - other.requests,
            reused=self.reused - other.reused,
            ready=self.ready - other.ready,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A provider that listens, and what it has counted."""

    name: str
    port: int
    counts: Counts

    @property
    def url(self) -> str:
        """Where its interface begins."""
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def origin(name: str, *, seconds: Callable[[], float], idle_seconds: float) -> AsyncIterator[Origin]:
    """A provider whose answers take so long, and which closes connections after so much idle time."""
    counts, loop = Counts(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(counts, seconds, idle_seconds), "127.0.0.1", 0)
    try:
        yield Origin(name=name, port=server.sockets[0].getsockname()[1], counts=counts)
    finally:
        server.close()


def between(low: float, high: float, seed: str) -> Callable[[], float]:
    """Durations that are spread evenly, the same ones for the same seed."""
    random = Random(seed)
    return lambda: random.uniform(low, high)


class _Connection(asyncio.Protocol):
    def __init__(self, counts: Counts, seconds: Callable[[], float], idle_seconds: float) -> None:
        self._counts = counts
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._reader = MessageReader()
        self._fresh = True
        self._opened = self._loop.time()
        self._transport: asyncio.WriteTransport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._counts.connections += 1
        self._rest()

    def data_received(self, data: bytes) -> None:
        self._timer.cancel()
        if not self._reader.feed(data):
            return
        self._reader.forget()
        self._count()
        self._timer = self._loop.call_later(self._seconds(), self._answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()

    def _count(self) -> None:
        counts = self._counts
        counts.requests += 1
        if not self._fresh:
            counts.reused += 1
        elif self._loop.time() - self._opened >= READY_SECONDS:
            counts.ready += 1
        self._fresh = False

    def _answer(self) -> None:
        self._transport.write(_ANSWER)
        self._rest()

    def _rest(self) -> None:
        self._timer = self._loop.call_later(self._idle_seconds, self._transport.close)
