"""Whether another answer may follow one on its connection, over real bytes."""

from __future__ import annotations

import pytest

from proxy.body import BodyBroken
from proxy.upstream.answer import MalformedAnswer
from tests.upstream.peer import OK, answering, ask, dialled

BODY = b"content-length: 2\r\n\r\nok"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "lasts"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\n", True),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nconnection: x, Close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n", True),
        (b"HTTP/1.0 200 OK\r\nconnection: close, keep-alive\r\n", False),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\nconnection: CLOSE\r\n", False),
    ],
)
async def test_close_wins_over_everything_else_that_a_head_says(head: bytes, lasts: bool) -> None:
    async with dialled(answering(head + BODY)) as connection:
        assert await ask(connection) == (200, b"ok")
        assert connection.usable is lasts


async def test_a_coding_in_version_1_0_is_believed_and_its_connection_is_not() -> None:
    answer = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n" + CHUNKED + b"2\r\nok\r\n0\r\n\r\n"
    async with dialled(answering(answer)) as connection:
        assert await ask(connection) == (200, b"ok")
        assert not connection.usable


@pytest.mark.parametrize("version", [b"0.9", b"2.0"])
@pytest.mark.parametrize("word", [b"", b"connection: keep-alive\r\n", b"connection: close\r\n"])
async def test_another_version_is_no_answer(version: bytes, word: bytes) -> None:
    async with dialled(answering(b"HTTP/" + version + b" 200 OK\r\n" + word + BODY)) as connection:
        with pytest.raises(MalformedAnswer):
            await ask(connection)
        assert not connection.usable


@pytest.mark.parametrize(
    "body",
    [
        b"2\nok\r\n0\r\n\r\n",
        b"2;a\nok\r\n0\r\n\r\n",
        b"2\r\nok\n0\r\n\r\n",
        b"2\r\nok\r\n0\n\r\n",
        b"2\r\nok\r\n0\r\nx: y\n\r\n",
    ],
)
async def test_a_bare_lf_ends_nothing_in_a_body_in_chunks(body: bytes) -> None:
    async with dialled(answering(b"HTTP/1.1 200 OK\r\n" + CHUNKED + body)) as connection:
        with pytest.raises(BodyBroken):
            await ask(connection)
        assert not connection.usable


async def test_a_head_after_a_body_in_chunks_may_be_careless_again() -> None:
    careless = b"HTTP/1.1 200 OK\nx: y\ncontent-length: 2\n\nok"
    chunks = b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"2\r\nok\r\n0\r\n\r\n"
    async with dialled(answering(careless, chunks, careless, chunks, OK)) as connection:
        for _ in range(5):
            assert await ask(connection) == (200, b"ok")
            assert connection.usable


@pytest.mark.parametrize("coding", [b"\x0bchunked", b"chunked\x1f", b"chunked\t", b"x", b"chunked, x"])
async def test_a_coding_that_is_not_plainly_chunks_is_no_answer(coding: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: " + coding + b"\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with dialled(answering(answer)) as connection:
        with pytest.raises(MalformedAnswer):
            await ask(connection)
        assert not connection.usable
