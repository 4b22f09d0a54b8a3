"""The contract with aiohttp, upstream: what a dialer holds, and that closing it breaks visibly what is under way."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientConnectorError

from proxy.body import BodyBroken
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from tests.hurried import HurriedLoop, hurried
from tests.ports import free_port
from tests.upstream.peer import ASK, OK, PATIENCE_SECONDS, PeerWire, answering, ask, provider, until

LONG_SECONDS = 400.0
"""Longer than aiohttp lets a request take, or a connection rest, unless it is told otherwise."""

BODIES = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello",
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "to the end of the connection": b"HTTP/1.1 200 OK\r\n\r\nhello",
}


async def test_a_dialer_knows_how_many_connections_are_open_idle_ones_included() -> None:
    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await wire.send(OK)

    async with provider(script) as peer:
        dialer = Dialer(peer.address)
        one, two = await dialer.dial(PATIENCE_SECONDS), await dialer.dial(PATIENCE_SECONDS)
        assert dialer.open == 2
        await ask(one)
        one.rest(0.0)
        assert dialer.open == 2
        one.kill()
        assert dialer.open == 1
        one.kill()
        assert dialer.open == 1
        two.kill()
        assert dialer.open == 0
        await dialer.close()


async def test_a_dialer_counts_how_its_dials_end() -> None:
    async with provider(answering()) as peer:
        dialer, dead = Dialer(peer.address), Dialer(Address(scheme="http", host="127.0.0.1", port=free_port()))
        connection = await dialer.dial(PATIENCE_SECONDS)
        assert (dialer.opened, dialer.failed) == (1, 0)
        connection.kill()
        for number in (1, 2):
            with pytest.raises(ClientConnectorError):
                await dead.dial(PATIENCE_SECONDS)
            assert (dead.opened, dead.failed) == (0, number)
        await dialer.close()
        await dead.close()


async def test_a_connection_that_its_peer_ended_is_open_until_it_is_killed() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()

    async with provider(script) as peer:
        dialer = Dialer(peer.address)
        connection = await dialer.dial(PATIENCE_SECONDS)
        connection.write(ASK, b"")
        await until(lambda: not connection.usable)
        connection.kill()
        assert dialer.open == 0
        await dialer.close()


@pytest.mark.parametrize("name", BODIES)
async def test_closing_a_dialer_breaks_the_bodies_of_its_connections_for_their_readers(name: str) -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(BODIES[name])
        await wire.gone()

    async with provider(script) as peer:
        dialer = Dialer(peer.address)
        connection = await dialer.dial(PATIENCE_SECONDS)
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        assert await payload.readany() == b"hello"
        reading = asyncio.ensure_future(payload.readany())
        await asyncio.sleep(0)
        await dialer.close()
        with pytest.raises(BodyBroken):
            await reading
        connection.kill()


async def test_closing_a_dialer_wakes_who_waits_for_a_head() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.gone()

    async with provider(script) as peer:
        dialer = Dialer(peer.address)
        connection = await dialer.dial(PATIENCE_SECONDS)
        connection.expect(body=True)
        connection.write(ASK, b"")
        waiting = asyncio.ensure_future(connection.head())
        await asyncio.sleep(0)
        await dialer.close()
        with pytest.raises(ConnectionError):
            await waiting
        connection.kill()


def test_no_limit_of_the_library_s_own_ends_a_slow_answer_or_a_connection_that_rests() -> None:
    """Its session would end after 300 s in all, and its pool drop what has rested for 15 s."""

    async def scene(loop: HurriedLoop) -> None:
        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(2):
                await reader.readuntil(b"\r\n\r\n")
                for part in (b"HTTP/1.1 200 OK\r\ncontent-", b"length: 4\r\n\r\n", b"sl", b"ow"):
                    await asyncio.sleep(LONG_SECONDS)
                    writer.write(part)
            writer.close()

        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=server.sockets[0].getsockname()[1]))
        connection = await dialer.dial(PATIENCE_SECONDS)
        for _ in range(2):
            asked = asyncio.ensure_future(ask(connection))
            while not asked.done():
                await loop.pass_time(10)
                await asyncio.sleep(0.001)
            assert await asked == (200, b"slow")
            await loop.pass_time(LONG_SECONDS)
        connection.kill()
        await dialer.close()
        server.close()

    hurried(scene)
