"""Clients that leave while nobody listens to them, or while nobody takes what they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from proxy.body import BodyBroken
from proxy.downstream.arrival import Arrival
from proxy.downstream.departure import Departing
from tests.downstream.visitor import ASK, Served, Visitor, serving, stalled, until, visiting

UNREAD = 100_000
"""More than a body keeps, and less than a socket does."""
SWITCH = (
    b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-key: ZGVwYXJ0dXJlcyBhbGw=\r\n\r\n"
)
UPLOAD = b"POST /up HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (UNREAD + 1)


def lets_go(visitor: Visitor, how: str) -> None:
    """Leaves in one of the ways that there are."""
    ways: dict[str, Callable[[], None]] = {"fin": visitor.fin, "close": visitor.leave, "reset": visitor.reset}
    ways[how]()


async def waits_for_ever(arrival: Arrival) -> bool:
    await asyncio.Event().wait()
    return True


async def paused(served: Served) -> None:
    """Waits until the connection is asked to bring nothing more."""
    await until(lambda: any(one._pauses for one in served.protocols.connections))


@pytest.mark.parametrize("how", ["fin", "close", "reset"])
async def test_who_leaves_behind_an_unread_body_is_noticed(how: str) -> None:
    async with serving(waits_for_ever) as served, visiting(served.port) as visitor:
        await visitor.send(UPLOAD + bytes(UNREAD))
        await paused(served)
        lets_go(visitor, how)
        await until(lambda: served.cancelled == 1)
        assert not served.protocols.connections


@pytest.mark.parametrize("how", ["fin", "close", "reset"])
async def test_who_leaves_behind_requests_that_wait_is_noticed(how: str) -> None:
    async with serving(waits_for_ever) as served, visiting(served.port) as visitor:
        await visitor.send(ASK * 500)
        await paused(served)
        lets_go(visitor, how)
        await until(lambda: served.cancelled == 1)
        assert served.targets == ["/"]


async def test_who_waits_behind_an_unread_body_is_not_sent_away() -> None:
    go_on = asyncio.Event()

    async def handle(arrival: Arrival) -> bool:
        await go_on.wait()
        size = 0
        while piece := await arrival.payload.readany():
            size += len(piece)
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\nx-size: %d\r\ncontent-length: 0\r\n\r\n" % size)
        return True

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(UPLOAD + bytes(UNREAD))
        await paused(served)
        asking = next(iter(served.protocols.connections))
        first = asking._asks
        await until(lambda: asking._asks is not first)
        go_on.set()
        await visitor.send(b"!")
        assert (await visitor.answer()).get("x-size") == b"%d" % (UNREAD + 1)


async def test_a_body_that_will_not_come_is_told_to_who_reads_it() -> None:
    said: list[str] = []

    async def handle(arrival: Arrival) -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                while await arrival.payload.readany():
                    pass
            except BodyBroken as broken:
                said.append(str(broken))
            raise
        return True

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(UPLOAD + bytes(UNREAD))
        await paused(served)
        visitor.fin()
        await until(lambda: served.cancelled == 1)
        assert said == ["the client has left"]


async def test_who_half_closes_and_takes_nothing_of_an_answer_under_way_is_gone() -> None:
    """Else the end of the connection would wait for a reader that has stopped."""
    written = 0

    async def handle(arrival: Arrival) -> bool:
        nonlocal written
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            arrival.transport.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            written += 1
            if arrival.paused:
                await arrival.drain()

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await visitor.until(b"\r\n\r\n")
        await stalled(lambda: written)
        visitor.fin()
        await until(lambda: served.cancelled == 1)


async def test_who_half_closes_after_its_answer_gets_all_of_it() -> None:
    size = 16 << 20

    async def handle(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))
        return True

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await until(lambda: bool(served.arrivals) and next(iter(served.protocols.connections)).serving is None)
        visitor.fin()
        assert len((await visitor.answer()).body) == size


class Silent:
    """Who has taken a connection over, and waits."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = False

    def received(self, data: bytes) -> None:
        """Keeps it."""
        self.data += data

    def writable(self) -> None:
        """Has nothing to write."""

    def lost(self) -> None:
        """Notes it."""
        self.ended = True


async def test_the_last_words_before_the_end_of_another_protocol_are_not_dropped() -> None:
    """There FIN follows a farewell that has to be read first; a reset is the end all the same."""
    taker = Silent()

    async def handle(arrival: Arrival) -> bool:
        arrival.link.hand_over(taker)
        arrival.link.pause_reading()
        return await waits_for_ever(arrival)

    async with serving(handle) as served, visiting(served.port) as visitor, visiting(served.port) as other:
        for count, one in enumerate((visitor, other), 1):
            await one.send(SWITCH)
            await until(lambda count=count: len(served.arrivals) == count)  # type: ignore[misc]
        first, second = (cast(Departing, arrival.link) for arrival in served.arrivals)
        await visitor.send(b"farewell")
        visitor.fin()
        for _ in range(3):
            asks = first._asks
            await until(lambda asks=asks: first._asks is not asks)  # type: ignore[misc]
        assert not taker.ended
        first.resume_reading()
        await until(lambda: taker.ended)
        assert taker.data == b"farewell"
        other.reset()
        await until(lambda: second.transport is None)


async def test_what_was_said_in_another_protocol_reaches_who_has_half_closed() -> None:
    size = 16 << 20

    async def handle(arrival: Arrival) -> bool:
        arrival.link.hand_over(Silent())
        assert arrival.transport is not None
        arrival.transport.write(bytes(size))
        return await waits_for_ever(arrival)

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(SWITCH)
        await until(lambda: any(one.paused for one in served.protocols.connections))
        visitor.fin()
        assert len(await visitor.rest()) == size
        await until(lambda: served.cancelled == 1)
