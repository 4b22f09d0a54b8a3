"""What a scanner sees depends on the bytes alone, never on how they are cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.errors import AnswerError
from proxy.dialects.lookup import operation_of
from proxy.dialects.sse import LARGEST_EVENT
from proxy.dialects.stream import StreamScanner
from proxy.exchange import Usage
from tests.dialects.streams import CHAT, ERROR_LATER, ROLE, STREAMS, Recorded, chunk, typed

by_name = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)


def scanner_for(path: str) -> StreamScanner:
    operation = operation_of(path)
    assert operation is not None
    return operation.dialect.scanner(operation)


def scanned(path: str, pieces: Iterable[bytes]) -> StreamScanner:
    scanner = scanner_for(path)
    for piece in pieces:
        scanner.feed(piece)
    scanner.finish()
    return scanner


def signs(scanner: StreamScanner) -> dict[str, Any]:
    names = ("content", "done", "error", "usage", "events", "malformed", "comments")
    return {name: getattr(scanner, name) for name in names}


@by_name
def test_whole_stream(stream: Recorded) -> None:
    seen = signs(scanned(stream.path, [stream.data]))
    assert {name: seen[name] for name in seen if name != "comments"} == {
        "content": stream.content,
        "done": stream.done,
        "error": stream.error,
        "usage": stream.usage,
        "events": stream.events,
        "malformed": stream.malformed,
    }


@by_name
def test_every_single_cut(stream: Recorded) -> None:
    whole = signs(scanned(stream.path, [stream.data]))
    for at in range(len(stream.data) + 1):
        assert signs(scanned(stream.path, [stream.data[:at], stream.data[at:]])) == whole, at


@by_name
def test_single_bytes(stream: Recorded) -> None:
    pieces = [stream.data[at : at + 1] for at in range(len(stream.data))]
    assert signs(scanned(stream.path, pieces)) == signs(scanned(stream.path, [stream.data]))


@by_name
def test_one_event_at_a_time(stream: Recorded) -> None:
    pieces = [event + b"\n\n" for event in stream.data.split(b"\n\n")]
    assert signs(scanned(stream.path, pieces)) == signs(scanned(stream.path, [b"".join(pieces)]))


LINES = st.sampled_from(
    [
        b"data: " + chunk('{"content":"x"}'),
        b"data:" + chunk('{"role":"assistant"}'),
        b"data: " + chunk("{}", usage=',"usage":null'),
        b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}',
        b'data: {"error":{"code":503}}',
        b"data: [DONE]",
        b"data:",
        b"data",
        b"event: error",
        b"event: x",
        b": comment",
        b"id: data: 1",
        b"\xef\xbb\xbfdata: {",
        b"",
        b"",
    ]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.lists(st.integers(0, 3000), max_size=12))
def test_any_cuts_of_any_lines(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data = ROLE + b"".join(line + end for line, end in lines)
    places = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    path = "/v1/chat/completions"
    assert signs(scanned(path, pieces)) == signs(scanned(path, [data[at : at + 1] for at in range(len(data))]))


@pytest.mark.parametrize(
    ("delta", "content"),
    [
        ('{"role":"assistant","content":""}', False),
        ('{"role":"assistant","content":null,"refusal":null,"tool_calls":[]}', False),
        ("{}", False),
        ('{"content":" "}', True),
        ('{"refusal":"no"}', True),
        ('{"reasoning":"hm"}', True),
        ('{"reasoning_content":"hm"}', True),
        ('{"function_call":{"name":"f"}}', True),
        ('{"audio":{"id":"a"}}', True),
    ],
)
def test_what_is_content_in_a_chunk(delta: str, content: bool) -> None:
    scanner = scanner_for("/v1/chat/completions")
    scanner.feed(b"data: " + chunk(delta) + b"\n\n")
    assert scanner.content is content


@pytest.mark.parametrize(
    ("path", "data", "content"),
    [
        ("/v1/chat/completions", {"choices": [], "prompt_filter_results": []}, False),
        ("/v1/chat/completions", {"choices": [{"delta": {}, "finish_reason": "stop"}]}, True),
        ("/v1/chat/completions", {"type": "ping"}, False),
        ("/v1/chat/completions", {"something": "else"}, True),
        ("/v1/completions", {"choices": [{"text": "", "finish_reason": None}]}, False),
        ("/v1/completions", {"choices": [{"text": "x", "finish_reason": None}]}, True),
        ("/v1/responses", {"type": "response.queued", "response": {}}, False),
        ("/v1/responses", {"type": "keepalive"}, False),
        ("/v1/responses", {"type": "response.function_call_arguments.delta", "delta": "{"}, True),
        ("/v1/responses", {"type": "response.output_item.added", "item": {"type": "message", "content": []}}, False),
        ("/v1/responses", {"type": "response.output_item.added", "item": {"type": "message", "content": [1]}}, True),
        ("/v1/responses", {"type": "response.output_item.added", "item": {"type": "reasoning"}}, False),
        ("/v1/responses", {"type": "response.output_item.added", "item": {"type": "function_call"}}, True),
        ("/v1/responses", {"type": "response.output_item.added"}, True),
        ("/v1/responses", {"type": "response.content_part.added", "part": {"text": ""}}, False),
        ("/v1/responses", {"type": "response.content_part.added", "part": {"text": "x"}}, True),
        ("/v1/responses", {"type": "response.content_part.added", "part": {"refusal": "x"}}, True),
        ("/v1/responses", {"type": "response.reasoning_summary_part.added", "part": {"text": ""}}, False),
        ("/v1/responses", {"type": "response.completed", "response": {}}, True),
        ("/v1/messages", {"type": "ping"}, False),
        (
            "/v1/messages",
            {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
            False,
        ),
        ("/v1/messages", {"type": "content_block_start", "content_block": {"type": "thinking"}}, False),
        ("/v1/messages", {"type": "content_block_start", "content_block": {"type": "tool_use"}}, True),
        ("/v1/messages", {"type": "content_block_delta", "delta": {"type": "thinking_delta"}}, True),
        ("/v1/messages", {"type": "message_delta", "delta": {}}, True),
        ("/v1/messages", {"type": "some_later_invention"}, False),
    ],
)
def test_what_is_content_in_each_format(path: str, data: dict[str, Any], content: bool) -> None:
    scanner = scanner_for(path)
    scanner.feed(b"data: " + orjson.dumps(data) + b"\n\n")
    assert scanner.content is content


def test_content_is_seen_with_the_event_that_brings_it() -> None:
    scanner = scanner_for("/v1/chat/completions")
    seen = []
    for event in CHAT.data.split(b"\n\n")[:3]:
        scanner.feed(event + b"\n")
        seen.append(scanner.content)
        scanner.feed(b"\n")
        seen.append(scanner.content)
    assert seen == [False, False, False, True, True, True]


def test_an_error_named_by_its_event_alone_is_an_error() -> None:
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        for before in (b"", typed("content_block_delta", ',"choices":[{"text":"x"}]')):
            scanner = scanner_for(path)
            scanner.feed(before)
            scanner.feed(b'event: error\ndata: {"message":"no"}\n\n')
            assert scanner.error == AnswerError(500, "error")
            assert scanner.content is bool(before)


def test_an_error_of_responses_without_an_error_object() -> None:
    scanner = scanner_for("/v1/responses")
    scanner.feed(b'data: {"type":"error","code":"rate_limit_exceeded","message":"slow down"}\n\n')
    assert scanner.error == AnswerError(429, "rate_limit_exceeded")
    assert not scanner.content


def test_what_follows_an_error_or_the_end_changes_nothing() -> None:
    failure = b'data: {"error":{"code":503}}\n\n'
    content = b"data: " + chunk('{"content":"x"}') + b"\n\n"
    assert not scanned("/v1/chat/completions", [ROLE, failure, content]).content
    assert scanned("/v1/chat/completions", [content, b"data: [DONE]\n\n", failure]).error is None


def test_the_end_of_responses_without_usage() -> None:
    scanner = scanner_for("/v1/responses")
    scanner.feed(typed("response.output_text.delta", ',"delta":"x"'))
    scanner.feed(typed("response.incomplete", ',"response":{"id":"r"}'))
    assert scanner.done
    assert scanner.error is None


def test_an_event_of_responses_may_have_its_type_in_its_name_alone() -> None:
    scanner = scanner_for("/v1/responses")
    scanner.feed(b'event: response.created\ndata: {"response":{"id":"r"}}\n\n')
    assert not scanner.content
    scanner.feed(b'event: response.completed\ndata: {"response":{"usage":{"input_tokens":1,"output_tokens":2}}}\n\n')
    assert (scanner.content, scanner.done, scanner.usage) == (True, True, Usage(1, 2))


def test_a_tool_call_that_speaks_of_errors_is_no_error() -> None:
    scanner = scanner_for("/v1/chat/completions")
    scanner.feed(b"data: " + chunk('{"content":"{\\"error\\": {\\"code\\": 500}}"}') + b"\n\n")
    scanner.feed(b"data: " + chunk('{"content":"error"}') + b"\n\n")
    assert scanner.content
    assert scanner.error is None


def test_usage_of_running_reports_is_the_last_not_the_sum() -> None:
    scanner = scanner_for("/v1/chat/completions")
    for count in (1, 2, 3):
        usage = f',"usage":{{"prompt_tokens":10,"completion_tokens":{count}}}'
        scanner.feed(b"data: " + chunk('{"content":"x"}', usage=usage) + b"\n\n")
    assert scanner.usage == Usage(10, 3)


def test_a_cut_last_event_is_no_content() -> None:
    scanner = scanned("/v1/chat/completions", [ROLE, b'data: {"choices":[{"delta":{"con'])
    assert (scanner.content, scanner.malformed) == (False, 1)


@pytest.mark.parametrize("size", [256, 4096, 1 << 22])
def test_an_event_that_is_too_large_passes_unread(size: int) -> None:
    big = b'data: {"choices":[{"delta":{"content":"' + b"x" * (LARGEST_EVENT + 9) + b'"}}]}\n\n'
    data = ROLE + big + b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    scanner = scanned("/v1/chat/completions", [data[at : at + size] for at in range(0, len(data), size)])
    assert (scanner.events, scanner.malformed, scanner.content) == (3, 1, True)
    assert scanner.usage == Usage(1, 2)


def test_place_for_an_event_of_our_own() -> None:
    scanner = scanner_for("/v1/chat/completions")
    assert scanner.between_events
    scanner.feed(ROLE[:50])
    assert not scanner.between_events
    scanner.feed(ROLE[50:-1])
    assert not scanner.between_events
    scanner.feed(b"\n")
    assert scanner.between_events
    scanner.feed(b"event: x\n")
    assert not scanner.between_events


def test_our_own_error_event_is_understood_after_any_stream() -> None:
    for stream in STREAMS:
        operation = operation_of(stream.path)
        assert operation is not None
        if stream.done or stream.error:
            continue
        ours = operation.dialect.error_event(reason="idle_timeout", message="", operation=operation)
        scanner = scanned(stream.path, [stream.data, ours])
        assert scanner.error is not None
        assert scanner.events == stream.events + 1


def test_repr_tells_the_state() -> None:
    scanner = scanned(ERROR_LATER.path, [ERROR_LATER.data])
    assert repr(scanner) == f"<StreamScanner 3 events content {scanner.error!r}>"
