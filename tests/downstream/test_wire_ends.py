"""Who leaves when, who is slow, and how connections end."""

from __future__ import annotations

import asyncio

import pytest

from proxy.downstream.arrival import Arrival
from proxy.exchange import CancelCause, Exchange, ReaderGone
from tests.downstream.visitor import ASK, LAST_ASK, Visitor, serving, stalled, talk, until, visiting
from tests.fakes import make_exchange

MUCH = 1 << 25
PIECE = bytes(1 << 16)
POST = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


async def waiting(arrival: Arrival) -> bool:
    """Has the body, waits for an answer that does not come."""
    while await arrival.payload.readany():
        pass
    await asyncio.Event().wait()
    return True


async def streaming(arrival: Arrival) -> bool:
    """Is in the middle of its answer."""
    assert arrival.transport is not None
    arrival.transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
    await asyncio.Event().wait()
    return True


async def stuffed(arrival: Arrival) -> bool:
    """Waits for a client that does not read."""
    assert arrival.transport is not None
    arrival.transport.write(bytes(MUCH))
    await arrival.drain()
    return True


PHASES = {
    "waiting": (ASK, waiting),
    "waiting, after a body": (POST % 2 + b"{}", waiting),
    "reading the body": (POST % 9 + b"part", waiting),
    "mid-stream": (ASK, streaming),
    "slow reader": (ASK, stuffed),
}


@pytest.mark.parametrize("how", ["leave", "reset", "fin"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_client_that_leaves_cancels_its_handler_and_is_named_as_the_cause(phase: str, how: str) -> None:
    data, handler = PHASES[phase]
    exchanges: list[Exchange] = []

    async def handle(arrival: Arrival) -> bool:
        arrival.exchange = make_exchange()
        exchanges.append(arrival.exchange)
        return await handler(arrival)

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(data)
        await until(lambda: len(exchanges) == 1)
        await asyncio.sleep(0.01)
        leave(visitor, how, unread=phase == "slow reader")
        async with asyncio.timeout(1.0):
            await until(lambda: served.cancelled == 1)
        assert exchanges[0].cancel_cause is CancelCause.CLIENT_LEFT


def leave(visitor: Visitor, how: str, *, unread: bool) -> None:
    """Goes away; with an answer unread, every way of closing is a reset."""
    if unread or how == "reset":
        visitor.reset()
    elif how == "fin":
        visitor.fin()
    else:
        visitor.leave()


async def test_a_cause_that_was_given_before_is_not_overwritten() -> None:
    exchange = make_exchange()

    async def handle(arrival: Arrival) -> bool:
        arrival.exchange = exchange
        exchange.cancel_cause = CancelCause.STALLED
        return await waiting(arrival)

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await until(lambda: len(served.arrivals) == 1)
        visitor.leave()
        await until(lambda: served.cancelled == 1)
        assert exchange.cancel_cause is CancelCause.STALLED


async def test_a_client_that_leaves_after_its_answer_is_no_cause_of_anything() -> None:
    exchange = make_exchange()

    async def handle(arrival: Arrival) -> bool:
        arrival.exchange = exchange
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        return True

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await visitor.until(b"\r\n\r\n")
        await until(lambda: served.arrivals[0].exchange is None)
        visitor.reset()
        await until(lambda: not served.protocols.connections)
        assert exchange.cancel_cause is None
        assert served.cancelled == 0


async def test_a_handler_can_be_cancelled_through_its_arrival() -> None:
    async with serving(streaming) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await visitor.until(b"hello\r\n")
        served.arrivals[0].cancel()
        assert await visitor.rest() == b""
        assert served.cancelled == 1


async def test_a_client_that_does_not_read_pauses_the_writer_until_it_does() -> None:
    drained = 0

    async def handle(arrival: Arrival) -> bool:
        nonlocal drained
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MUCH)
        for _ in range(MUCH // len(PIECE)):
            arrival.transport.write(PIECE)
            if arrival.paused:
                await arrival.drain()
            drained += len(PIECE)
        return True

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        assert await stalled(lambda: drained) < MUCH
        assert len((await visitor.answer()).body) == MUCH
        assert drained == MUCH
        assert not served.arrivals[0].paused


async def test_drain_says_that_the_reader_has_gone() -> None:
    said: list[BaseException] = []

    async def handle(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.abort()
        await until(lambda: arrival.transport is None)
        return True

    async def shielded(arrival: Arrival) -> bool:
        try:
            await handle(arrival)
        except asyncio.CancelledError:
            try:
                await arrival.drain()
            except ReaderGone as gone:
                said.append(gone)
            raise
        return True

    async with serving(shielded) as served:
        await talk(served.port, ASK)
        await until(lambda: served.cancelled == 1)
        assert len(said) == 1


async def test_a_body_that_nobody_reads_is_not_piled_up() -> None:
    sent, release = 0, asyncio.Event()

    async def handle(arrival: Arrival) -> bool:
        await release.wait()
        size = 0
        while piece := await arrival.payload.readany():
            size += len(piece)
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\nx-size: %d\r\ncontent-length: 0\r\n\r\n" % size)
        return True

    async def upload(visitor: Visitor) -> None:
        nonlocal sent
        await visitor.send(POST % MUCH)
        while sent < MUCH:
            await visitor.send(PIECE)
            sent += len(PIECE)

    async with serving(handle) as served, visiting(served.port) as visitor:
        uploading = asyncio.ensure_future(upload(visitor))
        assert await stalled(lambda: sent) < MUCH
        release.set()
        await uploading
        assert (await visitor.answer()).get("x-size") == b"%d" % MUCH


async def test_an_early_answer_to_a_large_upload_reaches_a_client_that_goes_on_sending() -> None:
    answer = b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbig"

    async def handle(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(answer)
        return False

    async with serving(handle) as served:
        for _ in range(3):
            size = 20 << 20
            assert await talk(served.port, POST % size + bytes(size)) == answer


async def test_expectations_are_not_answered_by_the_library() -> None:
    async def handle(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 417 Expectation Failed\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        return False

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n")
        assert (await visitor.answer()).status == 417


async def test_closing_what_is_idle_lets_the_others_answer_and_closes_them_then() -> None:
    go_on = asyncio.Event()

    async def handle(arrival: Arrival) -> bool:
        if arrival.target == "/slow":
            await go_on.wait()
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\nx-closing: %d\r\ncontent-length: 0\r\n\r\n" % arrival.closing)
        return True

    async with serving(handle) as served, visiting(served.port) as idle, visiting(served.port) as busy:
        await idle.send(ASK)
        assert (await idle.answer()).get("x-closing") == b"0"
        await busy.send(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: len(served.arrivals) == 2)
        assert sum(connection.idle for connection in served.protocols.connections) == 1
        served.protocols.close_idle()
        assert await idle.rest() == b""
        go_on.set()
        assert (await busy.answer()).get("x-closing") == b"1"
        assert await busy.rest() == b""


@pytest.mark.parametrize("body", [b"", b"content-length: 4\r\n\r\nbody"], ids=["bare", "body"])
async def test_an_offer_to_upgrade_is_declined_and_the_next_request_is_served(body: bytes) -> None:
    offer = b"POST /p HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n" + (
        body or b"\r\n"
    )

    async def handle(arrival: Arrival) -> bool:
        text = await arrival.payload.readany()
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
        return not arrival.should_close

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(offer)
        assert (await visitor.answer()).body == body[-4:]
        await visitor.send(LAST_ASK)
        assert (await visitor.answer()).status == 200
        assert served.targets == ["/p", "/last"]
