"""A provider receives the requests that two strict readers find in a caller's bytes, up to the first doubt."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential.line import Line
from tests.differential.opinions import Asked, requests_by_h11
from tests.differential.requests import FORBIDDEN, LAST, conversation
from tests.downstream.reference import End, Read, read_all, read_requests
from tests.downstream.test_wire_differential import cut
from tests.downstream.visitor import read_answer

places: st.SearchStrategy[list[int] | None] = st.one_of(
    st.just([]), st.lists(st.integers(0, 1 << 12), max_size=6), st.none()
)


def in_short(request: Read) -> Asked:
    """What both readers must agree on."""
    return Asked(method=request.method, target=request.target, body=request.body)


def check(line: Line, runner: asyncio.Runner, data: bytes, pieces: list[bytes]) -> None:
    """Sends these bytes, and compares what the provider received with what other readers find in them."""
    wanted, end = read_all(data)
    line.provider.forget()
    methods = [request.method for request in wanted] + [b"GET"] * (end is End.DOUBT)
    caller = runner.run(line.call(pieces, methods=methods, to_the_end=end in (End.DOUBT, End.LAST)))
    found, rest = caller.found, caller.rest
    received = [asked for _, asked in line.provider.asked]
    assert received == [in_short(request) for request in wanted]
    if rest and end in (End.DOUBT, End.PART):
        # What is no request, or breaks, may have been a HEAD.
        last, rest = read_answer(rest, head=True)
        found.append(last)
    assert rest == b""
    told = [answer.status for answer in found]
    if end is End.DOUBT:
        assert told == [200] * len(wanted) + [400]
        assert found[-1].get("connection") == b"close"
    else:
        assert told[: len(wanted)] == [200] * len(wanted)
        assert told[len(wanted) :] in ([], [400] * (end is End.PART))
    agreed = requests_by_h11(data)[: len(wanted)]
    assert agreed == received[: len(agreed)]
    sent_on(line)


def sent_on(line: Line) -> None:
    """What was sent on means the same to everybody, and has one framing."""
    assert line.provider.misread == []
    for raw in line.provider.raw.values():
        for request in read_requests(raw):
            assert len(request.all(b"host")) == 1
            assert not (request.all(b"transfer-encoding") and request.all(b"content-length"))
        assert [in_short(request) for request in read_requests(raw)] == requests_by_h11(raw)


NEXT = FORBIDDEN + LAST
SEEDS = [
    b"GET /old HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n" + NEXT,
    b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\nconnection: x, Close\r\n\r\n" + NEXT,
    b"POST /zeros HTTP/1.1\r\nHost: p\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\nhello" + NEXT,
    b"POST /zeros HTTP/1.1\r\nHost: p\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\n",
    b"POST /trailer HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 36\r\n\r\n" + NEXT,
    b"POST /space HTTP/1.1\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n5 ;a\r\nhello\r\n0\r\n\r\n" + NEXT,
    b"GET /then HTTP/1.1\r\nHost: p\r\n\r\n " + NEXT,
    b"HEAD /host HTTP/1.1\r\nHost: u@p\r\n\r\n" + NEXT,
    b"TRACE /secrets HTTP/1.1\r\nHost: p\r\n\r\n" + NEXT,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + NEXT,
    b"GET /nine\r\n" + NEXT,
    b"POST /wait HTTP/1.1\r\nHost: p\r\nExpect: x, 100-Continue\r\nContent-Length: 5\r\n\r\nhello" + NEXT,
    b"POST /offer HTTP/1.1\r\nHost: p\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 36\r\n\r\n"
    + FORBIDDEN
    + NEXT,
]


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("data", SEEDS, ids=lambda data: data.split(b" ")[1].decode())
def test_what_was_once_read_in_two_ways(line: Line, runner: asyncio.Runner, data: bytes, bytewise: bool) -> None:
    check(line, runner, data, cut(data, None if bytewise else []))


@settings(max_examples=400)
@given(data=conversation(), places=places)
def test_what_a_provider_receives_is_what_two_strict_readers_find(
    line: Line, runner: asyncio.Runner, data: bytes, places: list[int] | None
) -> None:
    check(line, runner, data, cut(data, places) if data else [])
