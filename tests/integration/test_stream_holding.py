"""What is held back of a stream, when, and for how long: nothing of an attempt that could still be replaced is seen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import (
    CHAT_STREAM,
    DONE,
    ERROR_EVENT,
    MESSAGE_START,
    MESSAGE_TEXT,
    MESSAGES_STREAM,
    OVERLOADED,
    answers,
    event,
    hangs,
    named_event,
    streams,
)
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

FIRST = {"breaker": "off", "timeouts": {"first_byte": "5s"}}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "first": FIRST,
        "second": {"breaker": "off"},
        "impatient": {"breaker": "off", "timeouts": {"first_byte": "500ms"}},
        "claude": {**FIRST, "dialect": "anthropic"},
        "claudius": {"breaker": "off", "dialect": "anthropic"},
        "foreign": {**FIRST, "dialect": "opaque"},
    },
    "routes": [
        route("tiers", "first", "second", retry={"attempts": 1}),
        route("lone", "first", retry={"attempts": 1}),
        route("messages", "claude", "claudius", retry={"attempts": 1}),
        route("impatient", "impatient", "second", retry={"attempts": 1}),
        route("foreign", "foreign", "second", retry={"attempts": 1}),
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One dialect's stream: where it is asked for, what comes before its content, what is content, how it fails."""

    path: str
    body: dict[str, Any]
    tiers: tuple[str, str]
    preamble: tuple[bytes, ...]
    content: bytes
    error: bytes
    end: bytes


FORMATS = {
    "chat": Format(
        path="/v1/chat/completions",
        body={**CHAT_STREAM, "model": "tiers"},
        tiers=("first", "second"),
        preamble=(b"\xef\xbb\xbf: hello\r\n\r\n", event(None), b"event: ping\ndata: {}\n\n", b":\n\n"),
        content=event("a"),
        error=ERROR_EVENT,
        end=DONE,
    ),
    "responses": Format(
        path="/v1/responses",
        body={"model": "tiers", "input": "hello", "stream": True},
        tiers=("first", "second"),
        preamble=(
            named_event("response.created", response={"id": "r", "error": None}),
            b": still here\n\n",
            named_event("response.in_progress", response={"id": "r", "error": None}),
            named_event("response.output_item.added", item={"type": "message", "content": []}),
            named_event("keepalive"),
        ),
        content=named_event("response.output_text.delta", delta="a"),
        error=named_event("response.failed", response={"id": "r", "error": {"code": "server_error", "message": "x"}}),
        end=named_event("response.completed", response={"id": "r", "error": None}),
    ),
    "messages": Format(
        path="/v1/messages",
        body={**MESSAGES_STREAM, "model": "messages"},
        tiers=("claude", "claudius"),
        preamble=(
            MESSAGE_START,
            named_event("ping"),
            named_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        ),
        content=MESSAGE_TEXT,
        error=OVERLOADED,
        end=named_event("message_stop"),
    ),
}
every = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)


class Arrivals:
    """What has come to the caller of one stream so far."""

    def __init__(self) -> None:
        self.data = b""
        self._more = asyncio.Event()

    def came(self, piece: bytes) -> None:
        """Takes a piece."""
        self.data += piece
        self._more.set()

    async def of(self, wanted: bytes) -> None:
        """Waits until these bytes have come, and no others."""
        async with asyncio.timeout(10):
            while self.data != wanted:
                self._more.clear()
                await self._more.wait()


async def ask(lab: Lab, path: str, body: dict[str, Any], arrivals: Arrivals) -> Answer:
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", path, body=body))
        return await wire.answer(on_piece=arrivals.came)


@every
async def test_preamble_is_held_until_the_content_and_then_passed_on_byte_for_byte(lab: Lab, form: Format) -> None:
    arrivals = Arrivals()
    before = b"".join(form.preamble)

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in form.preamble:
            await exchange.chunk(part)
            await asyncio.sleep(0.05)
        assert arrivals.data == b""
        await exchange.chunk(form.content)
        await arrivals.of(before + form.content)
        await exchange.chunk(form.end)
        await exchange.end()

    lab[form.tiers[0]].script = script
    answer = await ask(lab, form.path, form.body, arrivals)
    assert (answer.complete, answer.provider) == (True, form.tiers[0])
    assert answer.body == before + form.content + form.end


async def reset_now(exchange: Exchange) -> None:
    await asyncio.sleep(0.05)
    exchange.reset()


async def end_in_half_an_event(exchange: Exchange) -> None:
    await exchange.chunk(b'data: {"choices":[{"delta":{"con')
    await asyncio.sleep(0.05)
    exchange.close()


async def say_error(exchange: Exchange) -> None:
    form = next(form for form in FORMATS.values() if form.path.encode() == exchange.request.target)
    await exchange.chunk(form.error)
    await exchange.end()


@pytest.mark.parametrize("fails", [say_error, reset_now, end_in_half_an_event], ids=lambda fails: fails.__name__)
@every
async def test_attempt_that_fails_before_its_content_is_replaced_unseen(lab: Lab, form: Format, fails: Script) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin(headers=[("x-from", "first")])
        for part in form.preamble:
            await exchange.chunk(part)
        await fails(exchange)

    first, second = form.tiers
    lab[first].script = script
    lab[second].script = streams(*form.preamble, form.content, form.end)
    answer = await lab.call(form.path, form.body)
    assert (answer.status, answer.complete, answer.provider, answer.tier) == (200, True, second, 2)
    assert answer.body == b"".join((*form.preamble, form.content, form.end))
    assert answer.header("x-from") is None
    assert (len(lab[first].seen), len(lab[second].seen)) == (1, 1)


@every
async def test_error_after_the_content_is_passed_on_and_replaced_by_nothing(lab: Lab, form: Format) -> None:
    first, second = form.tiers
    lab[first].script = streams(*form.preamble, form.content, form.error)
    answer = await lab.call(form.path, form.body)
    assert answer.body.startswith(b"".join((*form.preamble, form.content, form.error)))
    assert answer.provider == first
    assert not lab[second].seen
    assert (await lab.proxy.line_of(answer))["outcome"] == "error_in_answer"


async def test_no_more_than_64_kib_are_held(lab: Lab) -> None:
    """The caller gets the beginning although its content has not come, long before all that might be held for 2 s."""
    arrivals, comment, sent = Arrivals(), b": " + b"w" * 4093 + b"\n", 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.begin()
        while not arrivals.data and sent < 1 << 20:
            await exchange.chunk(comment)
            sent += len(comment)
            await asyncio.sleep(0.01)
        await exchange.chunk(DONE)
        await exchange.end()

    lab["first"].script = script
    answer = await ask(lab, "/v1/chat/completions", {**CHAT_STREAM, "model": "tiers"}, arrivals)
    assert answer.complete
    assert answer.body.count(comment) * len(comment) == sent
    assert 65536 <= sent < 1 << 19


@pytest.mark.parametrize("model", ["lone", "last tier", "foreign"])
async def test_what_cannot_be_replaced_or_told_apart_is_passed_on_at_once(lab: Lab, model: str) -> None:
    """The provider sends its content only when the caller has what came before it."""
    arrivals = Arrivals()

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event(None))
        await arrivals.of(event(None))
        await exchange.chunk(ERROR_EVENT)
        await exchange.end()

    lab["first"].script = lab["foreign"].script = script
    path = "/v1/chat/completions"
    if model == "last tier":
        model, lab["first"].script, lab["second"].script = "tiers", answers(503), script
    if model == "foreign":
        path = "/v1/something/else"
    answer = await ask(lab, path, {**CHAT_STREAM, "model": model}, arrivals)
    assert answer.body.startswith(event(None) + ERROR_EVENT)
    assert answer.attempts == (2 if lab["second"].seen else 1)


@pytest.mark.parametrize("sign", [b": still here\n\n", b"event: ping\ndata: {}\n\n", event(None)])
async def test_signs_of_life_are_no_content(lab: Lab, sign: bytes) -> None:
    """A provider that says only that it lives has not answered: the next one is asked."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        while True:
            await exchange.chunk(sign)
            await asyncio.sleep(0.05)

    lab["impatient"].script = script
    lab["second"].script = streams(event("b"), DONE)
    answer = await lab.chat("impatient", stream=True)
    assert (answer.body, answer.tier) == (event("b") + DONE, 2)
    assert len(lab["impatient"].seen) == 1


async def test_stream_without_any_content_is_passed_on_as_it_came(lab: Lab) -> None:
    lab["first"].script = streams(b": nothing to say\n\n", event(None), DONE)
    answer = await lab.chat("tiers", stream=True)
    assert (answer.body, answer.complete) == (b": nothing to say\n\n" + event(None) + DONE, True)
    assert not lab["second"].seen


async def test_head_alone_is_not_passed_on(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin(headers=[("x-from", "first")])
        await hangs(exchange)

    lab["impatient"].script = script
    lab["second"].script = streams(event("b"), DONE)
    answer = await lab.chat("impatient", stream=True)
    assert (answer.header("x-from"), answer.tier, answer.body) == (None, 2, event("b") + DONE)
