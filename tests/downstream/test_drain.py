"""What the data server lets end after it stopped to listen: bodies that still arrive, answers that are still taken."""

from __future__ import annotations

import asyncio

import pytest

from proxy.clock import SystemClock
from proxy.downstream.lasting import HEAD_SECONDS
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.runtime.lifecycle import drain
from tests.downstream.doubles import data_server, hanging, reading
from tests.downstream.visitor import ASK, read_answers, until, visiting
from tests.fakes import answered
from tests.hurried import HurriedLoop, hurried

MUCH = 1 << 25
POST = b"POST /p HTTP/1.1\r\nhost: x\r\n"
PARTS = {
    "length": (b"content-length: 10\r\n\r\nhello", b"world"),
    "length, nothing yet": (b"content-length: 10\r\n\r\n", b"helloworld"),
    "chunked": (b"transfer-encoding: chunked\r\n\r\n5\r\nhel", b"lo\r\n5\r\nworld\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("name", PARTS)
async def test_a_request_whose_body_still_arrives_is_answered_and_its_connections_last(name: str) -> None:
    begun, rest = PARTS[name]
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(POST + begun)
        await until(lambda: running.server.in_flight == 1)
        running.server.draining = True
        running.server.stop_listening()
        await asyncio.sleep(0.01)
        await visitor.send(rest + ASK)
        (answer,) = read_answers(await visitor.rest())
        assert (answer.status, answer.body, answer.get("connection")) == (200, b"helloworld", b"close")
        assert running.front.targets == ["/p"]


async def test_a_drain_without_linger_waits_for_a_body_and_its_answer() -> None:
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(POST + PARTS["length"][0])
        await until(lambda: running.server.in_flight == 1)
        draining = asyncio.ensure_future(drain(running.server, linger=0.0, limit=20.0, clock=SystemClock()))
        await asyncio.sleep(0.1)
        assert not draining.done()
        await visitor.send(PARTS["length"][1])
        (answer,) = read_answers(await visitor.rest())
        assert (answer.status, answer.body) == (200, b"helloworld")
        async with asyncio.timeout(5.0):
            await draining


async def much(exchange: Exchange) -> Outcome:
    """An answer that no buffer of a socket holds."""
    exchange.reply.start(200, b"OK", b"", length=MUCH, body=bytes(MUCH))
    return answered()


@pytest.mark.parametrize("closing", [b"", b"connection: close\r\n"], ids=["kept", "closing"])
async def test_an_answer_that_its_client_has_not_taken_keeps_the_server_busy(closing: bytes) -> None:
    async with data_server(much) as running, visiting(running.port) as visitor:
        server = running.server
        await visitor.send(ASK[:-2] + closing + b"\r\n")
        await visitor.until(b"\r\n\r\n")
        await until(lambda: server.in_flight == 0)
        assert server.busy == 1
        draining = asyncio.ensure_future(drain(server, linger=0.0, limit=20.0, clock=SystemClock()))
        await asyncio.sleep(0.1)
        assert not draining.done()
        assert len(await visitor.rest() if closing else await visitor.reader.readexactly(MUCH)) == MUCH
        async with asyncio.timeout(5.0):
            await draining
        assert server.busy == 0


async def test_who_does_not_take_an_answer_holds_a_drain_up_no_longer_than_its_limit() -> None:
    async with data_server(much) as running, visiting(running.port) as visitor:
        await visitor.send(ASK)
        await visitor.until(b"\r\n\r\n")
        await until(lambda: running.server.in_flight == 0)
        async with asyncio.timeout(5.0):
            await drain(running.server, linger=0.0, limit=0.3, clock=SystemClock())
        assert running.server.busy == 1


async def test_exchanges_under_way_are_what_keeps_it_busy_first() -> None:
    async with data_server(hanging) as running, visiting(running.port) as one, visiting(running.port) as two:
        assert running.server.busy == 0
        await one.send(ASK)
        await two.send(ASK)
        await until(lambda: running.server.busy == 2)


HALF = (b"GE", ASK[:9], ASK[:-1])


@pytest.mark.parametrize("linger", [0.0, 0.1], ids=["native", "classic"])
@pytest.mark.parametrize("half", HALF)
async def test_a_drain_waits_for_a_head_that_is_partly_in_and_answers_it(half: bytes, linger: float) -> None:
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(half)
        await until(lambda: running.server.busy == 1)
        draining = asyncio.ensure_future(drain(running.server, linger=linger, limit=20.0, clock=SystemClock()))
        await asyncio.sleep(linger + 0.2)
        assert not draining.done()
        await visitor.send(ASK[len(half) :])
        (answer,) = read_answers(await visitor.rest())
        assert (answer.status, answer.get("connection")) == (200, b"close")
        async with asyncio.timeout(5.0):
            await draining


async def test_a_head_behind_another_request_keeps_the_server_busy_and_a_whole_one_does_not() -> None:
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(ASK + HALF[1])
        await visitor.answer()
        await until(lambda: running.server.busy == 1)
        await visitor.send(ASK[len(HALF[1]) :])
        await visitor.answer()
        await until(lambda: running.server.busy == 0)


@pytest.mark.parametrize("linger", [0.0, 1.0], ids=["native", "classic"])
def test_a_head_that_never_ends_holds_a_drain_up_for_seconds_only(linger: float) -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with data_server(reading) as running, visiting(running.port, patience=3600.0) as visitor:
            await visitor.send(HALF[1])
            await until(lambda: running.server.busy == 1)
            draining = asyncio.ensure_future(drain(running.server, linger=linger, limit=600.0, clock=SystemClock()))
            await loop.pass_time(HEAD_SECONDS + 1.0)
            async with asyncio.timeout(5.0):
                await draining
            assert await visitor.rest() == b""

    hurried(scene)
