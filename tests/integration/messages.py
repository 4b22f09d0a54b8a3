"""Bodies, events and scripts that many tests send."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.integration.caller import Headers
from tests.integration.scripted import Exchange, Script

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
CHAT_STREAM: dict[str, Any] = {**CHAT, "stream": True}
EMBED: dict[str, Any] = {"model": "m", "input": "hello"}
MESSAGES: dict[str, Any] = {**CHAT, "max_tokens": 9}
MESSAGES_STREAM: dict[str, Any] = {**MESSAGES, "stream": True}
DONE = b"data: [DONE]\n\n"
ERROR_EVENT = b'data: {"error": {"message": "worn out", "type": "server_error", "code": "server_error"}}\n\n'
ERROR_OBJECT = {"error": {"message": "worn out", "type": "server_error", "code": "server_error"}}


def said(text: str) -> dict[str, Any]:
    """Returns an OpenAI chat answer."""
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}


def event(text: str | None) -> bytes:
    """Returns an OpenAI chunk: some text, or for None the role that comes before any."""
    delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": None}]
    document = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def named_event(name: str, **fields: Any) -> bytes:
    """Returns an Anthropic event."""
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


MESSAGE_START = named_event(
    "message_start",
    message={"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 5}},
)
MESSAGE_TEXT = named_event("content_block_delta", index=0, delta={"type": "text_delta", "text": "well"})
OVERLOADED = named_event("error", error={"type": "overloaded_error", "message": "too many"})


def says(text: str, *, after: float = 0.0) -> Script:
    """A provider that answers a chat."""
    return answers(200, said(text), after=after)


def answers(status: int, body: Any = None, *, headers: Headers = (), after: float = 0.0) -> Script:
    """A provider that always gives this answer."""
    document = {"error": {"message": f"this is {status}", "type": "error", "code": None}} if body is None else body

    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(after)
        await exchange.reply(status, document, headers=headers)

    return script


def streams(*events: bytes, gap: float = 0.0) -> Script:
    """A provider that answers with these events."""

    async def script(exchange: Exchange) -> None:
        await exchange.stream(events, gap=gap)

    return script


async def hangs(exchange: Exchange) -> None:
    """A provider that accepts and never answers."""
    await asyncio.sleep(3600)


async def resets(exchange: Exchange) -> None:
    """A provider whose connection is reset before any answer."""
    exchange.reset()


async def closes(exchange: Exchange) -> None:
    """A provider that closes instead of answering."""
    exchange.close()


async def babbles(exchange: Exchange) -> None:
    """A provider that does not speak HTTP."""
    await exchange.send(b"\x15\x03\x01\x00\x02\x02\x16 what?\r\n\r\n")
    exchange.close()


def when(gate: asyncio.Event, script: Script) -> Script:
    """A provider that goes on when the gate opens."""

    async def waiting(exchange: Exchange) -> None:
        await gate.wait()
        await script(exchange)

    return waiting


def in_two_parts(more: asyncio.Event) -> Script:
    """A provider whose stream goes on after its first event when `more` is set."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("one "))
        await more.wait()
        await exchange.chunk(event("two"))
        await exchange.chunk(DONE)
        await exchange.end()

    return script


def in_turn(*scripts: Script) -> Script:
    """A provider that takes one script after the other and stays with the last."""
    left = list(scripts)

    async def script(exchange: Exchange) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(exchange)

    return script
