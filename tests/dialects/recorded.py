"""Ten streams as providers send them, whole from the first event to the last, with what a scanner must see in each."""

from __future__ import annotations

from typing import Any

from proxy.dialects.errors import AnswerError
from proxy.exchange import Usage
from tests.dialects.recorded_messages import MESSAGE_OVERLOADED, MESSAGE_THINKING, data, named
from tests.dialects.streams import Recorded

DONE = b"data: [DONE]\n\n"
RESPONSES = "/v1/responses"


def numbered(*events: tuple[str, dict[str, Any]]) -> bytes:
    """Returns the events of a response, counted."""
    return b"".join(named(kind, **rest, sequence_number=number) for number, (kind, rest) in enumerate(events))


def chunk(delta: Any, finish: str | None = None, **rest: Any) -> bytes:
    """Returns a chat chunk."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return data({**CHUNK, "choices": [choice], **rest})


CHUNK: dict[str, Any] = {
    "id": "chatcmpl-B1",
    "object": "chat.completion.chunk",
    "created": 1741569952,
    "model": "alpha-4",
}
CHUNK |= {"service_tier": "default", "system_fingerprint": "fp_44709d6fcb"}
ROLE = {"role": "assistant", "content": "", "refusal": None}
USAGE: dict[str, Any] = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}
USAGE |= {"prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0}}
USAGE |= {"completion_tokens_details": {"reasoning_tokens": 4, "audio_tokens": 0}}

CHAT = Recorded(
    name="chat, obfuscated, with the usage that was asked for",
    data=b"".join(
        [
            chunk(ROLE, usage=None, obfuscation="aQ3x"),
            chunk({"content": "Grüß"}, usage=None, obfuscation="k7Zb1"),
            chunk({"content": ' dich, "usage" 👩‍👩‍👧!\n\n'}, usage=None, obfuscation=""),
            chunk({}, "stop", usage=None, obfuscation="Yw"),
            data({**CHUNK, "choices": [], "usage": USAGE, "obfuscation": "p0"}),
            DONE,
        ]
    ),
    preamble=1,
    events=6,
    usage=Usage(19, 10, 16),
)

CHAT_TOOLS = Recorded(
    name="chat that calls two tools, usage not asked for",
    data=b"".join(
        [
            chunk({"role": "assistant", "content": None}),
            chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f"}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"error": {"code": 500}, "usage'}}]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '": {"prompt_tokens": 9}}'}}]}),
            chunk({"tool_calls": [{"index": 1, "id": "call_2", "function": {"name": "g", "arguments": "{}"}}]}),
            chunk({}, "tool_calls"),
            DONE,
        ]
    ),
    preamble=1,
    events=7,
)

CHAT_REFUSAL = Recorded(
    name="chat that is refused after a filtered prompt",
    data=b"".join(
        [
            data({"choices": [], "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}),
            chunk(ROLE),
            chunk({"refusal": "I cannot"}),
            chunk({"refusal": " do that."}, content_filter_offsets={"check_offset": 44}),
            chunk({}, "content_filter"),
            DONE,
        ]
    ),
    preamble=2,
    events=6,
)

CHAT_THINKING = Recorded(
    name="chat of a router, which thinks and tells its usage with the last text",
    data=b"".join(
        [
            b": ROUTER PROCESSING\n\n: ROUTER PROCESSING\n\n",
            chunk({"role": "assistant", "content": "", "reasoning": None}),
            chunk({"content": "", "reasoning": "Hm."}),
            b": ROUTER PROCESSING\n\n",
            chunk({"content": "42"}),
            chunk({"content": ""}, "stop", native_finish_reason="end_turn", usage={**USAGE, "cost": 0.00094}),
            DONE,
        ]
    ),
    preamble=1,
    events=5,
    usage=Usage(19, 10, 16),
)

COMPLETIONS = Recorded(
    name="completions, with usage so far in every chunk",
    path="/v1/completions",
    data=b"".join(
        [
            *(
                data(
                    {
                        "id": "cmpl-7",
                        "object": "text_completion",
                        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
                        "usage": {"prompt_tokens": 5, "total_tokens": 5 + number, "completion_tokens": number},
                    }
                )
                for number, (text, finish) in enumerate([("", None), (" once", None), (" 上", "length")])
            ),
            data({"id": "cmpl-7", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}),
            DONE,
        ]
    ),
    preamble=1,
    events=5,
    usage=Usage(5, 2),
)


def response(status: str, **rest: Any) -> dict[str, Any]:
    """Returns the state of a response, as the events that begin and end it bear it."""
    state: dict[str, Any] = {
        "id": "resp_67",
        "object": "response",
        "status": status,
        "error": None,
        "output": [],
        "usage": None,
    }
    return {"response": {**state, **rest}}


RESPONSE_USAGE: dict[str, Any] = {
    "input_tokens": 328,
    "input_tokens_details": {"cached_tokens": 300},
    "output_tokens": 52,
}
RESPONSE_USAGE |= {"output_tokens_details": {"reasoning_tokens": 32}, "total_tokens": 380}
REASONING: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": []}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "status": "in_progress",
    "role": "assistant",
    "content": [],
}

RESPONSE = Recorded(
    name="a response that thinks, calls a tool and speaks",
    path=RESPONSES,
    data=numbered(
        ("response.created", response("in_progress")),
        ("response.in_progress", response("in_progress")),
        ("response.output_item.added", {"output_index": 0, "item": REASONING}),
        ("response.reasoning_summary_part.added", {"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ("response.reasoning_summary_text.delta", {"summary_index": 0, "delta": "**Hm**", "obfuscation": "dV"}),
        ("response.output_item.done", {"output_index": 0, "item": REASONING}),
        ("response.output_item.added", {"output_index": 1, "item": {"type": "function_call", "arguments": ""}}),
        ("response.function_call_arguments.delta", {"output_index": 1, "delta": '{"response": 1}'}),
        ("response.output_item.added", {"output_index": 2, "item": MESSAGE}),
        ("response.content_part.added", {"output_index": 2, "part": {"type": "output_text", "text": ""}}),
        ("response.output_text.delta", {"output_index": 2, "delta": "Hi 👋", "obfuscation": "s"}),
        ("response.completed", response("completed", output=[MESSAGE], usage=RESPONSE_USAGE)),
    ),
    preamble=4,
    events=12,
    usage=Usage(328, 52, 300),
)

RESPONSE_CUT = Recorded(
    name="a response that reaches its longest",
    path=RESPONSES,
    data=numbered(
        ("response.created", response("in_progress")),
        ("response.output_item.added", {"output_index": 0, "item": MESSAGE}),
        ("response.output_text.delta", {"output_index": 0, "delta": "and so on and"}),
        (
            "response.incomplete",
            response("incomplete", incomplete_details={"reason": "max_output_tokens"}, usage=RESPONSE_USAGE),
        ),
    ),
    preamble=2,
    events=4,
    usage=Usage(328, 52, 300),
)

RESPONSE_FAILED = Recorded(
    name="a response that fails in the middle, and tells what it has used",
    path=RESPONSES,
    data=numbered(
        ("response.created", response("in_progress")),
        ("response.output_text.delta", {"output_index": 0, "delta": "Well"}),
        ("error", {"code": "server_error", "message": "The server had an error.", "param": None}),
        ("response.failed", response("failed", error={"code": "server_error", "message": "x"}, usage=RESPONSE_USAGE)),
    ),
    preamble=1,
    events=4,
    done=False,
    error=AnswerError(500, "server_error"),
    usage=Usage(328, 52, 300),
)

RECORDED = (
    CHAT,
    CHAT_TOOLS,
    CHAT_REFUSAL,
    CHAT_THINKING,
    COMPLETIONS,
    RESPONSE,
    RESPONSE_CUT,
    RESPONSE_FAILED,
    MESSAGE_THINKING,
    MESSAGE_OVERLOADED,
)
