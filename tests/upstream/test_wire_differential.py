"""An answer means the same in whichever pieces it comes, and no byte of it can end a line of the caller's head."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.body import BodyBroken
from proxy.fields import RawHeaders, Shapes
from proxy.upstream.answer import MalformedAnswer
from proxy.upstream.headers import AnswerHeaders
from proxy.upstream.wire import UpstreamConnection
from tests.downstream.doubles import FakeTransport
from tests.downstream.test_wire_differential import changed, cut

ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Empty:\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: a b\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nX-T: 1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\nuntil close",
    b"HTTP/1.0 200 Fine thanks\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\n"
    b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
    b"HTTP/1.1 429 Slow\r\nRetry-After: 1\r\nContent-Length: 2\r\nX: 1\r\nX: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length : 2\r\n\r\nok",
]
BITS = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b"\x0b", b"\x7f", b"\xff", b":", b";", b",", b"0", b"5",
    b"-", b"+", b"\r\n ", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"HTTP/1.1 103 Early Hints\r\n\r\n",
]  # fmt: skip
SECOND = b"HTTP/1.1 500 Second\r\nContent-Length: 0\r\n\r\n"

changes = st.tuples(st.integers(0, 1 << 16), st.integers(0, 3), st.one_of(st.sampled_from(BITS), st.just(b"")))
Outcome = tuple[int, bytes, RawHeaders, bytes, str]


async def read(pieces: list[bytes], *, body: bool) -> Outcome:
    """Status, phrase, fields, body and how it ended; status 0 for what is no answer."""
    connection = UpstreamConnection(Shapes())
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    connection.expect(body=body)
    for piece in pieces:
        connection.data_received(piece)
    connection.connection_lost(None)
    text = b""
    try:
        head, payload = await connection.head()
        while head.code < 200 and head.code != 101:
            head, payload = await connection.head()
    except (MalformedAnswer, OSError) as error:
        return 0, b"", (), b"", type(error).__name__
    try:
        while piece := await payload.readany():
            text += piece
    except BodyBroken:
        return head.code, head.phrase, tuple(head.headers.raw), text, "broken"
    return head.code, head.phrase, tuple(head.headers.raw), text, "whole"


@settings(max_examples=300)
@given(
    answer=st.sampled_from(ANSWERS),
    second=st.booleans(),
    edits=st.lists(changes, max_size=3),
    places=st.one_of(st.none(), st.lists(st.integers(0, 1 << 16), max_size=6)),
    body=st.booleans(),
)
@example(answer=ANSWERS[1], second=True, edits=[], places=None, body=True)
def test_it_does_not_matter_in_which_pieces_an_answer_comes(
    answer: bytes, second: bool, edits: list[tuple[int, int, bytes]], places: list[int] | None, body: bool
) -> None:
    data = changed(answer + SECOND * second, edits)
    found = asyncio.run(read(cut(data, places), body=body))
    assert found == asyncio.run(read([data] if data else [], body=body))
    if not edits and body:
        assert found[0] not in (0, 500)
        assert found[4] == "whole"


@settings(max_examples=300)
@given(answer=st.sampled_from(ANSWERS), edits=st.lists(changes, max_size=3))
def test_no_byte_of_an_answer_s_head_ends_a_line_of_ours(answer: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    connection = UpstreamConnection(Shapes())
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    connection.expect(body=True)
    connection.data_received(changed(answer, edits) or b"H")
    for head, _ in connection._heads:
        lines = AnswerHeaders().forward(head.headers)
        assert not set(b"\r\n\0") & set(head.phrase)
        for line in lines.split(b"\r\n")[:-1]:
            name, mark, value = line.partition(b": ")
            assert mark
            assert name.strip() == name != b""
            assert not set(b"\r\n\0") & set(name + value)
