"""Answers in OpenAI's format; its streams are in test_stream.py."""

from __future__ import annotations

import orjson
import pytest

from proxy.dialects.lookup import operation_of
from proxy.dialects.openai import OpenAI
from proxy.exchange import Usage


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (413, "invalid_request_error"),
        (429, "rate_limit_error"),
        (502, "server_error"),
        (503, "server_error"),
        (504, "server_error"),
    ],
)
def test_error_body(status: int, kind: str) -> None:
    body = OpenAI().error_body(status=status, reason="queue_full", message="Full. Try later.", request_id="r1")
    error = {"message": "Full. Try later.", "type": kind, "param": None, "code": "queue_full"}
    assert orjson.loads(body) == {"error": error, "request_id": "r1"}


def test_error_event_takes_its_type_from_the_reason() -> None:
    event = OpenAI().error_event(reason="queue_timeout", message="x")
    error = b'{"message":"x","type":"rate_limit_error","param":null,"code":"queue_timeout"}'
    assert event == b'data: {"error":' + error + b"}\n\n"


def test_error_event_of_responses_has_the_shape_of_their_errors_too() -> None:
    event = OpenAI().error_event(reason="idle_timeout", message="x", operation=operation_of("/v1/responses"))
    name, _, data = event.partition(b"\ndata: ")
    error = {"message": "x", "type": "server_error", "param": None, "code": "idle_timeout"}
    assert name == b"event: error"
    assert orjson.loads(data) == {
        "type": "error",
        "code": "idle_timeout",
        "message": "x",
        "param": None,
        "error": error,
    }
    chat = OpenAI().error_event(reason="idle_timeout", message="x", operation=operation_of("/v1/chat/completions"))
    assert chat == OpenAI().error_event(reason="idle_timeout", message="x")


def test_usage_of_answers() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    assert OpenAI().usage_of({"choices": [], "usage": usage}) == Usage(5, 7)
    assert OpenAI().usage_of({"choices": [], "usage": None}) is None
    assert OpenAI().usage_of({"data": []}) is None
