"""Connections that end are freed at once: nothing of them waits for the garbage collector."""

from __future__ import annotations

import asyncio

import pytest

from proxy.body import Body, BodyBroken
from proxy.downstream.arrival import Arrival
from proxy.downstream.wire import Connection, Handler
from tests.downstream.test_wire import answer_to, plain
from tests.downstream.visitor import ASK, LAST_ASK, Served, serving, until, visiting
from tests.freed import freed, uncollected

KINDS = (Arrival, Body, Connection)
POST = b"POST /p HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"


async def waiting(arrival: Arrival) -> bool:
    while await arrival.payload.readany():
        pass
    await asyncio.Event().wait()
    return True


async def refusing(arrival: Arrival) -> bool:
    try:
        await arrival.payload.readany()
        await arrival.payload.readany()
    except BodyBroken:
        pass
    return answer_to(arrival) and False


WAYS: dict[str, tuple[Handler, bytes, bool]] = {
    "never spoke": (plain, b"", False),
    "half a head": (plain, b"GET /u HT", False),
    "answered, then left": (plain, ASK, False),
    "answered, then closed": (plain, LAST_ASK, True),
    "closed, more behind": (plain, LAST_ASK + ASK * 5, True),
    "no request": (plain, b"GE\x01 /\r\n\r\n", True),
    "left while waiting": (waiting, ASK, False),
    "left with more behind": (waiting, ASK * 5, False),
    "left in the body": (waiting, POST + b"content-length: 9\r\n\r\nhello", False),
    "broken chunk": (refusing, CHUNKED + b"zz\r\n", True),
    "offer to upgrade": (plain, POST + b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 1\r\n\r\nz", False),
    "connect": (plain, b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n", False),
}


async def come_and_go(served: Served, data: bytes, *, closed: bool) -> None:
    before = len(served.arrivals)
    async with visiting(served.port) as visitor:
        await visitor.send(data)
        await until(lambda: bool(served.protocols.connections))
        if closed:
            await visitor.rest()
        elif data.endswith((b"\n", b"hello", b"z")):
            await until(lambda: len(served.arrivals) > before)
    await until(lambda: not served.protocols.connections)


@pytest.mark.parametrize("way", WAYS)
async def test_a_connection_is_freed_however_it_ends(way: str) -> None:
    handler, data, closed = WAYS[way]
    async with serving(handler) as served:
        await come_and_go(served, data, closed=closed)
        served.arrivals.clear()
        with uncollected(*KINDS) as alive:
            for _ in range(10):
                await come_and_go(served, data, closed=closed)
            served.arrivals.clear()
            await asyncio.sleep(0.01)
            await freed(alive)


async def test_a_thousand_connections_at_once_are_served_and_freed() -> None:
    async with serving(plain) as served:
        with uncollected(*KINDS) as alive:
            wires = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", served.port) for _ in range(1000)))
            for round_number in range(2):
                for _, writer in wires:
                    writer.write(ASK)
                for reader, _ in wires:
                    assert (await reader.readuntil(b"\r\n\r\n/")).startswith(b"HTTP/1.1 200")
                assert len(served.arrivals) == 1000 * (round_number + 1)
            for _, writer in wires:
                writer.close()
            await until(lambda: not served.protocols.connections)
            served.arrivals.clear()
            await asyncio.sleep(0.01)
            await freed(alive)
