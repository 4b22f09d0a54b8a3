"""The kinds of request that the demo sends, and when the answer to one is whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from proxy.simulation.demo.settings import CHAT_MODEL, EMBEDDING_MODEL, MESSAGES_MODEL

_QUESTION = "Say in one sentence what a proxy between an application and its model providers is good for."


class Operation(StrEnum):
    """A kind of request, as the report names it."""

    CHAT = "chat"
    STREAM = "chat stream"
    EMBEDDINGS = "embeddings"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is sent, and whether a body with status 200 is a whole answer to it."""

    path: str
    body: bytes
    whole: Callable[[bytes], bool]


def _call(path: str, body: dict[str, Any], whole: Callable[[bytes], bool]) -> Call:
    return Call(path=path, body=orjson.dumps(body), whole=whole)


def _has(field: str) -> Callable[[bytes], bool]:
    def whole(body: bytes) -> bool:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            return False
        return isinstance(document, dict) and bool(document.get(field))

    return whole


def _ends_with_done(body: bytes) -> bool:
    return body.endswith(b"data: [DONE]\n\n")


_CHAT = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": _QUESTION}]}

CALLS = {
    Operation.CHAT: _call("/v1/chat/completions", _CHAT, _has("choices")),
    Operation.STREAM: _call(
        "/v1/chat/completions",
        {**_CHAT, "stream": True, "stream_options": {"include_usage": True}},
        _ends_with_done,
    ),
    Operation.EMBEDDINGS: _call("/v1/embeddings", {"model": EMBEDDING_MODEL, "input": [_QUESTION]}, _has("data")),
    Operation.MESSAGES: _call(
        "/v1/messages",
        {"model": MESSAGES_MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": _QUESTION}]},
        _has("content"),
    ),
}
