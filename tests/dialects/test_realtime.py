from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.realtime import LOOK_BYTES, MOST_BYTES, RealtimeMeter
from proxy.exchange import Usage


def report(given: int, output: int, cached: int = 0, *, kind: str = "response.done", **more: Any) -> bytes:
    usage = {
        "total_tokens": given + output,
        "input_tokens": given,
        "output_tokens": output,
        "input_token_details": {"cached_tokens": cached, "text_tokens": given},
    }
    return json.dumps({"type": kind, "event_id": "e1", "response": {"id": "r", "usage": usage}, **more}).encode()


def fed(*messages: bytes, size: int = 1 << 30) -> Usage | None:
    meter = RealtimeMeter()
    for message in messages:
        for at in range(0, max(len(message), 1), size):
            meter.feed(message[at : at + size], at + size >= len(message))
    return meter.usage


@pytest.mark.parametrize("size", [1, 7, 255, 256, 257, 1 << 20])
def test_the_responses_of_a_session_add_up(size: int) -> None:
    talk = json.dumps({"type": "response.audio.delta", "delta": "A" * 3000}).encode()
    assert fed(report(10, 20, 3), talk, report(5, 1), b'{"type":"session.updated"}', size=size) == Usage(15, 21, 3)


def test_a_transcription_reports_for_itself() -> None:
    message = {
        "type": "conversation.item.input_audio_transcription.completed",
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    assert fed(json.dumps(message).encode()) == Usage(7, 2)


def test_words_of_the_model_that_look_like_a_report_are_none() -> None:
    quoted = json.dumps({"type": "response.text.done", "text": report(99, 99).decode()}).encode()
    assert fed(quoted, b'"response.done"', b'["response.done"]', b'{"type":"response.done"', b"") is None


def test_a_report_that_is_too_large_is_not_read() -> None:
    assert fed(report(1, 1, padding="x" * MOST_BYTES), size=65536) is None
    assert fed(report(1, 1, padding="x" * MOST_BYTES), report(2, 3), size=65536) == Usage(2, 3)


def test_a_type_that_stands_far_down_is_not_looked_for() -> None:
    assert fed(json.dumps({"padding": "x" * LOOK_BYTES, **json.loads(report(1, 1))}).encode()) is None


@given(st.lists(st.binary(max_size=300), max_size=6), st.integers(1, 400))
def test_no_message_can_break_it(messages: list[bytes], size: int) -> None:
    fed(*messages, size=size)
