"""Uploads that stop: who waits for them, how long, and that their connection ends."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest

from proxy.downstream.arrival import LINGER_SECONDS, LONGEST_LINGER_SECONDS
from proxy.downstream.incoming import SLOWEST, STALL_SECONDS
from proxy.downstream.lasting import FAREWELL_SECONDS
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.request import BodyProblem, Upload
from proxy.upstream.upload import UploadPump
from proxy.upstream.wire import UpstreamConnection
from tests.downstream.doubles import data_server, reading
from tests.downstream.visitor import read_answer, until, visiting
from tests.fakes import answered, settle, whole_of
from tests.hurried import HurriedLoop, hurried
from tests.upstream.test_upload import FakeConnection

POST = b"POST /v1/files HTTP/1.1\r\nhost: x\r\n"
LENGTH = POST + b"content-length: 50000\r\n\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
LONG = 20 * STALL_SECONDS
FRAMINGS = {
    "length": LENGTH + b"x" * 1000,
    "chunked": CHUNKED + b"5\r\nhello\r\n",
    "inside a chunk": CHUNKED + b"9\r\nhe",
}


def upload_of(exchange: Exchange) -> Upload:
    assert exchange.request.upload is not None
    return exchange.request.upload


@pytest.mark.parametrize("name", FRAMINGS)
def test_an_early_answer_to_a_stalled_upload_ends_its_connection_after_the_linger(name: str) -> None:
    async def early(exchange: Exchange) -> Outcome:
        """A provider has answered while the upload is still passed on to it."""
        pump = UploadPump(upload_of(exchange), cast(UpstreamConnection, FakeConnection()))
        await settle()
        exchange.reply.start(413, b"Content Too Large", b"", length=3, body=b"big")
        pump.stop()
        return answered(413)

    async def scene(loop: HurriedLoop) -> None:
        async with data_server(early) as running, visiting(running.port) as visitor:
            await visitor.send(FRAMINGS[name])
            answer = await visitor.answer()
            assert (answer.status, answer.body, answer.get("connection")) == (413, b"big", b"close")
            await loop.pass_time(LINGER_SECONDS / 2)
            assert len(running.server.protocols.connections) == 1
            await loop.pass_time(LINGER_SECONDS + FAREWELL_SECONDS)
            await until(lambda: not running.server.protocols.connections)
            assert await visitor.rest() == b""
            gc.collect()
            await settle()

    hurried(scene)


@pytest.mark.parametrize(
    ("seconds", "heard"), [(LONGEST_LINGER_SECONDS - 2, True), (LONGEST_LINGER_SECONDS + 2, False)]
)
def test_a_client_that_sends_on_after_an_early_answer_is_listened_to_within_bounds(seconds: float, heard: bool) -> None:
    """It may read the answer only when it has sent everything, and a reset would take it away."""

    async def early(exchange: Exchange) -> Outcome:
        exchange.reply.start(413, b"Content Too Large", b"", length=3, body=b"big")
        return answered(413)

    async def scene(loop: HurriedLoop) -> None:
        async with data_server(early) as running, visiting(running.port, patience=LONG) as visitor:
            await visitor.send(POST + b"content-length: 1000000\r\n\r\n")
            began = loop.time()
            while loop.time() < began + seconds and running.server.protocols.connections:
                visitor.writer.write(bytes(1000))
                await asyncio.sleep(0.01)
                await loop.pass_time(LINGER_SECONDS / 2)
            assert bool(running.server.protocols.connections) is heard
            if heard:
                await loop.pass_time(LINGER_SECONDS)
                assert read_answer(await visitor.rest())[0].status == 413

    hurried(scene)


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_body_of_which_nothing_more_comes_is_given_up(name: str) -> None:
    said: list[str] = []

    async def pipeline(exchange: Exchange) -> Outcome:
        try:
            await whole_of(upload_of(exchange))
        except BodyProblem as problem:
            said.append(str(problem))
        exchange.reply.start(400, b"Bad Request", b"", length=0, body=b"")
        return Outcome(OutcomeKind.CALLER_ERROR)

    async def scene(loop: HurriedLoop) -> None:
        async with data_server(pipeline) as running, visiting(running.port, patience=LONG) as visitor:
            await visitor.send(FRAMINGS[name])
            await until(lambda: running.server.in_flight == 1)
            await loop.pass_time(STALL_SECONDS - 1.0)
            assert said == []
            await loop.pass_time(2.0)
            assert said == ["it came too slowly, or nothing for 30 s; send it again"]
            await loop.pass_time(LINGER_SECONDS)
            assert read_answer(await visitor.rest())[0].status == 400

    hurried(scene)


async def reading_or_not(exchange: Exchange) -> Outcome:
    """Reads the whole body, and says so when it does not come."""
    try:
        return await reading(exchange)
    except BodyProblem:
        exchange.reply.start(400, b"Bad Request", b"", length=0, body=b"")
        return Outcome(OutcomeKind.CALLER_ERROR)


@pytest.mark.parametrize(("piece", "pause"), [(1, 1.0), (100, 5.0), (1200, 4.0)], ids=["drops", "sips", "mouthfuls"])
def test_a_body_that_comes_too_slowly_is_given_up_however_steadily(piece: int, pause: float) -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with data_server(reading_or_not) as running, visiting(running.port, patience=LONG) as visitor:
            await visitor.send(POST + b"content-length: 1000000\r\n\r\n")
            await until(lambda: running.server.in_flight == 1)
            began = loop.time()
            while running.server.in_flight and loop.time() < began + 10 * STALL_SECONDS:
                visitor.writer.write(bytes(piece))
                await asyncio.sleep(0.01)
                await loop.pass_time(pause)
            earned = (loop.time() - began) * piece / pause / SLOWEST
            assert STALL_SECONDS <= loop.time() - began < STALL_SECONDS + earned + 2 * pause + 2.0
            assert read_answer(await visitor.rest())[0].status == 400

    hurried(scene)


@pytest.mark.parametrize(("piece", "pause"), [(12_000, 20.0), (3000, 4.0), (600, 1.0)])
def test_a_body_at_a_fair_pace_may_take_as_long_as_it_wants(piece: int, pause: float) -> None:
    async def scene(loop: HurriedLoop) -> None:
        count = int(5 * STALL_SECONDS / pause)
        async with data_server(reading) as running, visiting(running.port, patience=LONG) as visitor:
            await visitor.send(POST + b"connection: close\r\ncontent-length: %d\r\n\r\n" % (piece * count))
            for _ in range(count):
                await loop.pass_time(pause)
                await visitor.send(bytes(piece))
                await asyncio.sleep(0.01)
            answer = read_answer(await visitor.rest())[0]
            assert (answer.status, len(answer.body)) == (200, piece * count)

    hurried(scene)


def test_much_at_once_earns_no_more_than_the_silence_that_everybody_may_keep() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with data_server(reading_or_not) as running, visiting(running.port, patience=LONG) as visitor:
            await visitor.send(POST + b"content-length: 1000000\r\n\r\n" + bytes(900_000))
            await until(lambda: running.server.in_flight == 1)
            await asyncio.sleep(0.1)
            await loop.pass_time(STALL_SECONDS - 1.0)
            assert running.server.in_flight == 1
            await loop.pass_time(3.0)
            assert read_answer(await visitor.rest())[0].status == 400

    hurried(scene)


def test_time_in_which_nobody_reads_is_not_the_caller_s() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async def late(exchange: Exchange) -> Outcome:
            """What a provider does that takes its time over every piece."""
            upload = upload_of(exchange)
            while await upload.read():
                await asyncio.sleep(STALL_SECONDS)
            exchange.reply.start(200, b"OK", b"", length=2, body=b"ok")
            return answered()

        async with data_server(late) as running, visiting(running.port, patience=LONG) as visitor:
            await visitor.send(POST + b"connection: close\r\ncontent-length: 200000\r\n\r\n" + bytes(100))
            await until(lambda: running.server.in_flight == 1)
            sending = asyncio.ensure_future(visitor.send(bytes(199_900)))
            while running.server.in_flight:
                await asyncio.sleep(0.01)
                await loop.pass_time(STALL_SECONDS / 2)
            assert read_answer(await visitor.rest())[0].body == b"ok"
            await sending

    hurried(scene)
