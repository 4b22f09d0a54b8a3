"""Requests of a connection, and what becomes of bytes that are none (`recipes.md` §2)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from proxy.body import BodyBroken
from proxy.downstream.arrival import LINGER_SECONDS, Arrival
from proxy.fields import MAX_HEAD
from tests.downstream.visitor import ASK, LAST_ASK, read_answer, read_answers, serving, talk, until, visiting

SECRET = "sk-live-0123456789abcdef"


def answer_to(arrival: Arrival, body: bytes = b"") -> bool:
    """Writes a small answer that names what was asked."""
    closing = arrival.should_close
    text = arrival.target.encode("utf-8", "surrogateescape") + body
    assert arrival.transport is not None
    arrival.transport.write(
        b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n" % (b"connection: close\r\n" * closing, len(text)) + text
    )
    return not closing


async def plain(arrival: Arrival) -> bool:
    return answer_to(arrival)


async def echo(arrival: Arrival) -> bool:
    pieces = []
    while piece := await arrival.payload.readany():
        pieces.append(piece)
    return answer_to(arrival, b" " + b"".join(pieces))


@pytest.mark.parametrize(
    "target",
    ["/v1/models/org%2Fname", "//a/../b", "/p%zz", "/%41?k=a%2Bb&empty=&d=1&d=2", "/a#part", "http://u.test:9/x", "*"],
)
async def test_the_target_is_what_was_written(target: str) -> None:
    async with serving(plain) as served:
        await talk(served.port, b"OPTIONS %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % target.encode())
        assert served.targets == [target]


async def test_header_bytes_stay_as_they_came() -> None:
    lines = (
        b"HOST: x",
        b"X-Tag: a",
        b"x-tag: b",
        b"x-title: caf\xe9 \xe4\xb8\xad",
        b"x-ows: \t v \t",
        b"Connection: close",
    )
    async with serving(plain) as served:
        await talk(served.port, b"GET / HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n")
        assert tuple(served.arrivals[0].fields.raw) == (
            (b"HOST", b"x"),
            (b"X-Tag", b"a"),
            (b"x-tag", b"b"),
            (b"x-title", b"caf\xe9 \xe4\xb8\xad"),
            (b"x-ows", b"v \t"),
            (b"Connection", b"close"),
        )


async def test_large_heads_are_read() -> None:
    lines = b"".join(b"x-%d: %b\r\n" % (index, b"v" * 200) for index in range(150)) + b"x-big: " + b"z" * 60000
    async with serving(plain) as served:
        data = await talk(served.port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + lines + b"\r\n\r\n")
        assert read_answer(data)[0].status == 200


BODIES = {
    "length": b"content-length: 5\r\n\r\nhello",
    "chunked": b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nx-sum: 1\r\n\r\n",
    "packed": b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello",
    "expecting": b"expect: 100-continue\r\ncontent-length: 5\r\n\r\nhello",
}


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("name", BODIES)
async def test_a_body_is_read_untouched_and_the_connection_serves_the_next_request(name: str, bytewise: bool) -> None:
    data = b"POST /p HTTP/1.1\r\nhost: x\r\n" + BODIES[name] + LAST_ASK
    async with serving(echo) as served, visiting(served.port) as visitor:
        for piece in [data[i : i + 1] for i in range(len(data))] if bytewise else [data]:
            await visitor.send(piece)
        first, second = read_answers(await visitor.rest())
        assert (first.body, second.body) == (b"/p hello", b"/last ")


async def test_a_body_has_no_limit_of_the_library_s_own() -> None:
    size = 5 << 20
    async with serving(echo) as served, visiting(served.port) as visitor:
        await visitor.send(b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + bytes(size))
        assert len((await visitor.answer()).body) == size + 3


async def test_requests_that_come_together_are_answered_in_order() -> None:
    async with serving(echo) as served:
        asks = b"".join(b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx" % number for number in range(3))
        answers = read_answers(await talk(served.port, asks + LAST_ASK))
        assert [answer.body for answer in answers] == [b"/0 x", b"/1 x", b"/2 x", b"/last "]


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", True),
    ],
)
async def test_who_wants_the_connection_to_stay_is_understood(head: bytes, kept: bool) -> None:
    async with serving(plain) as served, visiting(served.port) as visitor:
        await visitor.send(head)
        await visitor.answer()
        assert served.arrivals[0].should_close is not kept
        if kept:
            await visitor.send(LAST_ASK)
        rest = await visitor.rest()
        assert bool(rest) is kept


MALFORMED_HEADS = {
    "secret with a space before the colon": b"GET / HTTP/1.1\r\nhost: x\r\nAuthorization : Bearer " + SECRET.encode(),
    "secret after a bare CR": b"GET / HTTP/1.1\r\nhost: x\r\nx: a\rAuthorization: " + SECRET.encode(),
    "secret in a folded line": b"GET / HTTP/1.1\r\nhost: x\r\nx-api-key:\r\n " + SECRET.encode(),
    "secret in a value with NUL": b"GET / HTTP/1.1\r\nhost: x\r\nx-api-key: \x00" + SECRET.encode(),
    "secret in a method": b"GE" + SECRET.encode() + b" / HTTP/1.1\r\nhost: x",
    "secret in a target": b"GET /\xff?key=" + SECRET.encode() + b" HTTP/1.1\r\nhost: x",
    "secret in a version": b"GET / HTTP/" + SECRET.encode() + b"\r\nhost: x",
    "secret in a length": b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: " + SECRET.encode(),
    "too large a field": b"GET / HTTP/1.1\r\nhost: x\r\nauthorization: " + SECRET.encode() * 4000,
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM",
}


@pytest.mark.parametrize("name", MALFORMED_HEADS)
async def test_what_is_no_request_arrives_as_such_and_nothing_of_it_is_logged_or_shown(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(plain) as served:
        data = await talk(served.port, MALFORMED_HEADS[name] + b"\r\n\r\n" + ASK)
        (arrival,) = served.arrivals
        assert (arrival.malformed, arrival.should_close, arrival.version) == (True, True, (1, 1))
        assert (len(arrival.fields), arrival.payload.is_eof()) == (0, True)
        assert read_answer(data)[1] == b""
        assert SECRET not in caplog.text + data.decode("latin-1") + repr(arrival)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (b"POST /v1/messages?key=1 HTTP/1.1", "/v1/messages"),
        (b"POST /a%2F/../\xff HTTP/1.1", "/a%2F/../\xff"),
        (b"POST http://u/v1/messages HTTP/1.1", "/"),
        (b"POST /v1/messages", "/"),
        (b"x-api-key: /secret", "/"),
        (b"", "/"),
    ],
)
async def test_of_what_is_no_request_only_the_path_of_its_first_line_is_told(line: bytes, path: str) -> None:
    async with serving(plain) as served:
        await talk(served.port, line + b"\r\nbad header: x\r\n\r\n")
        assert [(arrival.malformed, arrival.target) for arrival in served.arrivals] == [(True, path)]


async def test_bytes_that_are_no_request_after_a_good_one_do_not_disturb_its_answer() -> None:
    go_on = asyncio.Event()

    async def slow(arrival: Arrival) -> bool:
        await go_on.wait()
        return answer_to(arrival)

    async with serving(slow) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await until(lambda: len(served.arrivals) == 1)
        await visitor.send(MALFORMED_HEADS["secret in a length"] + b"\r\n\r\n" + ASK)
        await until(lambda: bool(next(iter(served.protocols.connections)).waiting))
        go_on.set()
        good, bad = read_answers(await visitor.rest())
        assert (good.get("connection"), bad.get("connection")) == (None, b"close")
        assert [arrival.malformed for arrival in served.arrivals] == [False, True]


BAD_CHUNKS = [SECRET.encode(), b"5\r\nhelloo" + SECRET.encode(), b"0x5\r\nhello"]
PART = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n"


@pytest.mark.parametrize("chunk", BAD_CHUNKS)
async def test_a_malformed_chunk_wakes_who_reads_the_body(chunk: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    result = asyncio.get_running_loop().create_future()

    async def careful(arrival: Arrival) -> bool:
        try:
            await echo(arrival)
        except BodyBroken as error:
            result.set_result(str(error))
        return answer_to(arrival) and False

    async with serving(careful) as served, visiting(served.port) as visitor:
        await visitor.send(PART)
        await until(lambda: len(served.arrivals) == 1)
        await visitor.send(chunk + b"\r\n\r\n" + ASK)
        assert SECRET not in await result
        assert len(read_answers(await visitor.rest())) == 1
        assert served.targets == ["/p"]
        assert SECRET not in caplog.text


async def test_a_malformed_chunk_after_an_early_answer_is_not_logged_and_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(plain) as served, visiting(served.port) as visitor:
        await visitor.send(PART)
        await visitor.until(b"/p")
        await visitor.send(SECRET.encode() + b"\r\n\r\n" + ASK)
        rest = await visitor.rest()
        assert served.targets == ["/p"]
        assert SECRET not in caplog.text + rest.decode()


@pytest.mark.parametrize("before", [0, 2])
async def test_a_malformed_chunk_of_a_request_that_waits_its_turn_wakes_who_reads_it_then(before: int) -> None:
    go_on = asyncio.Event()
    said: list[str] = []

    async def handle(arrival: Arrival) -> bool:
        if arrival.target == "/":
            await go_on.wait()
            return answer_to(arrival)
        try:
            await echo(arrival)
        except BodyBroken as error:
            said.append(str(error))
        return answer_to(arrival) and False

    async with serving(handle) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await until(lambda: len(served.arrivals) == 1)
        await visitor.send(ASK * before + PART)
        await until(lambda: len(next(iter(served.protocols.connections)).waiting) == before + 1)
        await visitor.send(BAD_CHUNKS[0] + b"\r\n\r\n" + ASK)
        await until(lambda: next(iter(served.protocols.connections)).waiting[-1].malformed)
        go_on.set()
        async with asyncio.timeout(0.9 * LINGER_SECONDS):
            answers = read_answers(await visitor.rest())
        assert [answer.status for answer in answers] == [200] * (before + 2)
        assert served.targets == ["/"] * (before + 1) + ["/p"]
        assert len(said) == 1
        assert SECRET not in said[0]


async def test_the_end_of_a_body_does_not_count_as_the_next_head_s_bytes() -> None:
    half = b"GET /next HTTP/1.1\r\nhost: x\r\nx-long: " + b"v" * 4096
    async with serving(echo) as served, visiting(served.port) as visitor:
        await visitor.send(ASK)
        await visitor.answer()
        (connection,) = served.protocols.connections
        connection.data_received(b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % MAX_HEAD)
        connection.data_received(bytes(MAX_HEAD))
        connection.data_received(half)
        connection.data_received(b"\r\nconnection: close\r\n\r\n")
        await visitor.rest()
        assert [arrival.malformed for arrival in served.arrivals] == [False] * 3
