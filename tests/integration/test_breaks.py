"""Streams that do not come to their end: the caller sees a break, never a clean end or a second beginning."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import (
    CHAT_STREAM,
    ERROR_EVENT,
    MESSAGE_START,
    MESSAGE_TEXT,
    MESSAGES_STREAM,
    OVERLOADED,
    event,
    named_event,
    streams,
)
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

HOW = ("reset_after", "close_after", "silent_after", "garbled_after", "half_an_event_after")
SHORT = {"first_byte": "3s", "idle": "300ms", "answer": "3s"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "beta": {"breaker": "off"},
        "brief": {"breaker": "off", "timeouts": SHORT},
        "counted": {"models": {f"leaves-{reset}-{key}": {} for reset in (True, False) for key in (True, False)}},
        "failing": {"timeouts": SHORT, "models": {f"broken-{name}": {} for name in HOW}},
        "claude": {"dialect": "anthropic", "breaker": "off", "timeouts": SHORT},
    },
    "routes": [route("tiers", "alpha", "beta", retry={"attempts": 3, "base": "10ms"})],
}


HALF = b'data: {"choices":[{"delta":{"con'


async def reset_after(exchange: Exchange) -> None:
    await asyncio.sleep(0.05)
    exchange.reset()


async def close_after(exchange: Exchange) -> None:
    await asyncio.sleep(0.05)
    exchange.close()


async def silent_after(exchange: Exchange) -> None:
    await asyncio.sleep(30)


async def garbled_after(exchange: Exchange) -> None:
    await exchange.send(b"zz\r\nno chunk\r\n")
    await asyncio.sleep(0.2)


async def half_an_event_after(exchange: Exchange) -> None:
    await exchange.chunk(HALF)
    await asyncio.sleep(0.05)
    exchange.reset()


BREAKS = [reset_after, close_after, silent_after, garbled_after]
RESPONSES_STREAM = {"model": "m", "input": "hello", "stream": True}
DELTA = named_event("response.output_text.delta", delta="a")


def breaks(*events: bytes, by: Script) -> Script:
    """A provider whose stream breaks after these events."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in events:
            await exchange.chunk(part)
            await asyncio.sleep(0.01)
        await by(exchange)

    return script


def shows_a_break(answer: Answer, sent: bytes) -> bytes:
    """Checks that the caller can see that something is missing; returns what follows the provider's bytes."""
    assert answer.status == 200
    assert not answer.complete
    assert answer.body.startswith(sent)
    assert b"[DONE]" not in answer.body
    return answer.body[len(sent) :]


@pytest.mark.parametrize("by", BREAKS, ids=lambda by: by.__name__)
async def test_break_is_an_error_event_and_an_incomplete_body(lab: Lab, by: Script) -> None:
    sent = [event(None), event("a"), event("b")]
    lab["brief"].script = breaks(*sent, by=by)
    answer = await lab.call("/brief/v1/chat/completions", CHAT_STREAM, within=2)
    rest = shows_a_break(answer, b"".join(sent))
    last = rest.rstrip().rpartition(b"\n")[2]
    assert last.startswith(b'data: {"error"')
    assert (b"idle_timeout" in last) == (by is silent_after)
    assert rest.endswith(b"\n\n")
    assert len(lab["brief"].seen) == 1


@pytest.mark.parametrize("by", [reset_after, silent_after], ids=lambda by: by.__name__)
async def test_break_of_a_messages_stream_is_told_in_its_dialect(lab: Lab, by: Script) -> None:
    lab["claude"].script = breaks(MESSAGE_START, MESSAGE_TEXT, by=by)
    answer = await lab.call("/claude/v1/messages", MESSAGES_STREAM)
    rest = shows_a_break(answer, MESSAGE_START + MESSAGE_TEXT)
    assert b'event: error\ndata: {"type":"error","error":{' in rest
    assert b"message_stop" not in rest


@pytest.mark.parametrize("by", [reset_after, silent_after], ids=lambda by: by.__name__)
async def test_break_of_a_response_is_an_error_for_the_sdks(lab: Lab, by: Script) -> None:
    lab["brief"].script = breaks(DELTA, by=by)
    rest = shows_a_break(await lab.call("/brief/v1/responses", RESPONSES_STREAM), DELTA)
    told = json.loads(rest.rstrip().rpartition(b"data: ")[2])
    assert told["error"]["code"] == ("idle_timeout" if by is silent_after else "upstream_unreachable")


async def test_break_of_a_response_is_told_in_its_own_shape(lab: Lab) -> None:
    lab["brief"].script = breaks(DELTA, by=reset_after)
    rest = shows_a_break(await lab.call("/brief/v1/responses", RESPONSES_STREAM), DELTA)
    name, _, data = rest.strip().partition(b"\ndata: ")
    assert name == b"event: error"
    assert json.loads(data)["type"] == "error"


async def test_break_within_an_event_can_be_seen(lab: Lab) -> None:
    lab["brief"].script = breaks(event("a"), by=half_an_event_after)
    shows_a_break(await lab.call("/brief/v1/chat/completions", CHAT_STREAM), event("a") + HALF)


async def test_half_an_event_is_not_completed_by_ours(lab: Lab) -> None:
    """Its reader would be given what cannot be read, instead of the break."""
    lab["brief"].script = breaks(event("a"), by=half_an_event_after)
    answer = await lab.call("/brief/v1/chat/completions", CHAT_STREAM)
    *events, rest = answer.body.split(b"\n\n")
    assert [json.loads(text.removeprefix(b"data: ")) for text in events]
    assert rest == HALF


@pytest.mark.parametrize("by", [*BREAKS, half_an_event_after], ids=lambda by: by.__name__)
async def test_break_is_a_failure_of_the_provider(lab: Lab, by: Script) -> None:
    model = f"broken-{by.__name__}"
    lab["failing"].script = breaks(event("a"), by=by)
    answer = await lab.call("/failing/v1/chat/completions", {**CHAT_STREAM, "model": model})
    shows_a_break(answer, event("a"))
    await lab.idle()
    assert (await lab.row("breakers", provider="failing", model=model))["failures"] == 1
    wanted = "idle_timeout" if by is silent_after else "stream_broken"
    assert (await lab.proxy.line_of(answer))["outcome"] == wanted


async def test_nothing_of_a_second_attempt_follows_the_first_content(lab: Lab) -> None:
    lab["alpha"].script = breaks(event("a"), by=reset_after)
    lab["beta"].script = streams(event("second"))
    answer = await lab.chat("tiers", stream=True)
    shows_a_break(answer, event("a"))
    assert (len(lab["alpha"].seen), len(lab["beta"].seen)) == (1, 0)


async def test_cut_length_stays_incomplete(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"x" * 400)
        await reset_after(exchange)

    lab["alpha"].script = script
    answer = await lab.call("/alpha/v1/files/f/content", method="GET")
    assert (answer.status, answer.complete, answer.body) == (200, False, b"x" * 400)


async def test_cut_lines_stay_incomplete_and_gain_no_event(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin("application/x-ndjson")
        await exchange.chunk(b'{"response":"a"}\n')
        await reset_after(exchange)

    lab["alpha"].script = script
    answer = await lab.call("/alpha/api/generate", {"model": "m"})
    assert (answer.complete, answer.body) == (False, b'{"response":"a"}\n')


@pytest.mark.parametrize("by", [*BREAKS, half_an_event_after], ids=lambda by: by.__name__)
@pytest.mark.parametrize("media", ["text/event-stream", "application/x-ndjson"])
async def test_break_is_a_reset_where_the_end_of_the_connection_is_the_end_of_the_answer(
    lab: Lab, by: Script, media: str
) -> None:
    """A caller of HTTP/1.0 has no other way to see that something is missing."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin(media)
        await exchange.chunk(event("a"))
        await by(exchange)

    lab["brief"].script = script
    request = request_bytes("POST", "/brief/v1/chat/completions", body=CHAT_STREAM)
    async with lab.wire() as wire:
        await wire.send(request.replace(b" HTTP/1.1", b" HTTP/1.0"))
        answer = await wire.answer()
    assert (answer.header("content-length"), answer.header("transfer-encoding")) == (None, None)
    shows_a_break(answer, event("a"))
    assert answer.seconds < 10


async def test_error_event_after_content_passes_and_is_a_failure(lab: Lab) -> None:
    lab["counted"].script = streams(event("a"), ERROR_EVENT)
    answer = await lab.call("/counted/v1/chat/completions", CHAT_STREAM)
    assert answer.body.startswith(event("a") + ERROR_EVENT)
    assert b"[DONE]" not in answer.body
    assert (await lab.proxy.line_of(answer))["outcome"] == "error_in_answer"
    assert (await lab.row("breakers", provider="counted", model="m"))["failures"] == 1


@pytest.mark.parametrize("key", [[], [("idempotency-key", "leaves-at-the-error")]], ids=["alone", "keyed"])
@pytest.mark.parametrize("reset", [True, False], ids=["reset", "close"])
async def test_error_event_is_a_failure_also_when_its_reader_leaves_at_once(
    lab: Lab, reset: bool, key: list[tuple[str, str]]
) -> None:
    """As SDKs do, which raise at the event; the provider has not ended its answer by then."""
    failed = named_event("response.failed", response={"error": {"code": "server_error", "message": "worn out"}})

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(DELTA)
        await exchange.chunk(failed)
        await asyncio.sleep(30)

    lab["counted"].script = script
    model = f"leaves-{reset}-{bool(key)}"
    async with lab.wire() as wire:
        body = {**RESPONSES_STREAM, "model": model}
        await wire.send(request_bytes("POST", "/counted/v1/responses", headers=key, body=body))
        await wire.reader.readuntil(failed)
        wire.leave(reset=reset)
    await lab["counted"].was_left()
    await lab.idle()
    assert lab.proxy.request_lines()[-1]["outcome"] == "error_in_answer"
    assert (await lab.row("breakers", provider="counted", model=model))["failures"] == 1


async def test_overload_after_the_text_passes_and_no_message_starts_twice(lab: Lab) -> None:
    lab["claude"].script = streams(MESSAGE_START, MESSAGE_TEXT, OVERLOADED)
    answer = await lab.call("/claude/v1/messages", MESSAGES_STREAM)
    assert answer.body.startswith(MESSAGE_START + MESSAGE_TEXT + OVERLOADED)
    assert answer.body.count(b'"message_start"') == 1
