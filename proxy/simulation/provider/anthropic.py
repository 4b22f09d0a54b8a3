"""Answers, stream events and errors in Anthropic's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from proxy.simulation.provider.answers import Answer, Event

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error(status: int, message: str, *, code: str | None = None, request_id: str) -> dict[str, Any]:
    """Returns the body of an error answer; the type follows the status, `code` stands in its details."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    details = {} if code is None else {"details": {"error_code": code}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}, "request_id": request_id}


def body(answer: Answer) -> dict[str, Any]:
    """Returns a message in one piece."""
    return {
        **_message(answer, output_tokens=answer.output_tokens),
        "content": [{"type": "text", "text": "".join(answer.texts[0])}],
        "stop_reason": _stop_reason(answer),
    }


def _message(answer: Answer, *, output_tokens: int) -> dict[str, Any]:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": answer.input_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": output_tokens,
        },
    }


def _stop_reason(answer: Answer) -> str:
    return "end_turn" if answer.complete else "max_tokens"


def events(answer: Answer) -> Iterator[Event]:
    """Yields a stream; the usage in its message_delta is cumulative."""
    yield _event("message_start", {"message": _message(answer, output_tokens=1)})
    yield _event("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
    yield _event("ping", {})
    for token in answer.texts[0]:
        delta = {"type": "text_delta", "text": token}
        yield _event("content_block_delta", {"index": 0, "delta": delta}, content=True)
    yield _event("content_block_stop", {"index": 0})
    ended = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield _event("message_delta", {"delta": ended, "usage": {"output_tokens": answer.output_tokens}})
    yield _event("message_stop", {})


def _event(name: str, value: dict[str, Any], *, content: bool = False) -> Event:
    data = orjson.dumps({"type": name, **value})
    return Event(b"event: %b\ndata: %b\n\n" % (name.encode(), data), content)


def error_event(value: dict[str, Any]) -> Event:
    """Returns an error body as it stands in a stream."""
    return Event(b"event: error\ndata: %b\n\n" % orjson.dumps(value))


def heartbeat() -> Event:
    """Returns what keeps a silent stream alive."""
    return _event("ping", {})


def models(names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the list of models."""
    data = [model(name) for name in names]
    first, last = (names[0], names[-1]) if names else (None, None)
    return {"data": data, "has_more": False, "first_id": first, "last_id": last}


def model(name: str) -> dict[str, Any]:
    """Returns one model of the list."""
    return {"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"}
