"""Half heads end in time however they are fed; nothing that is whole, or stands unread, is cut off."""

from __future__ import annotations

import asyncio

import pytest

from proxy.downstream.arrival import Arrival
from proxy.downstream.lasting import (
    AGAIN_SECONDS,
    FAREWELL_SECONDS,
    HEAD_SECONDS,
    KEEP_ALIVE_SECONDS,
)
from tests.downstream.test_wire import plain
from tests.downstream.visitor import ASK, LAST_ASK, Visitor, read_answers, serving, until, visiting
from tests.hurried import HurriedLoop, hurried

EVER = 100 * KEEP_ALIVE_SECONDS
SLOW = b"PUT /slow HTTP/1.1\r\nhost: tortoise.test\r\nx-long: " + b"a" * 4000


async def feed(visitor: Visitor, loop: HurriedLoop, data: bytes, *, pause: float) -> bool:
    """Sends a byte at a time, as far as the server wants; returns whether it was all."""
    for letter in data:
        try:
            await visitor.send(bytes([letter]))
        except ConnectionError:
            return False
        await asyncio.sleep(0.002)
        await loop.pass_time(pause)
        if visitor.reader.at_eof():
            return False
    return True


@pytest.mark.parametrize("pause", [0.5, 3.0], ids=["quick", "slow"])
@pytest.mark.parametrize("before", [b"", ASK], ids=["first", "kept"])
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(pause: float, before: bytes) -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=EVER) as visitor:
            if before:
                await visitor.send(before)
                await visitor.answer()
            began = loop.time()
            assert not await feed(visitor, loop, SLOW, pause=pause)
            assert loop.time() - began < HEAD_SECONDS + AGAIN_SECONDS + 3 * pause + 1.0
            assert await visitor.rest() == b""
            await until(lambda: not served.protocols.connections)
            assert len(served.arrivals) == int(bool(before))

    hurried(scene)


def test_a_head_in_time_is_answered_and_starts_no_clock_for_the_next() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=EVER) as visitor:
            for _ in range(3):
                await visitor.send(ASK[:7])
                await asyncio.sleep(0.01)
                await loop.pass_time(HEAD_SECONDS - 1.0)
                await visitor.send(ASK[7:])
                assert (await visitor.answer()).status == 200
                await loop.pass_time(2 * HEAD_SECONDS)
            assert len(served.arrivals) == 3

    hurried(scene)


def test_empty_lines_after_a_request_are_no_head() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=EVER) as visitor:
            await visitor.send(ASK + b"\r\n")
            await visitor.answer()
            await visitor.send(b"\r\n")
            await asyncio.sleep(0.01)
            await loop.pass_time(3 * HEAD_SECONDS)
            assert [connection.idle for connection in served.protocols.connections] == [True]
            await visitor.send(LAST_ASK)
            assert (await visitor.answer()).status == 200

    hurried(scene)


def test_a_half_head_behind_a_long_answer_ends_nothing_before_that_and_has_its_own_time_after() -> None:
    async def scene(loop: HurriedLoop) -> None:
        go_on = asyncio.Event()

        async def late(arrival: Arrival) -> bool:
            await go_on.wait()
            return await plain(arrival)

        async with serving(late) as served, visiting(served.port, patience=EVER) as visitor:
            await visitor.send(ASK + b"GET /next HT")
            await until(lambda: len(served.arrivals) == 1)
            await loop.pass_time(KEEP_ALIVE_SECONDS * 1.5)
            go_on.set()
            assert (await visitor.answer()).status == 200
            await loop.pass_time(HEAD_SECONDS / 2)
            await visitor.send(b"TP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert [answer.status for answer in read_answers(await visitor.rest())] == [200]
            assert served.targets == ["/", "/next"]

    hurried(scene)


def test_an_answer_that_takes_longer_than_every_limit_comes_whole() -> None:
    async def scene(loop: HurriedLoop) -> None:
        go_on = asyncio.Event()

        async def late(arrival: Arrival) -> bool:
            await go_on.wait()
            return await plain(arrival)

        async with serving(late) as served, visiting(served.port, patience=EVER) as visitor:
            await visitor.send(ASK)
            await until(lambda: len(served.arrivals) == 1)
            await loop.pass_time(3 * KEEP_ALIVE_SECONDS)
            go_on.set()
            assert (await visitor.answer()).status == 200
            await loop.pass_time(KEEP_ALIVE_SECONDS / 2)
            await visitor.send(LAST_ASK)
            assert (await visitor.answer()).status == 200

    hurried(scene)


@pytest.mark.parametrize("closing", [b"", b"connection: close\r\n"], ids=["kept", "last"])
def test_a_late_answer_may_be_taken_as_slowly_as_an_early_one(closing: bytes) -> None:
    much = 1 << 24

    async def scene(loop: HurriedLoop) -> None:
        go_on = asyncio.Event()

        async def late(arrival: Arrival) -> bool:
            await go_on.wait()
            assert arrival.transport is not None
            arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % much + bytes(much))
            return not closing

        async with serving(late) as served, visiting(served.port, patience=EVER) as visitor:
            await visitor.send(ASK[:-2] + closing + b"\r\n")
            await until(lambda: len(served.arrivals) == 1)
            await loop.pass_time(2 * KEEP_ALIVE_SECONDS)
            go_on.set()
            await visitor.until(b"\r\n\r\n")
            await loop.pass_time(KEEP_ALIVE_SECONDS / 2)
            assert await visitor.reader.readexactly(much) == bytes(much)

    hurried(scene)


def test_a_silent_connection_is_bidden_farewell_by_half_and_then_ended() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=EVER) as visitor:
            await until(lambda: len(served.protocols.connections) == 1)
            await loop.pass_time(KEEP_ALIVE_SECONDS - 2.0)
            assert not visitor.reader.at_eof()
            await loop.pass_time(3.0)
            assert await visitor.rest() == b""
            # It may still write: a reset would tell its next request from a connection that has merely ended.
            await visitor.send(ASK)
            await asyncio.sleep(0.01)
            assert served.arrivals == []
            await loop.pass_time(FAREWELL_SECONDS + 1.0)
            await until(lambda: not served.protocols.connections)

    hurried(scene)


@pytest.mark.parametrize("bytes_sent", [LAST_ASK, LAST_ASK[:9]], ids=["whole", "begun"])
def test_a_request_that_stands_unread_when_the_time_is_up_is_answered(bytes_sent: bytes) -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=EVER) as visitor:
            await until(lambda: len(served.protocols.connections) == 1)
            (connection,) = served.protocols.connections
            await loop.pass_time(KEEP_ALIVE_SECONDS - 5.0)
            # The event loop is kept from reading, as by a long step of something else, until its timers are due.
            connection.pause_reading()
            await visitor.send(bytes_sent)
            await until(lambda: connection.unread)
            loop.ahead += 6.0
            await asyncio.sleep(0)
            connection.resume_reading()
            await visitor.send(LAST_ASK[len(bytes_sent) :])
            assert [answer.status for answer in read_answers(await visitor.rest())] == [200]
            assert served.targets == ["/last"]

    hurried(scene)


def test_bytes_that_are_never_read_do_not_keep_a_connection() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=EVER) as visitor:
            await until(lambda: len(served.protocols.connections) == 1)
            (connection,) = served.protocols.connections
            connection.pause_reading()
            await visitor.send(ASK)
            await loop.pass_time(KEEP_ALIVE_SECONDS + 2 * AGAIN_SECONDS + FAREWELL_SECONDS + 2.0)
            await until(lambda: not served.protocols.connections)

    hurried(scene)


def test_a_shutdown_answers_what_stands_unread_in_an_idle_connection() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port) as visitor, visiting(served.port) as other:
            await until(lambda: len(served.protocols.connections) == 2)
            first, second = served.protocols.connections
            first.pause_reading()
            await visitor.send(LAST_ASK)
            await until(lambda: first.unread)
            assert not second.unread
            served.protocols.close_idle()
            assert await other.rest() == b""
            first.resume_reading()
            assert [answer.status for answer in read_answers(await visitor.rest())] == [200]

    hurried(scene)


def test_who_takes_no_answers_and_asks_on_is_ended_after_the_keep_alive_time_with_little_kept() -> None:
    much = bytes(1 << 18)

    async def answering(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(much) + much)
        return True

    async def scene(loop: HurriedLoop) -> None:
        async with serving(answering) as served, visiting(served.port, patience=EVER) as visitor:
            visitor.writer.transport.pause_reading()  # type: ignore[attr-defined]
            visitor.writer.write(ASK * 5000)
            await until(lambda: any(connection.paused for connection in served.protocols.connections))
            await asyncio.sleep(0.05)
            (connection,) = served.protocols.connections
            asked = len(served.arrivals)
            assert connection.transport is not None
            assert connection.transport.get_write_buffer_size() < 4 * len(much)
            await loop.pass_time(KEEP_ALIVE_SECONDS + 3.0)
            await until(lambda: not served.protocols.connections)
            assert len(served.arrivals) == asked < 100

    hurried(scene)


@pytest.mark.parametrize("by", ["reset", "close"])
@pytest.mark.parametrize("crowd", ["a body", "requests"])
def test_who_leaves_while_nothing_is_read_is_seen_within_a_moment(by: str, crowd: str) -> None:
    async def scene(loop: HurriedLoop) -> None:
        async def hanging(arrival: Arrival) -> bool:
            await asyncio.Event().wait()
            return True

        async with serving(hanging) as served, visiting(served.port, patience=EVER) as visitor:
            head = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n"
            # As much as the system takes in: behind a full buffer it does not hear of a close.
            await visitor.send(head + bytes(200_000) if crowd == "a body" else ASK * 8000)
            await until(lambda: len(served.arrivals) == 1)
            (connection,) = served.protocols.connections
            if crowd == "requests":
                await until(lambda: connection.unread)
            await loop.pass_time(5.0)
            assert served.cancelled == 0
            if by == "reset":
                visitor.reset()
            else:
                visitor.leave()
            await loop.pass_time(AGAIN_SECONDS + 1.0)
            await until(lambda: served.cancelled == 1)
            await until(lambda: not served.protocols.connections)

    hurried(scene)
