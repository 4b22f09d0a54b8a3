"""Usage that the proxy asks for: what is asked, and that nothing else changes in the request or in the stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.injection import LARGEST_HELD, UsageFilter, ask_for_usage
from proxy.dialects.lookup import operation_of
from tests.dialects.recorded import CHAT, CHUNK, COMPLETIONS, DONE, RECORDED, USAGE, chunk
from tests.dialects.recorded_messages import data
from tests.dialects.streams import GRAMMAR, LAST_WITHOUT_BLANK, STREAMS, Recorded
from tests.dialects.test_recorded import SPELLINGS, cut

ALL = (*RECORDED, *STREAMS)
LONE = data({**CHUNK, "choices": [], "usage": USAGE})
TEXT = chunk({"content": "x"}, usage=None)


def asked(body: bytes, path: str = "/v1/chat/completions") -> bytes | None:
    operation = operation_of(path)
    assert operation is not None
    return ask_for_usage(body, orjson.loads(body), operation)


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"stream":true}', b'{"stream":true,"stream_options":{"include_usage":true}}'),
        (b'{"stream_options": {}, "stream": true}', b'{"stream_options": {"include_usage":true}, "stream": true}'),
        (b'{"stream":true,"stream_options":null}', b'{"stream":true,"stream_options":{"include_usage":true}}'),
        (
            b'{"stream":true , "stream_options" : { "include_usage" : false , "n" : 12345678901234567890.10 } }',
            b'{"stream":true , "stream_options" : { "include_usage" : true , "n" : 12345678901234567890.10 } }',
        ),
        (
            b'{"stream":true,"stream_options":{"include_obfuscation":false},"x":"stream_options"}',
            b'{"stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true},"x":"stream_options"}',
        ),
        (
            b'{"stream_options":{"a":1},"stream":true,"stream_options":{"include_usage":null}}',
            b'{"stream_options":{"a":1,"include_usage":true},"stream":true,"stream_options":{"include_usage":true}}',
        ),
    ],
)
def test_usage_is_asked_for_and_nothing_else_changes(body: bytes, changed: bytes) -> None:
    assert asked(body) == changed
    assert asked(body, "/v1/completions") == changed
    assert asked(changed) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"stream":true,"stream_options":{"include_usage":true}}',
        b'{"stream":true,"stream_options":{"include_usage":"true"}}',
        b'{"stream":true,"stream_options":{"include_usage":0}}',
        b'{"stream":true,"stream_options":[]}',
        b'{"stream":true,"stream_options":"x"}',
        b'{"stream":false}',
        b'{"stream":null}',
        b'{"stream":1}',
        b'{"messages":[{"stream":true}]}',
        b"{}",
    ],
)
def test_what_the_caller_said_is_left_alone(body: bytes) -> None:
    assert asked(body) is None


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/fim/completions"])
def test_usage_that_comes_unasked_is_not_asked_for(path: str) -> None:
    assert asked(b'{"stream":true}', path) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=6), JSON, max_size=4),
    st.none() | st.dictionaries(st.text(max_size=6) | st.just("include_usage"), JSON | st.just(False), max_size=3),
    st.booleans(),
)
def test_any_body(rest: dict[str, Any], options: dict[str, Any] | None, ascii_only: bool) -> None:
    document = {**rest, "stream": True, "stream_options": options}
    body = json.dumps(document, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    operation = operation_of("/v1/chat/completions")
    assert operation is not None
    changed = ask_for_usage(body, document, operation)
    said = (options or {}).get("include_usage")
    if said is not None and said is not False:
        assert changed is None
    else:
        assert changed is not None
        wanted = {**document, "stream_options": {**(options or {}), "include_usage": True}}
        assert json.loads(changed.decode("utf-8", "surrogatepass")) == wanted


def filtered(*pieces: bytes) -> bytes:
    taker = UsageFilter()
    return b"".join([*(taker.feed(piece) for piece in pieces), taker.finish()])


def by_bytes(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def without_usage(stream: Recorded) -> bytes:
    """What must be left of a recorded stream, found in another way: event by event, as it is written down."""
    events = re.split(rb"(?<=\n\n)", stream.data)
    return b"".join(event for event in events if not re.search(rb'"choices":\[\].*"usage":\{', event))


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.name)
def test_the_usage_chunk_alone_is_taken_out_at_every_cut(stream: Recorded) -> None:
    left = filtered(stream.data)
    if stream is not GRAMMAR:
        assert left == without_usage(stream)
    assert filtered(*by_bytes(stream.data)) == left
    for at in range(len(stream.data) + 1):
        assert filtered(stream.data[:at], stream.data[at:]) == left, at


def test_what_is_taken_out() -> None:
    taken = {stream.name: len(stream.data) - len(filtered(stream.data)) for stream in ALL}
    bearing = {CHAT.name, COMPLETIONS.name, GRAMMAR.name, LAST_WITHOUT_BLANK.name, STREAMS[0].name}
    assert {name for name, size in taken.items() if size} == bearing


@given(st.sampled_from(ALL), st.sampled_from(sorted(SPELLINGS)), st.lists(st.integers(0, 1 << 16), max_size=40))
@settings(max_examples=300)
def test_any_cut_of_any_spelling(stream: Recorded, spelling: str, places: list[int]) -> None:
    spell = SPELLINGS[spelling]
    spelled = spell(stream.data.replace(b"\r\n", b"\n")) if stream in RECORDED else stream.data
    assert filtered(*cut(spelled, places)) == filtered(spelled)


@pytest.mark.parametrize("spelling", [name for name in SPELLINGS if name not in {"comments", "blank lines"}])
@pytest.mark.parametrize("stream", [CHAT, COMPLETIONS], ids=lambda stream: stream.name)
def test_the_usage_chunk_is_taken_out_in_every_spelling(stream: Recorded, spelling: str) -> None:
    spell: Callable[[bytes], bytes] = SPELLINGS[spelling]
    assert filtered(*by_bytes(spell(stream.data))) == spell(without_usage(stream))


LINES = st.sampled_from(
    [
        LONE[:-2],
        LONE[:-2].replace(b'"usage":', b'"usage" : '),
        TEXT[:-2],
        b'data: {"choices":[],',
        b'data: "usage":{}}',
        b'data: {"choices":[],"usage":null}',
        b'data: {"choices":[],"usage":{},"error":{"code":500}}',
        b"data: [DONE]",
        b"data:",
        b"event: message",
        b"event: x",
        b"event:",
        b": comment",
        b"id: 7",
        b"junk",
        b"\xef\xbb\xbf",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.lists(st.integers(0, 3000), max_size=12))
@settings(max_examples=400)
def test_any_cut_of_any_lines(lines: list[tuple[bytes, bytes]], places: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines)
    left = filtered(stream)
    assert filtered(*cut(stream, places)) == left
    assert filtered(*by_bytes(stream)) == left
    assert left == stream or b'"usage"' in stream
    assert filtered(left) == left


def test_an_event_passes_with_its_blank_line_and_a_known_line_before_it() -> None:
    taker = UsageFilter()
    assert taker.feed(b": wait") == b": wait"
    assert taker.feed(b"\n") == b"\n"
    assert taker.feed(TEXT[:40]) == b""
    assert taker.feed(TEXT[40:-1]) == TEXT[:-1]
    assert taker.feed(b"\n") == b"\n"
    assert taker.feed(b"data: [DONE]\r") == b"data: [DONE]\r"
    assert taker.feed(b"\n\r\n") == b"\n\r\n"
    assert taker.feed(TEXT + TEXT[:9]) == TEXT
    assert taker.feed(b"") == b""
    assert taker.finish() == TEXT[:9]
    assert taker.removed == 0


def test_a_comment_is_not_held_up_by_an_event_that_follows_it() -> None:
    assert UsageFilter().feed(b": still here\n" + LONE[:60]) == b": still here\n"


def test_a_usage_chunk_that_breaks_off_is_passed_on_and_a_whole_one_is_not() -> None:
    assert filtered(TEXT, LONE[:-9]) == TEXT + LONE[:-9]
    assert filtered(TEXT, LONE[:-1]) == TEXT
    assert filtered(TEXT, LONE[:-2]) == TEXT


@pytest.mark.parametrize(
    "kept",
    [
        data({"choices": [], "usage": None}),
        data({"choices": [], "usage": 7}),
        data({"choices": [{"delta": {}}], "usage": USAGE}),
        data({"usage": USAGE}),
        data({"choices": [], "usage": USAGE, "error": {"code": 500}}),
        data({"choices": [], "prompt_filter_results": []}),
        data([{"choices": [], "usage": USAGE}]),
        b"event: usage\n" + LONE,
        b'data: {"choices":[],"usage":{broken\n\n',
    ],
)
def test_other_events_pass(kept: bytes) -> None:
    assert filtered(TEXT, kept, DONE) == TEXT + kept + DONE
    assert filtered(*by_bytes(TEXT + kept + DONE)) == TEXT + kept + DONE


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        ([LONE.replace(b"\n", b"\r"), TEXT, b"\n", DONE], TEXT + b"\n" + DONE),
        ([TEXT[:-1], TEXT, LONE, DONE], TEXT[:-1] + TEXT + DONE),
        ([b": a comment of ", TEXT, LONE, DONE], b": a comment of " + TEXT + DONE),
    ],
)
def test_whole_events_after_what_was_cut(pieces: list[bytes], left: bytes) -> None:
    assert filtered(*pieces) == filtered(b"".join(pieces)) == left


def test_every_usage_chunk_is_taken_out_and_counted() -> None:
    taker = UsageFilter()
    assert taker.feed(LONE + TEXT + LONE + LONE + DONE) == TEXT + DONE
    assert taker.removed == 3
    assert repr(taker) == "<UsageFilter took 3 out, holds 0 bytes>"


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_a_block_above_the_bound_passes_unlooked_at(end: bytes, more: int) -> None:
    line = data({"choices": [], "usage": {}, "x": "X"})[:-2]
    line = line.replace(b"X", b"X" * (LARGEST_HELD - len(line) - len(end) + 1 + more))
    stream = line + end + end + DONE
    assert filtered(stream) == (DONE if more <= 0 else stream)
    for size in (1, 1000, len(line), len(line) + 1, len(line) + 2, len(line) + 3):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert filtered(*pieces) == filtered(stream)


def test_no_more_than_the_bound_is_held() -> None:
    taker = UsageFilter()
    piece = b"data: " + b"x" * 1000
    held = 0
    for _ in range(200):
        held += len(piece) - len(taker.feed(piece))
        assert held <= LARGEST_HELD
    assert held == 0
