"""Providers that answer with a call of the first tool they are offered, whole or in pieces, in two dialects."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.messages import DONE, event, named_event, said
from tests.integration.scripted import Exchange

ARGUMENTS = {"harbour": "Oban"}
_PIECES = ('{"harb', 'our": "Oban"}')
_USAGE = {"input_tokens": 9, "output_tokens": 4}


async def openai(exchange: Exchange) -> None:
    """A provider of OpenAI's dialect."""
    ask = exchange.request.json()
    name = ask["tools"][0]["function"]["name"]
    if ask.get("stream"):
        call = {"index": 0, "id": "t1", "type": "function", "function": {"name": name, "arguments": ""}}
        more = [{"index": 0, "function": {"arguments": piece}} for piece in _PIECES]
        await exchange.stream([event(None), *map(_event, [call, *more]), DONE])
        return
    call = {"id": "t1", "type": "function", "function": {"name": name, "arguments": json.dumps(ARGUMENTS)}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    await exchange.reply(
        200, {**said(""), "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    )


def _event(piece: dict[str, Any]) -> bytes:
    chunk = json.loads(event("").removeprefix(b"data: "))
    chunk["choices"][0]["delta"] = {"tool_calls": [piece]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def anthropic(exchange: Exchange) -> None:
    """A provider of Anthropic's dialect."""
    ask = exchange.request.json()
    block = {"type": "tool_use", "id": "t1", "name": ask["tools"][0]["name"]}
    message = {"id": "m", "type": "message", "role": "assistant", "model": ask["model"], "usage": _USAGE}
    end = {"stop_reason": "tool_use", "stop_sequence": None}
    if not ask.get("stream"):
        await exchange.reply(200, {**message, **end, "content": [{**block, "input": ARGUMENTS}]})
        return
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _PIECES]
    await exchange.stream(
        [
            named_event("message_start", message=begun),
            named_event("content_block_start", index=0, content_block={**block, "input": {}}),
            *(named_event("content_block_delta", index=0, delta=delta) for delta in deltas),
            named_event("content_block_stop", index=0),
            named_event("message_delta", delta=end, usage={"output_tokens": 4}),
            named_event("message_stop"),
        ]
    )
