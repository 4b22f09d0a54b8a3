"""Streams in the shapes that providers send, with what a scanner must see in each."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.dialects.errors import AnswerError
from proxy.exchange import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One stream: the path that it answers, its bytes, and what a scanner shows at its end.

    `preamble`: events before the one that brings the first content.
    """

    name: str
    path: str = "/v1/chat/completions"
    data: bytes
    events: int
    content: bool = True
    done: bool = True
    error: AnswerError | None = None
    usage: Usage | None = None
    malformed: int = 0
    preamble: int = 0


def chunk(delta: str, *, finish: str = "null", usage: str = "") -> bytes:
    """Returns an OpenAI chat chunk as compact JSON."""
    text = (
        '{"id":"c1","object":"chat.completion.chunk","created":1764460800,"model":"m-1","choices":'
        f'[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]{usage}}}'
    )
    return text.encode()


ROLE = b"data: " + chunk('{"role":"assistant","content":""}') + b"\n\n"
USAGE = b'{"id":"c1","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,'
USAGE += b'"prompt_tokens_details":{"cached_tokens":8}}}'
TEXTS = ("你好。", "é und e\u0301 ", "👩‍👩‍👧 done")

CHAT = Recorded(
    name="chat with usage in the last chunk, null before",
    data=b"".join(
        [
            b"data: " + chunk('{"role":"assistant","content":""}', usage=',"usage":null') + b"\n\n",
            *(b"data: " + chunk(f'{{"content":"{t}"}}', usage=',"usage":null') + b"\n\n" for t in TEXTS),
            b"data: " + chunk("{}", finish='"stop"', usage=',"usage":null') + b"\n\n",
            b"data: " + USAGE + b"\n\n",
            b"data: [DONE]\n\n",
        ]
    ),
    events=7,
    usage=Usage(12, 3, 8),
)

GRAMMAR = Recorded(
    name="every licence of the grammar",
    data=b"".join(
        [
            b"\xef\xbb\xbf: OPENROUTER PROCESSING\n\n:\n\n",
            b"retry: 3000\nid: 7\n\n",
            b"event: ping\n\n",
            b"data:" + chunk('{"role":"assistant"}') + b"\r\n\r\n",
            b": OPENROUTER PROCESSING\r\rdata: " + chunk('{"content":"usage \\"usage\\""}') + b"\r\r",
            b'data: {"choices":\ndata: [{"delta":{"content":"two lines"}}]}\n\n',
            b"id\ndata: " + USAGE.replace(b'"usage":', b'"usage" :') + b"\r\n\n",
            b"data:[DONE]\n\ndata: after the end\n\n: bye",
        ]
    ),
    events=6,
    usage=Usage(12, 3, 8),
)

TOOLS = Recorded(
    name="tool call, no usage, no end mark",
    data=ROLE
    + b"data: "
    + chunk('{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":""}}]}')
    + b"\n\ndata: "
    + chunk('{"tool_calls":[{"index":0,"function":{"arguments":"{\\"error\\":1}"}}]}')
    + b"\n\n",
    events=3,
    done=False,
)

LAST_WITHOUT_BLANK = Recorded(
    name="usage and end in a last event without blank line",
    data=ROLE + b"data: " + chunk('{"content":"x"}', finish='"stop"') + b"\n\ndata: " + USAGE + b"\n\ndata: [DONE]",
    events=4,
    usage=Usage(12, 3, 8),
)

ERROR_FIRST = Recorded(
    name="error instead of content",
    data=b": hello\n\n" + ROLE + b'data: {"error":{"message":"busy","type":"overloaded_error","code":null}}\n\n',
    events=2,
    content=False,
    done=False,
    error=AnswerError(529, "overloaded_error"),
)

ERROR_LATER = Recorded(
    name="error after content",
    data=ROLE
    + b"data: "
    + chunk('{"content":"x"}')
    + b'\n\ndata: {"error":{"message":"busy","code":429},"choices":[{"finish_reason":"error"}]}\n\n',
    events=3,
    done=False,
    error=AnswerError(429, "error"),
)


def typed(name: str, rest: str = "") -> bytes:
    """Returns an event whose name is also its type."""
    return f'event: {name}\ndata: {{"type":"{name}"{rest}}}\n\n'.encode()


RESPONSES = Recorded(
    name="responses",
    path="/v1/responses",
    data=b"".join(
        [
            typed("response.created", ',"response":{"id":"r","status":"in_progress","error":null,"usage":null}'),
            typed("response.in_progress", ',"response":{"id":"r","status":"in_progress","error":null}'),
            typed("response.output_item.added", ',"output_index":0,"item":{"type":"message","content":[]}'),
            typed("response.output_text.delta", ',"output_index":0,"delta":"Hi 👋"'),
            typed("response.output_text.done", ',"output_index":0,"text":"Hi 👋"'),
            typed(
                "response.completed",
                ',"response":{"id":"r","status":"completed","error":null,"usage":{"input_tokens":36,'
                '"input_tokens_details":{"cached_tokens":4},"output_tokens":87,"total_tokens":123}}',
            ),
        ]
    ),
    events=6,
    usage=Usage(36, 87, 4),
)

RESPONSES_FAILED = Recorded(
    name="responses that fail at once",
    path="/v1/responses",
    data=typed("response.created", ',"response":{"id":"r","error":null}')
    + typed(
        "response.failed",
        ',"response":{"id":"r","status":"failed","error":{"code":"rate_limit_exceeded","message":"x"},"usage":null}',
    ),
    events=2,
    content=False,
    error=AnswerError(429, "rate_limit_exceeded"),
)

MESSAGES = Recorded(
    name="messages",
    path="/v1/messages",
    data=b"".join(
        [
            typed(
                "message_start",
                ',"message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":25,'
                '"cache_creation_input_tokens":10,"cache_read_input_tokens":100,"output_tokens":1}}',
            ),
            typed("content_block_start", ',"index":0,"content_block":{"type":"text","text":""}'),
            typed("ping"),
            typed("content_block_delta", ',"index":0,"delta":{"type":"text_delta","text":"Grüß dich"}'),
            typed("content_block_stop", ',"index":0'),
            typed("message_delta", ',"delta":{"stop_reason":null},"usage":{"output_tokens":7}'),
            typed(
                "message_delta",
                ',"delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":25,"output_tokens":15}',
            ),
            typed("message_stop"),
        ]
    ),
    events=8,
    usage=Usage(135, 15, 100),
)

MESSAGES_OVERLOADED = Recorded(
    name="messages, overloaded after message_start",
    path="/v1/messages",
    data=typed("message_start", ',"message":{"usage":{"input_tokens":9,"output_tokens":1}}').replace(b"\n", b"\r\n")
    + typed("error", ',"error":{"type":"overloaded_error","message":"Overloaded"}').replace(b"\n", b"\r\n"),
    events=2,
    content=False,
    done=False,
    error=AnswerError(529, "overloaded_error"),
    usage=Usage(9, 1),
)

MALFORMED = Recorded(
    name="an event that is no JSON passes on",
    data=b"data: {broken\n\n" + b"data: " + chunk('{"content":"x"}') + b'\n\ndata: {"usage" broken\n\ndata: [DONE]\n\n',
    events=4,
    malformed=2,
)

STREAMS = (
    CHAT,
    GRAMMAR,
    TOOLS,
    LAST_WITHOUT_BLANK,
    ERROR_FIRST,
    ERROR_LATER,
    RESPONSES,
    RESPONSES_FAILED,
    MESSAGES,
    MESSAGES_OVERLOADED,
    MALFORMED,
)
