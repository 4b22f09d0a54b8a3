"""Answers that must not be given twice: each is told to who has asked, and the next one who asks gets a good one."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import (
    CHAT,
    DONE,
    ERROR_EVENT,
    ERROR_OBJECT,
    MESSAGE_START,
    MESSAGE_TEXT,
    OVERLOADED,
    answers,
    closes,
    event,
    in_turn,
    named_event,
    resets,
    said,
    says,
    streams,
)
from tests.integration.scripted import Exchange, Script

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "claude": {"breaker": "off", "dialect": "anthropic", "base_url": "http://127.0.0.1:{port}"},
    },
    "routes": [
        route("messages", "claude", match={"path": "/v1/messages"}, cache={"ttl": "1h"}, retry={"attempts": 1}),
        route("all", "alpha", match={"path": "*"}, cache={"ttl": "1h"}, retry={"attempts": 1}, repeatable=True),
    ],
}
CHAT_PATH = "/v1/chat/completions"
JSON = ("content-type", "application/json")
GOOD = json.dumps(said("bad")).encode()
FOR = {"/v1/messages": "claude"}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


def raw(head: str, body: bytes = b"", then: Callable[[Exchange], None] | None = None) -> Script:
    """A provider that answers with these bytes, and may then end the connection in its way."""

    async def script(exchange: Exchange) -> None:
        lines = head.replace("\n", "\r\n").encode()
        await exchange.send(b"HTTP/1.1 200 Said\r\n" + lines + b"\r\n\r\n" + body)
        if then is not None:
            then(exchange)

    return script


def typed(body: Any, *lines: tuple[str, str]) -> Script:
    """A provider that answers JSON with this body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answers(200, data, headers=[JSON, *lines])


def coded(coding: str, data: bytes) -> Script:
    """A provider that answers JSON in a coding."""
    return typed(data, ("content-encoding", coding))


def broken(*events: bytes, by: Callable[[Exchange], None]) -> Script:
    """A provider whose stream ends without its framing's end."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for one in events:
            await exchange.chunk(one)
        by(exchange)

    return script


def ended(choice: dict[str, Any]) -> dict[str, Any]:
    """Returns a chat answer whose choice says this too."""
    document = said("bad")
    document["choices"][0].update(choice)
    return document


def changed(**fields: Any) -> dict[str, Any]:
    """Returns a chat answer with other fields."""
    return {**said("bad"), **fields}


def response(**fields: Any) -> dict[str, Any]:
    """Returns an answer of the responses interface."""
    return {"id": "r", "object": "response", "model": "m", "output": [], **fields}


reset, close = Exchange.reset, Exchange.close
FAILED_CHOICE = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}
BOMB = zlib.compressobj(9, wbits=31)
PACKED_BOMB = BOMB.compress(b'{"choices":[' + b" " * (20 << 20)) + BOMB.compress(b"]}") + BOMB.flush()
WHOLE: dict[str, Script] = {
    **{f"status {status}": answers(status, said("bad")) for status in (201, 202, 203, 206, 400, 404, 429, 500, 503)},
    "no content": answers(204, b""),
    "moved": answers(302, said("bad"), headers=[("location", "/v1/elsewhere")]),
    "nothing": answers(200, b""),
    "nothing, of JSON": typed(b""),
    "a page": answers(200, b"<html>busy</html>", headers=[("content-type", "text/html")]),
    "a page as JSON": typed(b"<html>busy</html>"),
    "a text": answers(200, b"upstream error", headers=[("content-type", "text/plain")]),
    "JSON as a text": answers(200, GOOD, headers=[("content-type", "text/plain")]),
    "an error": typed(ERROR_OBJECT),
    "an error as a text": typed({"error": "worn out"}),
    "an error beside content": typed(changed(**ERROR_OBJECT)),
    "an error of another dialect": typed({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}),
    "a flat error": typed({"object": "error", "message": "worn out", "code": 500}),
    "an error in a list": typed([ERROR_OBJECT]),
    "a choice that failed": typed(ended({"finish_reason": "error"})),
    "an error in a choice": typed(ended({"error": {"code": 502, "message": "worn out"}})),
    "no document": typed(b"null"),
    "a number": typed(b"12"),
    "a JSON text": typed(b'"busy"'),
    "half a document": typed(GOOD[:-1]),
    "two documents": typed(GOOD + GOOD),
    "not a number": typed(b'{"choices":[],"x":NaN}'),
    "events": streams(event("bad"), DONE),
    "longer than it is": raw(f"content-type: application/json\ncontent-length: {len(GOOD) + 9}", GOOD, close),
    "longer than it is, reset": raw(f"content-type: application/json\ncontent-length: {len(GOOD) + 9}", GOOD, reset),
    "shorter than it is": raw(f"content-type: application/json\ncontent-length: {len(GOOD) - 9}", GOOD, close),
    "no last chunk": raw(
        "content-type: application/json\ntransfer-encoding: chunked", b"%x\r\n%b\r\n" % (len(GOOD), GOOD), close
    ),
    "to the end of the connection, cut": raw("content-type: application/json", GOOD[:-1], close),
    "reset": resets,
    "closed": closes,
    "not to be kept": typed(GOOD, ("cache-control", "private, No-Store")),
    "not to be kept, in the second line": typed(GOOD, ("cache-control", "public"), ("Cache-Control", "no-store")),
    "varies": typed(GOOD, ("vary", "*")),
    "varies by what is not asked": typed(GOOD, ("vary", "origin"), ("Vary", "accept, x-mood")),
    "varies by who asks with what": typed(GOOD, ("vary", "user-agent")),
    "packed, cut": coded("gzip", gzip.compress(GOOD)[:-9]),
    "packed, one byte off": coded("gzip", gzip.compress(GOOD)[:-8] + b"\0" * 8),
    "packed, rubbish": coded("gzip", b"no gzip at all"),
    "packed, and more": coded("gzip", gzip.compress(GOOD) + b"more"),
    "packed, in two members": coded("gzip", gzip.compress(GOOD) + gzip.compress(b"{}")),
    "packed, an error": coded("gzip", gzip.compress(json.dumps(ERROR_OBJECT).encode())),
    "packed, an error by deflate": coded("deflate", zlib.compress(json.dumps(ERROR_OBJECT).encode())),
    "packed, a page": coded("gzip", gzip.compress(b"<html>busy</html>")),
    "packed, nothing": coded("gzip", gzip.compress(b"")),
    "packed, a bomb": coded("gzip", PACKED_BOMB),
    "packed twice": coded("gzip, gzip", gzip.compress(gzip.compress(GOOD))),
    "packed in an unknown way": coded("br", GOOD),
    "packed, it says": coded("gzip", GOOD),
    "larger than is kept": typed(changed(text="x" * (5 << 20))),
}
STREAMS: dict[str, Script] = {
    "no end": streams(event("bad")),
    "no end, closed": broken(event("bad"), by=close),
    "no end, reset": broken(event("bad"), by=reset),
    "half an event": streams(event("bad"), event("bad")[:-9]),
    "half of the end": streams(event("bad"), b"data: [DON"),
    "an end without its line": streams(event("bad"), b"data: [DONE]x\n\n"),
    "an error": streams(ERROR_EVENT, DONE),
    "an error after content": streams(event(None), event("bad"), ERROR_EVENT, DONE),
    "an error after content, and no end": streams(event("bad"), ERROR_EVENT),
    "an error of another dialect after content": streams(event("bad"), OVERLOADED, DONE),
    "a choice that failed": streams(event("bad"), b"data: %b\n\n" % json.dumps(FAILED_CHOICE).encode(), DONE),
    "a broken event": streams(event("bad"), b'data: {"choices":[\n\n', DONE),
    "nothing": streams(),
    "nothing but an end": streams(DONE),
    "a document": typed(GOOD),
    "an error as a document": typed(ERROR_OBJECT),
    "a page": answers(200, b"<html>busy</html>", headers=[("content-type", "text/html")]),
    "events as a text": answers(200, event("bad") + DONE, headers=[("content-type", "text/plain")]),
    "longer than it is": raw("content-type: text/event-stream\ncontent-length: 9999", event("bad") + DONE, close),
    "not to be kept": answers(
        200, event("bad") + DONE, headers=[("content-type", "text/event-stream"), ("cache-control", "no-store")]
    ),
    "packed, cut": answers(
        200,
        gzip.compress(event("bad") + DONE)[:-9],
        headers=[("content-type", "text/event-stream"), ("content-encoding", "gzip")],
    ),
    "larger than is kept": streams(*[event("x" * (1 << 20))] * 5, DONE),
}
RESPONSES: dict[str, Script] = {
    **{
        f"status {status}": typed(response(status=status))
        for status in ("failed", "in_progress", "queued", "cancelled")
    },
    "an error": typed(response(status="failed", error={"code": "server_error", "message": "worn out"})),
    "a strange status": typed(response(status="odd")),
}
STARTED = named_event("response.created", response=response(status="in_progress"))
TEXT = named_event("response.output_text.delta", item_id="i", output_index=0, content_index=0, delta="bad")
RESPONSE_STREAMS: dict[str, Script] = {
    "no end": streams(STARTED, TEXT),
    "an end of another dialect": streams(STARTED, TEXT, DONE),
    "failed": streams(STARTED, TEXT, named_event("response.failed", response=response(status="failed"))),
    "an error": streams(STARTED, TEXT, named_event("error", code="server_error", message="worn out")),
    "reset": broken(STARTED, TEXT, by=reset),
}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 5}}
STOP = named_event("message_stop")
MESSAGE_STREAMS: dict[str, Script] = {
    "no end": streams(MESSAGE_START, MESSAGE_TEXT),
    "no end but its reason": streams(
        MESSAGE_START, MESSAGE_TEXT, named_event("message_delta", delta={"stop_reason": "x"})
    ),
    "an end of another dialect": streams(MESSAGE_START, MESSAGE_TEXT, DONE),
    "an error": streams(MESSAGE_START, MESSAGE_TEXT, OVERLOADED),
    "an error and an end": streams(MESSAGE_START, MESSAGE_TEXT, OVERLOADED, STOP),
    "half an end": streams(MESSAGE_START, MESSAGE_TEXT, STOP[:-4]),
    "reset": broken(MESSAGE_START, MESSAGE_TEXT, by=reset),
}
MESSAGE_ERRORS: dict[str, Script] = {
    "an error": typed({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}),
    "half a document": typed(json.dumps(MESSAGE).encode()[:-1]),
}
GOOD_STREAM = streams(event(None), event("good"), DONE)
KINDS: dict[str, tuple[str, bool, dict[str, Script], Script]] = {
    "chat": (CHAT_PATH, False, WHOLE, says("good")),
    "chat stream": (CHAT_PATH, True, STREAMS, GOOD_STREAM),
    "responses": ("/v1/responses", False, RESPONSES, typed(response(status="completed", note="good"))),
    "responses stream": (
        "/v1/responses",
        True,
        RESPONSE_STREAMS,
        streams(STARTED, TEXT, named_event("response.completed", response=response(status="completed", note="good"))),
    ),
    "messages": ("/v1/messages", False, MESSAGE_ERRORS, typed({**MESSAGE, "note": "good"})),
    "messages stream": (
        "/v1/messages",
        True,
        MESSAGE_STREAMS,
        streams(MESSAGE_START, named_event("content_block_delta", index=0, delta={"text": "good"}), STOP),
    ),
}
CASES = [(kind, name) for kind, (_, _, bad, _) in KINDS.items() for name in bad]


async def ask(lab: Lab, path: str, name: str, *, stream: bool) -> Answer:
    """Asks a question of this test's own."""
    body = {**CHAT, "max_tokens": 9, "case": name, **({"stream": True} if stream else {})}
    return await lab.call(path, body)


@pytest.mark.parametrize(("kind", "name"), CASES)
async def test_what_is_not_whole_good_and_meant_is_told_once(lab: Lab, kind: str, name: str) -> None:
    path, stream, scripts, good = KINDS[kind]
    provider = lab[FOR.get(path, "alpha")]
    provider.script = in_turn(scripts[name], good)
    first = await ask(lab, path, name, stream=stream)
    assert first.header("x-sponson-cache") == "miss"
    second = await ask(lab, path, name, stream=stream)
    third = await ask(lab, path, name, stream=stream)
    assert [answer.header("x-sponson-cache") for answer in (second, third)] == ["miss", "hit"]
    assert b"good" in second.body
    assert (third.status, third.body, len(provider.seen)) == (200, second.body, 2)
