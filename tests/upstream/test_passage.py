"""A tunnel, cancelled at every step; what it leaves, and what its breaker is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.exchange import CancelCause, Exchange
from proxy.link import Link
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.passage import Passage
from proxy.upstream.passing import TunnelConnection
from proxy.upstream.pool import Pool
from tests.fakes import CHAT, FakeClock, FakeReply, make_exchange, with_attempt

HOST = "127.0.0.1"
STEPS = 30


class ClientLink(Link):
    """A client's connection that speaks no HTTP any more."""

    def data_received(self, data: bytes) -> None:
        self.beyond(data)

    def eof_received(self) -> bool:
        return self.finish()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end_writing(ConnectionError())


class Laid:
    """A passage to a server that echoes, and the client in front of it."""

    def __init__(self, port: int, link: ClientLink, far: socket.socket, *, own: bool = False) -> None:
        self.link, self.far = link, far
        self.pool = Pool(
            Dialer(Address(scheme="tcp", host=HOST, port=port), connection=TunnelConnection), idle_seconds=0.0
        )
        self.passage = Passage(pool=self.pool, judge=lambda data: True, own=lambda *place: own, clock=FakeClock())
        self.agreed = 0

    def exchange(self) -> Exchange:
        exchange = make_exchange(CHAT, now=0.0, reply=FakeReply())

        def switch(lines: bytes) -> Link:
            self.agreed += 1
            return self.link

        exchange.request.switch = switch
        with_attempt(exchange)
        return exchange

    def start(self, exchange: Exchange) -> asyncio.Task[Outcome]:
        async def run() -> Outcome:
            return await self.passage(exchange)

        return asyncio.ensure_future(run())


@asynccontextmanager
async def laid(*, listens: bool = True, own: bool = False) -> AsyncIterator[Laid]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()

    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(echo, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    if not listens:
        server.close()
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    transport, link = await loop.create_connection(ClientLink, sock=near)
    tunnel = Laid(port, link, far, own=own)
    try:
        yield tunnel
    finally:
        transport.abort()
        far.close()
        server.close()
        await tunnel.pool.close()


@pytest.mark.parametrize("step", range(STEPS))
async def test_a_cancelled_tunnel_leaves_nothing(step: int) -> None:
    async with laid() as tunnel:
        tunnel.far.send(b"hello")
        task = tunnel.start(tunnel.exchange())
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tunnel.pool.busy == 0
        assert tunnel.link.taker is None


async def test_bytes_pass_until_both_have_ended() -> None:
    async with laid() as tunnel:
        loop, exchange = asyncio.get_running_loop(), tunnel.exchange()
        task = tunnel.start(exchange)
        await loop.sock_sendall(tunnel.far, b"hello")
        said = await loop.sock_recv(tunnel.far, 5)
        tunnel.far.shutdown(socket.SHUT_WR)
        while data := await loop.sock_recv(tunnel.far, 100):
            said += data
        outcome = await task
        assert (said, outcome.kind, outcome.committed) == (b"hello", OutcomeKind.OK, True)
        assert (exchange.facts.request_bytes, exchange.facts.answer_bytes) == (5, 5)
        assert (tunnel.pool.busy, tunnel.agreed) == (0, 1)


async def test_what_cannot_be_dialled_is_not_agreed_to() -> None:
    async with laid(listens=False) as tunnel:
        outcome = await tunnel.start(tunnel.exchange())
        assert (outcome.kind, outcome.committed, tunnel.agreed) == (OutcomeKind.UNREACHABLE, False, 0)


async def test_what_leads_back_is_not_agreed_to() -> None:
    async with laid(own=True) as tunnel:
        outcome = await tunnel.start(tunnel.exchange())
        assert (outcome.reason, tunnel.agreed, tunnel.pool.busy) == (Reason.LOOP_DETECTED, 0, 0)


async def test_a_drain_is_a_break_for_the_client() -> None:
    async with laid() as tunnel:
        loop, exchange = asyncio.get_running_loop(), tunnel.exchange()
        task = tunnel.start(exchange)
        await loop.sock_sendall(tunnel.far, b"x")
        assert await loop.sock_recv(tunnel.far, 1) == b"x"
        exchange.cancel_cause = CancelCause.DRAIN
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert tunnel.link.transport is None or tunnel.link.transport.is_closing()
