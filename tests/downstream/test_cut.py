"""Ends that a client can tell from the end of an answer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from proxy.downstream.arrival import Arrival
from proxy.downstream.cut import reset
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from tests.downstream.doubles import FakeTransport, data_server
from tests.downstream.visitor import ASK, read_answer, serving, until, visiting
from tests.fakes import answered


@pytest.mark.parametrize("size", [0, 10, 1 << 16])
async def test_a_reset_is_an_error_for_who_has_read_all_before_it(size: int) -> None:
    read = asyncio.Event()

    async def handle(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.0 200 OK\r\n\r\n" + bytes(size))
        await read.wait()
        reset(arrival.transport)
        return False

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await visitor.until(b"\r\n\r\n")
        assert await visitor.reader.readexactly(size) == bytes(size)
        read.set()
        with pytest.raises(ConnectionResetError):
            await visitor.reader.read()


async def test_a_client_that_was_faster_does_not_matter() -> None:
    gone = asyncio.Event()

    async def handle(arrival: Arrival) -> bool:
        transport = arrival.transport
        assert transport is not None
        try:
            await gone.wait()
        finally:
            reset(transport)
        return False

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        visitor.reset()
        async with asyncio.timeout(10):
            while not served.cancelled:
                await asyncio.sleep(0.001)


def test_what_has_no_socket_is_aborted() -> None:
    transport = FakeTransport()
    reset(cast(asyncio.Transport, transport))
    assert transport.end == "aborted"


@pytest.mark.parametrize("framing", [b"content-length: 9000000", b"transfer-encoding: chunked"])
async def test_a_broken_answer_reaches_who_still_sends_and_is_seen_to_be_broken(framing: bytes) -> None:
    async def breaks(exchange: Exchange) -> Outcome:
        exchange.reply.start(413, b"Content Too Large", b"", length=100)
        exchange.reply.write(b"only this")
        exchange.reply.abort()
        return answered(413)

    async with data_server(breaks) as running, visiting(running.port) as visitor:
        await visitor.send(b"POST /p HTTP/1.1\r\nhost: x\r\n" + framing + b"\r\n\r\n")
        await until(lambda: running.front.targets == ["/p"])
        for _ in range(200):
            await visitor.send(b"2710\r\n" + bytes(10_000) + b"\r\n")
            await asyncio.sleep(0)
        answer, rest = read_answer(await visitor.rest())
        assert (answer.status, answer.body, answer.whole, rest) == (413, b"only this", False, b"")
