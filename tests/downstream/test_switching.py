"""Handshakes of WebSockets at the data listener: who may take the connection over, and how it ends."""

from __future__ import annotations

import asyncio

from proxy.downstream.arrival import Arrival
from proxy.downstream.reply import HttpReply
from proxy.exchange import Exchange
from proxy.link import Link
from proxy.outcome import Outcome, OutcomeKind
from proxy.request import Request
from tests.downstream.doubles import data_server, reading
from tests.downstream.visitor import ASK, until, visiting
from tests.freed import freed, uncollected
from tests.websocket.encoding import KEY

SHAKE = (
    b"GET /talk HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: "
    + KEY.encode()
    + b"\r\n\r\n"
)


class Echo:
    """Has taken a connection over, and gives back what comes, until somebody says `end`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.ended = asyncio.Event()
        self.got = b""

    def received(self, data: bytes) -> None:
        self.got += data
        if self._link.transport is not None:
            self._link.transport.write(data)
        if self.got.endswith(b"end"):
            self.ended.set()

    def writable(self) -> None:
        """Nothing waits."""

    def lost(self) -> None:
        """The exchange is cancelled."""


async def switching(exchange: Exchange) -> Outcome:
    if exchange.request.switch is None:
        return await reading(exchange)
    link = exchange.request.switch(b"x-agreed: yes\r\n")
    echo = Echo(link)
    link.hand_over(echo)
    await echo.ended.wait()
    link.taker = None
    return Outcome(OutcomeKind.OK, status=101, committed=True)


async def refusing(exchange: Exchange) -> Outcome:
    body = b"no"
    exchange.reply.start(401, b"Unauthorized", b"", length=len(body), body=body)
    return Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=401, committed=True)


async def test_a_connection_that_was_handed_over_speaks_no_http_any_more() -> None:
    async with data_server(switching) as running, visiting(running.port) as visitor:
        await visitor.send(ASK + SHAKE + ASK)
        await until(lambda: len(running.front.called) == 2)
        await visitor.send(b"\xff\0 end")
        told = await visitor.rest()
        _, _, after = told.partition(b"HTTP/1.1 101 ")
        head, _, came = after.partition(b"\r\n\r\n")
        assert b"connection: Upgrade\r\nupgrade: websocket\r\nx-agreed: yes\r\n" in head + b"\r\n"
        # The second request came behind the handshake: it is what the other protocol makes of it.
        assert came == ASK + b"\xff\0 end"
        assert [exchange.facts.status for exchange in running.front.called] == [200, 101]


async def test_what_comes_too_late_does_not_reset_the_connection() -> None:
    """The last words may not be read yet: they are lost where the connection is reset."""
    async with data_server(switching) as running, visiting(running.port) as visitor:
        await visitor.send(SHAKE + b"end")
        await until(lambda: bool(running.front.called))
        await until(lambda: not running.server.live)
        for _ in range(20):
            await visitor.send(b"late")
            await asyncio.sleep(0.005)
        assert (await visitor.rest()).endswith(b"\r\n\r\nend")


async def test_a_refused_handshake_is_the_last_request_of_its_connection() -> None:
    async with data_server(refusing) as running, visiting(running.port) as visitor:
        await visitor.send(SHAKE + b"\x81\x80abcd" + ASK)
        told = await visitor.rest()
        assert told.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"\r\nconnection: close\r\n" in told
        assert told.count(b"HTTP/1.1 ") == 1


async def test_handshakes_are_freed_at_once_agreed_to_or_not() -> None:
    with uncollected(Arrival, Request, HttpReply, Exchange) as alive:
        for pipeline in (switching, refusing):
            async with data_server(pipeline) as running:
                for _ in range(3):
                    async with visiting(running.port) as visitor:
                        await visitor.send(SHAKE + b"end")
                        await visitor.rest()
                running.front.called.clear()
                await freed(alive)
