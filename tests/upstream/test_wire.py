"""The contract with aiohttp, upstream: answers and what becomes of their connection (`recipes.md` §1)."""

from __future__ import annotations

import gzip
import inspect
from typing import Any

import aiohttp
import pytest
from aiohttp import TCPConnector
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection

from proxy.body import BodyBroken
from proxy.upstream.answer import MalformedAnswer
from tests.upstream.peer import ASK, OK, PeerWire, answering, ask, dialled, until

RELIED_ON: list[tuple[Any, str]] = [
    (Connection, "protocol"),
    (Connection, "close"),
    (TCPConnector, "connect"),
]


@pytest.mark.parametrize(("owner", "name"), RELIED_ON, ids=lambda part: getattr(part, "__name__", part))
def test_what_is_relied_on_is_there(owner: Any, name: str) -> None:
    assert hasattr(owner, name), f"aiohttp {aiohttp.__version__}: {owner}.{name} is gone; see upstream/wire.py"


def test_the_shapes_that_are_relied_on() -> None:
    said = f"aiohttp {aiohttp.__version__} changed; see upstream/wire.py"
    assert list(inspect.signature(TCPConnector.connect).parameters) == ["self", "req", "traces", "timeout"], said
    assert len(ConnectionKey._fields) == 8, said


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", 200, b"hello"),
    "length 0": (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, b""),
    "205": (b"HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n", 205, b""),
    "chunked": (CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", 200, b"hello"),
    "chunked, extension": (CHUNKED + b"5;a=b\r\nhello\r\n0\r\n\r\n", 200, b"hello"),
    "chunked, trailer": (CHUNKED + b"5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n", 200, b"hello"),
    "204": (b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", 204, b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\n\r\n", 304, b""),
    "100, 103": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK,
        200,
        b"ok",
    ),
}


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_read_to_its_end_and_the_connection_serves_another(name: str, bytewise: bool) -> None:
    answer, status, body = ANSWERS[name]

    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await (wire.send_bytewise if bytewise else wire.send)(answer)

    async with dialled(script) as connection:
        for _ in range(2):
            assert await ask(connection) == (status, body)
            assert connection.usable
        assert connection.uses == 2


async def test_the_answer_to_head_has_no_body_whatever_its_length_says() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"
    async with dialled(answering(answer, OK)) as connection:
        assert await ask(connection, head=b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", body=False) == (200, b"")
        assert connection.usable
        assert await ask(connection) == (200, b"ok")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello",
    ],
)
async def test_a_body_that_ends_with_its_connection_is_whole_and_the_connection_is_not_kept(answer: bytes) -> None:
    async with dialled(answering(answer, hold=False)) as connection:
        assert await ask(connection) == (200, b"hello")
        assert not connection.usable


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_an_answer_that_announces_the_end_of_its_connection_is_believed(answer: bytes) -> None:
    async with dialled(answering(answer)) as connection:
        assert await ask(connection) == (200, b"ok")
        assert not connection.usable


async def test_interim_answers_come_one_by_one() -> None:
    async with dialled(answering(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK)) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        interim, _ = await connection.head()
        final, _ = await connection.head()
        assert (interim.code, final.code) == (103, 200)


@pytest.mark.parametrize("line", [b"connection: close", b"content-length: 38", b"upgrade: h2c", b"x-note: \x01"])
async def test_an_interim_answer_ends_with_its_head_whatever_that_says(line: bytes) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\n" + line + b"\r\n\r\n"
    async with dialled(answering(interim + interim + OK, OK)) as connection:
        assert await ask(connection) == (200, b"ok")
        assert connection.usable == (b"close" not in line)


@pytest.mark.parametrize("end", [b" \r\n", b"\r\n", b" \n"])
@pytest.mark.parametrize("code", [200, 299, 418, 599, 600, 999])
async def test_any_status_of_three_digits_is_one_and_needs_no_phrase(code: int, end: bytes) -> None:
    answer = b"HTTP/1.1 %d%bcontent-length: 2\r\n\r\nok" % (code, end)
    async with dialled(answering(answer)) as connection:
        assert await ask(connection) == (code, b"ok")
        assert connection.usable


async def test_header_bytes_stay_as_they_came() -> None:
    lines = (
        b"X-Tag: a",
        b"x-TAG: b",
        b"Set-Cookie: a=1",
        b"Set-Cookie: b=2",
        b"x-title: caf\xe9 \xe4\xb8\xad",
        b"x-ows: \t v \t",
    )
    answer = b"HTTP/1.1 200 Tr\xe8s bien\r\n" + b"\r\n".join(lines) + b"\r\ncontent-length: 0\r\n\r\n"
    async with dialled(answering(answer)) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        message, _ = await connection.head()
        assert tuple(message.headers.raw) == (
            (b"X-Tag", b"a"),
            (b"x-TAG", b"b"),
            (b"Set-Cookie", b"a=1"),
            (b"Set-Cookie", b"b=2"),
            (b"x-title", b"caf\xe9 \xe4\xb8\xad"),
            (b"x-ows", b"v \t"),
            (b"content-length", b"0"),
        )
        assert message.phrase == b"Tr\xe8s bien"


async def test_large_heads_are_read() -> None:
    lines = b"".join(b"x-%d: %b\r\n" % (index, b"v" * 200) for index in range(150)) + b"x-big: " + b"z" * 60000
    async with dialled(answering(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\ncontent-length: 2\r\n\r\nok")) as connection:
        assert await ask(connection) == (200, b"ok")


async def test_coded_bodies_are_not_unpacked() -> None:
    packed = gzip.compress(b"text " * 100)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with dialled(answering(head + packed)) as connection:
        assert await ask(connection) == (200, packed)


MALFORMED = {
    "chunked twice": CHUNKED[:-2] + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two framings": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!",
    "equal lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok",
    "length beyond numbers": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nok",
    "signed length": b"HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nok",
    "space in a name": b"HTTP/1.1 200 OK\r\nx y: z\r\ncontent-length: 2\r\n\r\nok",
    "bare CR": b"HTTP/1.1 200 OK\r\nx: a\rb: c\r\ncontent-length: 2\r\n\r\nok",
    "NUL": b"HTTP/1.1 200 OK\r\nx: a\x00b\r\ncontent-length: 2\r\n\r\nok",
    "status 0": b"HTTP/1.1 000 None\r\ncontent-length: 2\r\n\r\nok",
    "status 99": b"HTTP/1.1 099 Low\r\ncontent-length: 2\r\n\r\nok",
    "two digits": b"HTTP/1.1 20 Short\r\ncontent-length: 2\r\n\r\nok",
    "four digits": b"HTTP/1.1 2000 Long\r\ncontent-length: 2\r\n\r\nok",
    "another version": b"HTTP/1.7 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "a body behind an interim answer": b"HTTP/1.1 103 E\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + OK,
    "no http": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "tls alert": b"\x15\x03\x03\x00\x02\x02\x46\r\n\r\n",
    "coded chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "major version": b"HTTP/2.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
    "chunk size": CHUNKED + b"zz\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_bytes_that_are_no_clear_answer_raise_and_end_the_connection(name: str) -> None:
    async with dialled(answering(MALFORMED[name])) as connection:
        with pytest.raises((MalformedAnswer, BodyBroken)):
            await ask(connection)
        assert not connection.usable


LENIENT = {
    "space before colon": b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nok",
    "folded line": b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 2\r\n\r\nok",
    "control characters": b"HTTP/1.1 200 O\x0bK\r\nx: a\x0bb\r\ncontent-length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("name", LENIENT)
async def test_the_parser_lets_these_through_so_that_the_call_must_judge_them(name: str) -> None:
    async with dialled(answering(LENIENT[name])) as connection:
        assert await ask(connection) == (200, b"ok")


async def test_control_characters_of_a_head_are_spaces_from_here_on() -> None:
    answer = b"HTTP/1.1 200 Not\x0b\x1bquite\r\nx-odd: \x01a\x08\tb\x7f \xe9\x85\r\nx: y\r\ncontent-length: 0\r\n\r\n"
    for bytewise in (False, True):

        async def script(wire: PeerWire, bytewise: bool = bytewise) -> None:
            await wire.request()
            await (wire.send_bytewise if bytewise else wire.send)(answer)
            await wire.gone()

        async with dialled(script) as connection:
            connection.expect(body=True)
            connection.write(ASK, b"")
            message, _ = await connection.head()
            assert message.phrase == b"Not  quite"
            assert message.headers.lines == [b" a \tb  \xe9\x85", b"y", b"0"]


@pytest.mark.parametrize("fold", [b"\r\n ", b"\r\n\t", b"\r\n  \t "])
async def test_a_folded_line_is_one_line_from_here_on(fold: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nx: a" + fold + b"b: c\r\ncontent-length: 0\r\n\r\n"
    async with dialled(answering(answer)) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        message, _ = await connection.head()
        assert [name for name, _ in message.headers.raw] == [b"x", b"content-length"]
        assert message.headers["x"].split() == ["a", "b:", "c"]
        assert b"\n" not in message.headers.lines[0]


@pytest.mark.parametrize("more", [OK, b"garbage\r\n\r\n"])
async def test_what_follows_an_answer_in_its_segment_is_never_taken_for_the_next_one(more: bytes) -> None:
    async with dialled(answering(OK + more)) as connection:
        assert await ask(connection) == (200, b"ok")
        assert not connection.usable


async def test_an_illegal_body_after_head_is_never_taken_for_the_next_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    async with dialled(answering(answer + b"hello")) as connection:
        assert await ask(connection, head=b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n", body=False) == (200, b"")
        await until(lambda: not connection.usable)


@pytest.mark.parametrize("last", ["bytes", "fin", "reset"])
async def test_a_connection_that_says_something_while_idle_is_not_usable(last: str) -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(OK)
        await wire.request()
        if last == "bytes":
            await wire.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        elif last == "reset":
            wire.reset()
        else:
            wire.writer.write_eof()
        await wire.gone()

    async with dialled(script) as connection:
        assert await ask(connection) == (200, b"ok")
        assert connection.usable
        connection.write(ASK, b"")  # tells the script that the connection is idle now
        await until(lambda: not connection.usable)
