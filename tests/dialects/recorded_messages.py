"""Streams of messages as Anthropic sends them; the others are in `recorded`."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.errors import AnswerError
from proxy.exchange import Usage
from tests.dialects.streams import Recorded


def data(document: Any) -> bytes:
    """Returns an event without a name."""
    return b"data: " + orjson.dumps(document) + b"\n\n"


def named(kind: str, **rest: Any) -> bytes:
    """Returns an event whose name is also its type."""
    return b"event: " + kind.encode() + b"\n" + data({"type": kind, **rest})


MESSAGE_USAGE: dict[str, Any] = {
    "input_tokens": 472,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 2000,
}
MESSAGE_USAGE |= {"cache_creation": {"ephemeral_5m_input_tokens": 100}, "output_tokens": 2, "service_tier": "standard"}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    """Returns a content block from its start to its stop."""
    return b"".join(
        [
            named("content_block_start", index=index, content_block=start),
            *(named("content_block_delta", index=index, delta=delta) for delta in deltas),
            named("content_block_stop", index=index),
        ]
    )


MESSAGE_THINKING = Recorded(
    name="a message that thinks, speaks and calls a tool",
    path="/v1/messages",
    data=b"".join(
        [
            named(
                "message_start", message={"id": "msg_01", "role": "assistant", "content": [], "usage": MESSAGE_USAGE}
            ),
            named("ping"),
            block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": 'The "message_stop" is near.'},
                {"type": "signature_delta", "signature": "EqQBCgIYAhIM"},
            ),
            block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Ich sehe nach …"}),
            named("ping"),
            block(
                2,
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"error": '},
                {"type": "input_json_delta", "partial_json": "1}"},
            ),
            named("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 40}),
            named("message_delta", delta={"stop_reason": "tool_use"}, usage={**MESSAGE_USAGE, "output_tokens": 89}),
            named("message_stop"),
        ]
    ),
    preamble=3,
    events=18,
    usage=Usage(2572, 89, 2000),
)

MESSAGE_OVERLOADED = Recorded(
    name="a message that breaks off with an error of its provider",
    path="/v1/messages",
    data=b"".join(
        [
            named("message_start", message={"id": "msg_02", "content": [], "usage": MESSAGE_USAGE}),
            named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            named("content_block_delta", index=0, delta={"type": "text_delta", "text": "Then"}),
            named("error", error={"type": "overloaded_error", "message": "Overloaded"}, request_id="req_1"),
        ]
    ).replace(b"\n", b"\r\n"),
    preamble=2,
    events=4,
    done=False,
    error=AnswerError(529, "overloaded_error"),
    usage=Usage(2572, 2, 2000),
)
