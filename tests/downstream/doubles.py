"""Doubles of the downstream room: an arrival without a socket, and a data server whose pipeline is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

from proxy.clock import SystemClock
from proxy.downstream.arrival import Arrival
from proxy.downstream.listen import ListenAddress, bind
from proxy.downstream.reply import HttpReply
from proxy.downstream.rescue import rescue
from proxy.downstream.server import DataServer
from proxy.exchange import Exchange, Facts
from proxy.fields import fields_of
from proxy.outcome import Outcome
from proxy.request import Request
from proxy.trace_context import Sampler
from tests.downstream.visitor import until
from tests.fakes import answered, counting_bits, whole_of


class FakeTransport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.end = ""

    @property
    def data(self) -> bytes:
        return b"".join(self.written)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        self.written.append(b"".join(pieces))

    def is_closing(self) -> bool:
        return bool(self.end)

    def get_extra_info(self, name: str) -> None:
        """There is nothing below it."""

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = "aborted"


class FakeArrival:
    """A request that has arrived on a connection that is only a transport."""

    def __init__(self, *, wants_close: bool = False, unread: bool = False, closing: bool = False) -> None:
        self.transport: FakeTransport | None = FakeTransport()
        self.should_close = wants_close
        self.payload = SimpleNamespace(is_eof=lambda: not unread)
        self.closing = closing
        self.paused = False


def a_reply(
    arrival: FakeArrival,
    *,
    method: str = "GET",
    version: tuple[int, int] = (1, 1),
    headers: Iterable[tuple[str, str]] = (),
    closing: bool = False,
    upload: object = None,
) -> tuple[HttpReply, Facts]:
    """A reply to such a request, and the facts that it stamps."""
    fields = fields_of((name.encode(), value.encode()) for name, value in headers)
    request = Request(method, "/x", fields, version=version)
    request.upload = upload  # type: ignore[assignment]
    facts = Facts(request_id="r1", arrived_at=0.0, arrived_ns=0)
    return HttpReply(cast(Arrival, arrival), request, facts, closing=closing), facts


Pipeline = Callable[[Exchange], Awaitable[Outcome]]


class Front:
    """A pipeline that the test gives; keeps what came through it and what was refused."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.called: list[Exchange] = []
        self.refused: list[tuple[Exchange, Outcome]] = []

    @property
    def targets(self) -> list[str]:
        return [exchange.request.target for exchange in self.called]

    async def call(self, exchange: Exchange) -> Outcome:
        self.called.append(exchange)
        return await self._pipeline(exchange)

    def refuse(self, exchange: Exchange, outcome: Outcome) -> None:
        self.refused.append((exchange, outcome))
        rescue(exchange, outcome)


class Running:
    """A data server that listens, its front, and its port."""

    def __init__(self, server: DataServer, front: Front, port: int) -> None:
        self.server = server
        self.front = front
        self.port = port


@asynccontextmanager
async def data_server(pipeline: Pipeline) -> AsyncIterator[Running]:
    """Listens on a port of its own while the test runs."""
    front = Front(pipeline)
    sampler = Sampler(ratio=0.0)
    server = DataServer(lambda: front, sampler=sampler, clock=SystemClock(), bits=counting_bits)
    sockets = bind(ListenAddress(host="127.0.0.1", port=0))
    await server.listen(sockets)
    try:
        yield Running(server, front, sockets[0].getsockname()[1])
    finally:
        await server.close()
        await until(lambda: not server.protocols.connections)


async def reading(exchange: Exchange) -> Outcome:
    """A pipeline that reads the whole body and answers with it."""
    request = exchange.request
    body = await whole_of(request.upload) if request.upload is not None else request.body or b""
    exchange.reply.start(
        200, b"OK", b"x-target: %b\r\n" % exchange.request.target.encode(), length=len(body), body=body
    )
    return answered()


async def hanging(exchange: Exchange) -> Outcome:
    """A pipeline that never comes back."""
    await asyncio.Event().wait()
    return answered()
