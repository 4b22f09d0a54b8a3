"""A caller gets one answer that nobody can read in two ways, whatever a provider writes."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.differential.answers import SECOND, answer
from tests.differential.line import Caller, Line
from tests.differential.opinions import answer_by_h11
from tests.differential.reading import Doubt, Heard, end_to_end, read_answer, tidy
from tests.downstream.visitor import Answer

CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
)
PLAIN, STREAM = b'{"model":"m"}', b'{"model":"m","stream":true}'
ASKS = [
    b"GET /a HTTP/1.1\r\nHost: p\r\n\r\n",
    CHAT % (len(PLAIN), PLAIN),
    CHAT % (len(STREAM), STREAM),
    b"HEAD /a HTTP/1.1\r\nHost: p\r\n\r\n",
    b"GET /a HTTP/1.0\r\n\r\n",
]
KEPT = {429, *range(500, 1000)}
READ_OTHERWISE = re.compile(rb":(?:[ \t]|\r?\n[ \t])*\r(?!\n)|(?m:^)HTTP/[^\n]*\n ")
"""Where llhttp, made lenient for careless heads, takes a bare CR for the end of a line, and white space for nothing."""
OURS = frozenset(b"content-length transfer-encoding connection".split())


def heard(data: bytes, method: bytes, *, kind: bool = False) -> Heard | None:
    """What a reader finds; None for its doubt."""
    try:
        return read_answer(tidy(data) if kind else data, method=method, kind=kind)
    except Doubt:
        return None


def check(line: Line, runner: asyncio.Runner, ask: bytes, data: bytes, *, keeps: bool) -> None:
    """Lets the provider write these bytes, and compares what the caller received with what other readers find."""
    method = ask.split(b" ")[0]
    strict, kind = heard(data, method), heard(data, method, kind=True)
    good = kind is not None and kind.keeps
    line.provider.forget()
    line.provider.answer = lambda _: (data, not (good and keeps), good)
    caller = runner.run(line.call([ask], methods=[method], to_the_end=False))
    assert line.provider.misread == []
    assert len(line.provider.asked) == 1
    told = one_answer(caller, method)
    if told is None:
        # Only who began to pass on what then broke may leave its caller without a whole answer.
        assert kind is None or not kind.whole
        return
    if told.get("x-sponson-reason") is not None:
        assert (told.status, told.get("x-sponson-reason")) == (502, b"upstream_unreachable")
        assert strict is None or not strict.whole
        return
    assert kind is not None
    assert told.status == kind.status
    if not kind.whole:
        # A failing answer whose body broke is told without it.
        assert (told.status in KEPT, told.body) == (True, b"")
        return
    assert told.body == kind.body
    fields = [field for field in told.headers if field[0] not in OURS and not field[0].startswith(b"x-sponson-")]
    if strict is not None:
        assert told.phrase == strict.phrase
        assert [(name, value.strip(b" \t")) for name, value in fields] == end_to_end(strict.fields)


def one_answer(caller: Caller, method: bytes) -> Answer | None:
    """Returns the only answer of a connection, on which nothing else came; None for one that visibly broke."""
    assert len(caller.found) <= 1
    second = answer_by_h11(caller.raw, method=method.decode())
    if not caller.found or caller.broken:
        assert caller.ended
        assert caller.broken or not second.whole
        return None
    found = caller.found[0]
    assert caller.rest == b""
    assert (second.status, second.body, second.whole, second.rest) == (found.status, found.body, True, b"")
    return found


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"
SEEDS = {
    "zeros": HEAD + b"Content-Length: " + b"0" * 5000 + b"5\r\n\r\nhello",
    "zeros of a failing answer": b"HTTP/1.1 503 Busy\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\nhello",
    "LF in a chunk's extension": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
    "LF behind a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
    "LF in a trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: y\n\r\n",
    "a coding in 1.0": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "both words in 1.0": b"HTTP/1.0 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    "version 2": b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "version 2 that stays": b"HTTP/2.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello",
    "version 0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "a control character before the coding": HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + CHUNKS,
    "a tab behind the coding": HEAD + b"Transfer-Encoding: chunked\t\r\n\r\n" + CHUNKS,
    "a length in a trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\nhello",
    "careless": b"HTTP/1.1 200 OK\nContent-Length : 5\nX-Folded: a\n b\n\nhello",
    "a storm": b"HTTP/1.1 102 Wait\r\n\r\n" * 300 + HEAD + b"Content-Length: 5\r\n\r\nhello" + SECOND,
}


@pytest.mark.parametrize("keeps", [True, False], ids=["stays", "ends"])
@pytest.mark.parametrize("ask", [ASKS[0], ASKS[1]], ids=["get", "chat"])
@pytest.mark.parametrize("name", SEEDS)
def test_what_was_once_read_in_two_ways(line: Line, runner: asyncio.Runner, name: str, ask: bytes, keeps: bool) -> None:
    check(line, runner, ask, SEEDS[name], keeps=keeps)


@settings(max_examples=400)
@given(ask=st.sampled_from(ASKS), data=answer(), keeps=st.booleans())
def test_what_a_caller_gets_has_one_meaning(
    line: Line, runner: asyncio.Runner, ask: bytes, data: bytes, keeps: bool
) -> None:
    assume(not READ_OTHERWISE.search(data))
    check(line, runner, ask, data, keeps=keeps)
