"""Event streams that are nearly right: never a failure, never another result for other reads, nothing lost."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.injection import LARGEST_HELD, UsageFilter
from proxy.dialects.lookup import operation_of
from proxy.dialects.realtime import RealtimeMeter
from proxy.dialects.sse import EventSplitter
from proxy.dialects.stream import StreamScanner
from proxy.dialects.usage import may_report
from proxy.upstream.meter import PackedEvents
from tests.fuzz import drawn
from tests.fuzz.corpus import EVENTS, PATHS
from tests.fuzz.mutations import CUTS, cut, mutated, single

USAGE = b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
BOM = b"\xef\xbb\xbf"
SEEDS = (
    b"",
    b"\xef\xbb\xbfdata: " + USAGE + b"\r\n\r\n",
    b"\xef\xbb\xbf\xef\xbb\xbfdata: [DONE]\n\n",
    b"data: " + USAGE + b"\r\rdata: " + USAGE + b"\n\ndata: " + USAGE,
    b"data: " + USAGE[:20] + b"\ndata: " + USAGE[20:] + b"\n\n",
    b"event: message\nid: 7\nretry: 5\ndata:" + USAGE + b"\n: after\n\n",
    b"event: error\ndata: " + USAGE + b"\n\n",
    b'data: {}\r\n\r\ndata: {"choices":[]}\r\n\n\r\n\r',
    b'data: [1,2]\n\ndata: null\n\ndata: "error"\n\ndata: 1e999\n\n',
    b'data: {"error": ["x"], "usage": "y", "choices": {}, "type": 7, "delta": []}\n\n',
    b'data: {"error": {"code": {}, "type": [], "details": {"retryDelay": "9999999999999999999s"}}}\n\n',
    b"data: " + b"[" * 2000 + b"\n\ndata: " + b'{"a":' * 2000 + b"\n\n",
    b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\ndata: {"x":"\\ud800"}\n\n',
    b":\n:\n\n: ping\n\ndata\n\ndata:\n\n data: x\n\n",
    b"data: a\0b\n\n\0\n\n",
)
TOKENS = (
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\xef\xbb\xbf", b": ", b":", b"data: ", b"data:", b"event: error\n"),
    *(b"event: message_stop\n", b"event:", b"id: 1\n", b"retry: 2\n", b"[DONE]", b"data: [DONE]\n\n", b"null", b"{}"),
    *(b"[", b"{", b"}", b'"', b'"usage":', b'"usage":null', b'"error":', b'"choices":[]', b"\xf0\x9f", b"\0", USAGE),
    *(b"data: " + USAGE + b"\n\n", b'data: {"error":{"code":"x"}}\n\n', b"1e400", b"-0", b"\\ud800", b"\xff"),
)
STREAMS = mutated((*EVENTS, *SEEDS), TOKENS)


def scanner(path: str) -> StreamScanner:
    """Returns what looks at the answers of this path."""
    operation = operation_of(path)
    assert operation is not None
    return operation.dialect.scanner(operation)


def signs(looking: StreamScanner, pieces: Iterable[bytes]) -> dict[str, Any]:
    """Returns all that a scanner shows of these pieces."""
    for piece in pieces:
        looking.feed(piece)
    looking.finish()
    names = ("content", "done", "error", "usage", "events", "malformed", "comments", "signs")
    return {name: getattr(looking, name) for name in names}


def events(stream: bytes) -> list[tuple[bytes, bytes | None]]:
    """Returns the events of a stream."""
    splitter = EventSplitter()
    return [*splitter.feed(stream), *splitter.finish()]


def reports_alone(event: tuple[bytes, bytes | None]) -> bool:
    """Whether this is the chunk that reports usage and nothing else."""
    name, data = event
    if name not in (b"", b"message") or data is None or not may_report(data):
        return False
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(document, dict) or document.get("error"):
        return False
    return document.get("choices") == [] and isinstance(document.get("usage"), dict)


def filtered(pieces: Iterable[bytes]) -> tuple[bytes, int]:
    """Returns what a caller gets of a stream whose usage it did not ask for, and how many chunks were taken out."""
    taker = UsageFilter()
    given_bytes = passed = 0
    out = []
    for piece in pieces:
        got = taker.feed(piece)
        given_bytes, passed = given_bytes + len(piece), passed + len(got)
        assert taker.removed or given_bytes - passed <= LARGEST_HELD
        out.append(got)
    out.append(taker.finish())
    return b"".join(out), taker.removed


def scans(stream: bytes, places: list[int], path: str) -> None:
    whole = signs(scanner(path), [stream])
    assert signs(scanner(path), cut(stream, places)) == whole
    assert signs(scanner(path), single(stream)) == whole
    assert whole["malformed"] <= whole["events"]


def hides(stream: bytes, places: list[int]) -> None:
    """A byte order mark within a stream, where it makes a line meaningless, is taken for one at its beginning."""
    stream = BOM * stream.startswith(BOM) + stream.replace(BOM, b"")
    left, removed = filtered([stream])
    assert filtered(cut(stream, places)) == (left, removed)
    assert filtered(single(stream)) == (left, removed)
    assert removed or left == stream
    before = events(stream)
    assert events(left) == [event for event in before if not reports_alone(event)]
    assert removed == sum(map(reports_alone, before))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", SEEDS)
def test_kept_seeds_of_scanners(stream: bytes, path: str) -> None:
    scans(stream, [3, 11, 12], path)


@given(STREAMS, CUTS, st.sampled_from(PATHS))
@drawn(250)
def test_a_scanner_sees_the_same_however_a_stream_is_cut(stream: bytes, places: list[int], path: str) -> None:
    scans(stream, places, path)


@pytest.mark.parametrize("stream", SEEDS)
def test_kept_seeds_of_the_usage_filter(stream: bytes) -> None:
    hides(stream, [3, 11, 12])


@given(STREAMS, CUTS)
@drawn(120)
def test_of_any_stream_nothing_but_usage_chunks_is_taken_out(stream: bytes, places: list[int]) -> None:
    hides(stream, places)


@given(st.sampled_from(EVENTS), st.sampled_from([b"", *TOKENS]), st.integers(70_000, 200_000), CUTS)
@drawn(20)
def test_lines_without_end_are_not_held(stream: bytes, token: bytes, size: int, places: list[int]) -> None:
    endless = (token or b"x").translate(None, b"\r\n") or b"x"
    data = stream + b"data: " + endless * (size // len(endless))
    left, removed = filtered(cut(data, places))
    assert removed or left == data
    assert signs(scanner(PATHS[0]), cut(data, places))["events"] >= 0


@given(
    mutated([gzip.compress(EVENTS[0]), zlib.compress(EVENTS[1]), gzip.compress(EVENTS[0]) + gzip.compress(EVENTS[1])],
            [b"\x1f\x8b", b"\0\0\xff\xff", b"\x78\x9c", gzip.compress(b"data: {}\n\n"), gzip.compress(b"\0" * 99_999)]),
    CUTS,
    st.sampled_from(PATHS),
)  # fmt: skip
@drawn(200)
def test_nothing_packed_makes_a_scanner_fail(packed: bytes, places: list[int], path: str) -> None:
    looking = PackedEvents(scanner(path))
    before = 0
    for piece in cut(packed, places):
        looking.feed(piece)
        assert looking.signs >= before
        before = looking.signs
    looking.finish()
    assert isinstance(looking.content, bool)


@given(STREAMS, CUTS, st.sampled_from(PATHS))
@drawn(100)
def test_a_packed_stream_shows_what_it_shows_unpacked(stream: bytes, places: list[int], path: str) -> None:
    plain = scanner(path)
    whole = signs(plain, [stream])
    inner = scanner(path)
    looking = PackedEvents(inner)
    for piece in cut(gzip.compress(stream), places):
        looking.feed(piece)
    looking.finish()
    assert signs(inner, []) == whole


@given(st.lists(st.tuples(mutated(EVENTS, TOKENS), st.booleans()), max_size=5))
@drawn(100)
def test_no_message_of_a_socket_makes_its_meter_fail(messages: list[tuple[bytes, bool]]) -> None:
    meter = RealtimeMeter()
    for piece, final in messages:
        meter.feed(piece, final)
    assert meter.usage is None or min(meter.usage.input, meter.usage.output) >= 0
