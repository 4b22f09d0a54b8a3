"""What is taken for a request is what another reader takes for it, whatever was done to its bytes.

A disagreement about where a request ends is how requests are smuggled (RFC 9112 §11.2).
"""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.body import BodyBroken
from proxy.downstream.arrival import Arrival
from proxy.downstream.incoming import framing_problem
from proxy.downstream.wire import Connection
from proxy.fields import Shapes
from tests.downstream.doubles import FakeTransport
from tests.downstream.reference import Read, read_requests
from tests.fakes import settle

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
REQUESTS = [
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /b?q=%41 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nX-Empty:\r\n\r\nhello",
    b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'2\r\nhe\r\n3;a="b"\r\nllo\r\n0\r\nX-T: 1\r\n\r\n',
    b"GET /u HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    b"POST /v HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    b"PUT /w HTTP/1.1\r\nHost: x\r\nUpgrade: w\r\nConnection: upgrade\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n1\r\nz\r\n0\r\n\r\n",
    b"POST /e HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nbody",
    b"POST /s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(SMUGGLED), SMUGGLED),
    b"GET /o HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"HEAD /h HTTP/1.1\r\nHost: x\r\nX: a\r\nX: b\r\nx:  c d \t\r\n\r\n",
    b"GET /l HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
]
BITS = [
    b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b"\x0b", b"\x7f", b"\xff", b":", b";", b",", b"0", b"5",
    b"f", b"x", b"-", b"+", b"%", b'"', b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
    b"transfer-encoding: x\r\n", b"Connection: close\r\n", b"Upgrade: x\r\n", b"Host: y\r\n", b"\r\n folded",
]  # fmt: skip

changes = st.tuples(st.integers(0, 1 << 16), st.integers(0, 3), st.one_of(st.sampled_from(BITS), st.just(b"")))


def changed(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Cuts bytes out and puts others in."""
    for where, size, bit in edits:
        at = where % (len(data) + 1)
        data = data[:at] + bit + data[at + size :]
    return data


def cut(data: bytes, places: list[int] | None) -> list[bytes]:
    """Cuts at these places; without any, at every byte."""
    if places is None:
        return [data[index : index + 1] for index in range(len(data))]
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]


async def taken(pieces: list[bytes]) -> list[Read]:
    """The requests that the product would pass on, with their bodies."""
    found: list[Read] = []

    async def handle(arrival: Arrival) -> bool:
        if arrival.malformed or framing_problem(arrival):
            return False
        body = b""
        while piece := await arrival.payload.readany():
            body += piece
        target = arrival.target.encode("utf-8", "surrogateescape")
        version = b"HTTP/%d.%d" % arrival.version
        fields = tuple((name, value.strip(b" \t")) for name, value in arrival.fields.raw)
        found.append(Read(method=arrival.method.encode(), target=target, version=version, fields=fields, body=body))
        return not arrival.should_close

    async def guarded(arrival: Arrival) -> bool:
        try:
            return await handle(arrival)
        except BodyBroken:
            return False

    connection = Connection(guarded, [], Shapes())
    connection.connection_made(cast(asyncio.Transport, FakeTransport()))
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    await settle()
    connection.connection_lost(None)
    await settle()
    return found


@settings(max_examples=300)
@given(
    asked=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=4),
    edits=st.lists(changes, max_size=3),
    places=st.one_of(st.none(), st.lists(st.integers(0, 1 << 16), max_size=6)),
)
@example(asked=REQUESTS, edits=[], places=None)
@example(asked=REQUESTS, edits=[], places=[])
def test_what_is_taken_for_a_request_is_what_another_reader_takes_for_it(
    asked: list[bytes], edits: list[tuple[int, int, bytes]], places: list[int] | None
) -> None:
    data = changed(b"".join(asked), edits)
    found = asyncio.run(taken(cut(data, places)))
    expected = read_requests(data)
    assert found == expected[: len(found)]
    if not edits:
        last = asked.index(REQUESTS[-1]) if REQUESTS[-1] in asked else len(asked)
        assert len(found) == len(expected) == len(asked[: last + 1])


@given(
    asked=st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=3),
    edits=st.lists(changes, min_size=1, max_size=3),
    places=st.one_of(st.none(), st.lists(st.integers(0, 1 << 16), max_size=6)),
)
def test_it_does_not_matter_in_which_pieces_bytes_come(
    asked: list[bytes], edits: list[tuple[int, int, bytes]], places: list[int] | None
) -> None:
    data = changed(b"".join(asked), edits)
    assert asyncio.run(taken(cut(data, places))) == asyncio.run(taken([data] if data else []))
