"""Answers in Anthropic's format; its streams are in test_stream.py."""

from __future__ import annotations

import orjson
import pytest

from proxy.dialects.anthropic import Anthropic
from proxy.exchange import Usage


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_error_body(status: int, kind: str) -> None:
    body = Anthropic().error_body(status=status, reason="queue_full", message="Full. Try later.", request_id="r1")
    error = {"type": kind, "message": "Full. Try later.", "code": "queue_full"}
    assert orjson.loads(body) == {"type": "error", "error": error, "request_id": "r1"}


def test_error_event() -> None:
    event = Anthropic().error_event(reason="idle_timeout", message="x")
    data = b'{"type":"error","error":{"type":"timeout_error","message":"x","code":"idle_timeout"}}'
    assert event == b"event: error\ndata: " + data + b"\n\n"


def test_usage_of_answers() -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 3, "output_tokens": 7}
    assert Anthropic().usage_of({"type": "message", "usage": usage}) == Usage(8, 7, 3)
    assert Anthropic().usage_of({"input_tokens": 14}) is None
