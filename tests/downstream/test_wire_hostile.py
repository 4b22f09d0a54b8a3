"""Clients that send what nobody should: endless framing, bodies that nobody reads, offers by the hundred."""

from __future__ import annotations

import asyncio

import pytest

from proxy.body import BodyBroken
from proxy.downstream.arrival import Arrival
from proxy.downstream.lasting import FAREWELL_SECONDS, KEEP_ALIVE_SECONDS
from proxy.downstream.wire import MOST_WAITING
from proxy.fields import MAX_FIELD, MAX_FIELDS, MAX_HEAD
from tests.downstream.test_wire import answer_to, echo, plain
from tests.downstream.visitor import ASK, LAST_ASK, Visitor, read_answer, read_answers, serving, talk, until, visiting
from tests.hurried import HurriedLoop, hurried

MUCH = 1 << 25
PIECE = b"z" * 65536
OFFER = b"%b /%d HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"".join(b"x-%d: y\r\n" % index for index in range(MAX_FIELDS)),
        b"".join(b"x-%d-%b: y\r\n" % (index, b"n" * 600) for index in range(200)),
        b"n" * (MAX_FIELD + 1) + b": y\r\n",
    ],
    ids=["too many", "long names", "a name too long"],
)
async def test_a_head_beyond_all_measure_is_refused_at_once(lines: bytes) -> None:
    async with serving(plain) as served:
        answer, rest = read_answer(await talk(served.port, b"GET / HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n" + ASK))
        assert (answer.get("connection"), rest) == (b"close", b"")
        assert [(arrival.malformed, arrival.excess) for arrival in served.arrivals] == [(True, 431)]


@pytest.mark.parametrize("end", [b" HTTP/1.1\r\nhost: x\r\n\r\n", PIECE * 4])
async def test_a_target_beyond_all_measure_is_refused_as_such(end: bytes) -> None:
    async with serving(plain) as served:
        await talk(served.port, b"GET /" + PIECE + end)
        assert [(arrival.malformed, arrival.excess) for arrival in served.arrivals] == [(True, 414)]


@pytest.mark.parametrize("how", ["malformed", "refused"])
async def test_who_is_answered_while_it_sends_can_go_on_and_read_its_answer(how: str) -> None:
    """A close before all was read would be a reset, which takes the answer with it."""

    async def refusing(arrival: Arrival) -> bool:
        return answer_to(arrival) and False

    begin = b"GET / HTTP/1.1\r\nno colon\r\n\r\n" if how == "malformed" else ASK
    async with serving(refusing) as served, visiting(served.port) as visitor:
        await visitor.send(begin)
        await until(lambda: len(served.arrivals) == 1)
        for _ in range(32):
            await visitor.send(PIECE)
            await asyncio.sleep(0)
        answer, rest = read_answer(await visitor.rest())
        assert (answer.whole, rest) == (True, b"")
        visitor.leave()
        await until(lambda: not served.protocols.connections)
        assert len(served.arrivals) == 1


def test_who_never_stops_to_send_is_ended_after_a_while() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain) as served, visiting(served.port, patience=10 * FAREWELL_SECONDS) as visitor:
            await visitor.send(b"nothing\r\n\r\n")
            assert await visitor.rest()
            await visitor.send(PIECE)
            assert len(served.protocols.connections) == 1
            await loop.pass_time(FAREWELL_SECONDS + 1)
            await until(lambda: not served.protocols.connections)

    hurried(scene)


async def test_a_head_as_large_as_it_may_be_is_read() -> None:
    lines = b"".join(b"x-%d: %b\r\n" % (index, b"v" * 900) for index in range(MAX_FIELDS - 2))
    async with serving(plain) as served:
        await talk(served.port, b"GET / HTTP/1.1\r\nhost: x\r\n" + lines + b"connection: close\r\n\r\n")
        assert [(arrival.malformed, len(arrival.fields)) for arrival in served.arrivals] == [(False, MAX_FIELDS)]


ENDLESS = {
    "a target": (b"GET /", PIECE),
    "a method": (b"", b"G" * 65536),
    "a name": (b"GET / HTTP/1.1\r\nhost: x\r\n", PIECE),
    "a value": (b"GET / HTTP/1.1\r\nhost: x\r\nx: ", PIECE),
    "fields": (b"GET / HTTP/1.1\r\nhost: x\r\n", b"x: y\r\n" * 8192),
    "empty lines": (b"", b"\r\n" * 32768),
    "a trailer's value": (POST + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\nx: ", PIECE),
    "a trailer's name": (POST + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n", PIECE),
    "trailers": (POST + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n", b"x: y\r\n" * 8192),
    "a chunk's extension": (POST + b"transfer-encoding: chunked\r\n\r\n2;a=", PIECE),
    "a chunk's size": (POST + b"transfer-encoding: chunked\r\n\r\n", b"0" * 65536),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_what_never_ends_is_refused_and_not_kept(name: str) -> None:
    begin, more = ENDLESS[name]
    sent = 0

    async def reading(arrival: Arrival) -> bool:
        try:
            return await echo(arrival)
        except BodyBroken:
            return answer_to(arrival) and False

    async def send_on(visitor: Visitor) -> None:
        nonlocal sent
        await visitor.send(begin)
        while sent < MUCH:
            await visitor.send(more)
            sent += len(more)
            await asyncio.sleep(0)

    async with serving(reading) as served, visiting(served.port) as visitor:
        sending = asyncio.ensure_future(send_on(visitor))
        answers = read_answers(await visitor.rest())
        assert not sending.done()
        sending.cancel()
        visitor.leave()
        await until(lambda: not served.protocols.connections)
        assert [answer.status for answer in answers] == [200] * len(served.arrivals)
        assert len(served.arrivals) == 1
        assert sent < MUCH


async def test_the_framing_of_one_body_does_not_count_for_the_next() -> None:
    head = POST + b"transfer-encoding: chunked\r\n\r\n"
    body = [b"0;" + b"e" * 400, b"\r\n", b"\r\n"]
    count = 2 * MAX_HEAD // 400
    async with serving(plain) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await visitor.answer()
        (connection,) = served.protocols.connections
        for _ in range(count):
            for event in (head, *body):
                connection.data_received(event)
            await asyncio.sleep(0)
        await until(lambda: len(served.arrivals) == count + 1)
        assert not any(arrival.malformed for arrival in served.arrivals)


async def test_a_body_in_tiny_chunks_may_be_of_any_size() -> None:
    chunks = b"1;e\r\nz\r\n" * MAX_HEAD
    async with serving(echo) as served:
        data = await talk(served.port, POST + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n" + LAST_ASK)
        assert [len(answer.body) for answer in read_answers(data)] == [MAX_HEAD + 3, len(b"/last ")]


@pytest.mark.parametrize("body", [b"\r\n", b"content-length: 4\r\n\r\nbody"], ids=["bare", "body"])
async def test_offers_to_upgrade_by_the_hundred_are_declined_one_by_one(body: bytes) -> None:
    offers = b"".join(OFFER % (b"POST", number) + body for number in range(1500))
    async with serving(echo) as served:
        answers = read_answers(await talk(served.port, offers + LAST_ASK))
        assert served.targets == [f"/{number}" for number in range(1500)] + ["/last"]
        assert {answer.body.partition(b" ")[2] for answer in answers[:-1]} == {body[-4:].strip()}


async def test_what_follows_offers_may_be_no_request() -> None:
    async with serving(echo) as served:
        await talk(served.port, b"".join(OFFER % (b"GET", number) + b"\r\n" for number in range(9)) + b"G\x00" + ASK)
        assert [arrival.malformed for arrival in served.arrivals] == [False] * 9 + [True]


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_after_a_large_body_that_nobody_read_the_next_request_is_served(framing: str) -> None:
    head, size, go_on = POST, 300_000, asyncio.Event()

    async def early(arrival: Arrival) -> bool:
        await go_on.wait()
        return answer_to(arrival)

    chunked = framing == "chunked"
    head += b"transfer-encoding: chunked\r\n\r\n" if chunked else b"content-length: %d\r\n\r\n" % size
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (size, bytes(size)) if chunked else bytes(size)
    async with serving(early) as served, visiting(served.port) as visitor:
        for _ in range(2):
            go_on.clear()
            before = len(served.arrivals)
            await visitor.send(head)
            await until(lambda: len(served.arrivals) > before)  # noqa: B023
            next(iter(served.protocols.connections)).data_received(body)
            assert served.arrivals[-1].payload.is_eof()
            go_on.set()
            assert (await visitor.answer()).body == b"/p"
        await visitor.send(LAST_ASK)
        assert (await visitor.answer()).body == b"/last"


async def test_thousands_of_requests_at_once_are_answered_in_order_and_most_of_them_wait_outside() -> None:
    count, most = 6000, 0

    async def counting(arrival: Arrival) -> bool:
        nonlocal most
        most = max(most, len(next(iter(served.protocols.connections)).waiting))
        return await echo(arrival)

    async with serving(counting) as served, visiting(served.port) as visitor:
        asks = b"".join(
            b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n" % i + b"b" * 99 for i in range(count)
        )
        sending = asyncio.ensure_future(visitor.send(asks + LAST_ASK))
        answers = read_answers(await visitor.rest())
        await sending
        assert [answer.body for answer in answers[:-1]] == [b"/%d " % i + b"b" * 99 for i in range(count)]
        assert MOST_WAITING <= most < count // 2


async def test_large_heads_wait_outside_and_are_answered_in_order() -> None:
    go_on, lines = asyncio.Event(), b"".join(b"x-%d: %b\r\n" % (number, b"v" * 60_000) for number in range(3))

    async def held(arrival: Arrival) -> bool:
        await go_on.wait()
        return await echo(arrival)

    async with serving(held) as served, visiting(served.port) as visitor:
        await visitor.send(b"GET /first HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: bool(served.arrivals))
        (connection,) = served.protocols.connections
        asks = b"".join(b"GET /%d HTTP/1.1\r\nhost: x\r\n%b\r\n" % (number, lines) for number in range(40))
        sending = asyncio.ensure_future(visitor.send(asks + LAST_ASK))
        await until(lambda: bool(connection._pauses))
        assert len(connection.waiting) <= 2
        go_on.set()
        answers = read_answers(await visitor.rest())
        await sending
        targets = [b"/first", *(b"/%d" % number for number in range(40)), b"/last"]
        assert [answer.body for answer in answers] == [target + b" " for target in targets]


async def test_large_heads_behind_small_ones_wait_outside_too() -> None:
    turns, most = asyncio.Semaphore(0), 0
    lines = b"".join(b"x-%d: %b\r\n" % (number, b"v" * 60_000) for number in range(4))

    async def held(arrival: Arrival) -> bool:
        nonlocal most
        await turns.acquire()
        await asyncio.sleep(0.005)
        waiting = next(iter(served.protocols.connections)).waiting
        most = max(most, sum(len(one.fields.lines) > 4 for one in waiting))
        return await echo(arrival)

    async with serving(held) as served, visiting(served.port) as visitor:
        await visitor.send(b"GET /first HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: bool(served.arrivals))
        small = b"".join(b"GET /s%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(20))
        large = b"".join(b"GET /l%d HTTP/1.1\r\nhost: x\r\n%b\r\n" % (number, lines) for number in range(10))
        sending = asyncio.ensure_future(visitor.send(small + large + LAST_ASK))
        for _ in range(32):
            turns.release()
        answers = read_answers(await visitor.rest())
        await sending
        assert len(answers) == 32
        assert most in (1, 2)


def test_a_client_that_takes_no_answer_and_has_asked_for_more_is_not_kept_for_ever() -> None:
    async def last(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % MUCH)
        arrival.transport.write(bytes(MUCH))
        return False

    async def scene(loop: HurriedLoop) -> None:
        async with serving(last) as served, visiting(served.port, patience=10 * KEEP_ALIVE_SECONDS) as visitor:
            await visitor.send(ASK * 3)
            await until(lambda: len(served.arrivals) == 1)
            await loop.pass_time(KEEP_ALIVE_SECONDS + 2)
            await until(lambda: not served.protocols.connections)

    hurried(scene)
