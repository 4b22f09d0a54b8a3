"""A caller that goes away: in every phase the provider is let go, long before anything else would do it, and nothing
is left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import (
    CHAT,
    CHAT_STREAM,
    DONE,
    MESSAGE_START,
    MESSAGE_TEXT,
    MESSAGES_STREAM,
    answers,
    event,
    hangs,
    named_event,
    says,
)
from tests.integration.scripted import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"limits": {"concurrency": 1}, "timeouts": {"queue": "20s"}},
        "beta": {},
        "claude": {"dialect": "anthropic"},
        "failing": {"breaker": "off"},
        "last": {},
    },
    "routes": [
        route("tiers", "alpha", "beta", retry={"attempts": 3}),
        route("backing-off", "failing", retry={"attempts": 2, "base": "20s"}),
    ],
}
HOW = pytest.mark.parametrize("reset", [True, False], ids=["reset", "close"])
MULTIPART = ("content-type", "multipart/form-data; boundary=zzz")


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def blameless(clean: None, lab: Lab) -> AsyncIterator[None]:
    yield
    await lab.idle()
    breakers = (await lab.proxy.status())["breakers"]
    assert {row["state"] for row in breakers} <= {"closed"}
    assert sum(row["failures"] for row in breakers) == 0


async def leaves(lab: Lab, request: bytes, *, provider: str, reset: bool, pause: float = 0.0) -> None:
    """Sends a request, waits until the provider has it, and goes; the provider must be let go."""
    async with lab.wire() as wire:
        await wire.send(request)
        await lab[provider].has_seen(1)
        await asyncio.sleep(pause)
        wire.leave(reset=reset)
    await lab[provider].was_left()
    await recorded(lab)
    assert len(lab[provider].seen) == 1
    assert not lab["beta"].seen


async def recorded(lab: Lab) -> None:
    """Waits until the request is in the log, as one whose caller left."""
    await lab.proxy.until(lambda status: status["in_flight"] == 0)
    line = lab.proxy.request_lines()[-1]
    assert line["outcome"] == "client_left"
    assert line["level"] != "error"


def chat(model: str = "tiers", *, stream: bool = False) -> bytes:
    """Returns a chat's bytes."""
    return request_bytes("POST", "/v1/chat/completions", body={**(CHAT_STREAM if stream else CHAT), "model": model})


@HOW
async def test_leaving_before_the_head(lab: Lab, reset: bool) -> None:
    lab["alpha"].script = hangs
    await leaves(lab, chat(), provider="alpha", reset=reset)


@HOW
async def test_leaving_before_the_first_token(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event(None))
        await hangs(exchange)

    lab["alpha"].script = script
    await leaves(lab, chat(stream=True), provider="alpha", reset=reset, pause=0.05)


@HOW
async def test_leaving_in_mid_stream(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        while True:
            await exchange.chunk(event("more"))
            await asyncio.sleep(0.02)

    lab["alpha"].script = script
    await leaves(lab, chat(stream=True), provider="alpha", reset=reset, pause=0.2)


@HOW
async def test_leaving_a_stream_that_is_silent(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("one"))
        await hangs(exchange)

    lab["alpha"].script = script
    await leaves(lab, chat(stream=True), provider="alpha", reset=reset, pause=0.1)


@HOW
async def test_leaving_in_the_middle_of_a_download(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegin")
        await hangs(exchange)

    lab["alpha"].script = script
    request = request_bytes("GET", "/alpha/v1/files/f/content")
    await leaves(lab, request, provider="alpha", reset=reset, pause=0.1)


@HOW
async def test_leaving_while_queued(lab: Lab, reset: bool) -> None:
    go_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await go_on.wait()
        await says("hi")(exchange)

    lab["alpha"].script = script
    running = asyncio.ensure_future(lab.call("/alpha/v1/chat/completions", CHAT))
    await lab["alpha"].has_seen(1)
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/alpha/v1/chat/completions", body=CHAT))
        await lab.proxy.until(lambda status: status["queues"][0]["waiting"] == 1)
        wire.leave(reset=reset)
    await lab.proxy.until(lambda status: status["queues"][0]["waiting"] == 0)
    go_on.set()
    assert (await running).status == 200
    assert len(lab["alpha"].seen) == 1


@HOW
async def test_leaving_during_the_back_off(lab: Lab, reset: bool) -> None:
    lab["failing"].script = answers(503)
    async with lab.wire() as wire:
        await wire.send(chat("backing-off"))
        await lab["failing"].has_seen(1)
        await asyncio.sleep(0.1)
        wire.leave(reset=reset)
    await lab.proxy.until(lambda status: status["in_flight"] == 0)
    await recorded(lab)
    assert len(lab["failing"].seen) == 1


@HOW
async def test_leaving_while_the_body_is_still_coming(lab: Lab, reset: bool) -> None:
    head = request_bytes("POST", "/alpha/v1/chat/completions", headers=[("content-length", "5000")])
    async with lab.wire() as wire:
        await wire.send(head + b'{"model": "m", ')
        await lab.proxy.until(lambda status: status["in_flight"] == 1)
        wire.leave(reset=reset)
    await lab.proxy.until(lambda status: status["in_flight"] == 0)
    await recorded(lab)
    assert not lab["alpha"].seen


@HOW
async def test_leaving_during_an_upload(lab: Lab, reset: bool) -> None:
    lab["last"].reads_bodies = False

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()

    lab["last"].script = script
    head = request_bytes("POST", "/last/v1/audio", headers=[MULTIPART, ("content-length", "5000000")])
    async with lab.wire() as wire:
        await wire.send(head + b"u" * 100_000)
        await lab["last"].has_seen(1)
        await asyncio.sleep(0.05)
        wire.leave(reset=reset)
    await lab["last"].was_left()
    await recorded(lab)
    assert len(lab["last"].seen) == 1


async def test_leaving_an_upload_that_the_provider_does_not_take(lab: Lab) -> None:
    """Nobody listens to such a caller, whose bytes nobody wants."""
    lab["last"].reads_bodies = False

    async def script(exchange: Exchange) -> None:
        exchange.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await hangs(exchange)

    lab["last"].script = script
    size = 30 << 20
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/last/v1/audio", headers=[MULTIPART, ("content-length", str(size))]))
        wire.writer.write(bytes(size))
        await lab["last"].has_seen(1)
        await asyncio.sleep(0.5)
        assert wire.writer.transport.get_write_buffer_size()
        wire.leave()
        await recorded(lab)


@HOW
async def test_leaving_a_queue_behind_an_upload_that_nobody_reads(lab: Lab, reset: bool) -> None:
    lab["alpha"].script = hangs
    async with lab.wire() as running, lab.wire() as wire:
        await running.send(chat())
        await lab["alpha"].has_seen(1)
        await wire.send(request_bytes("POST", "/alpha/v1/audio", headers=[MULTIPART], body=bytes(100_000)))
        await lab.proxy.until(lambda status: status["queues"][0]["waiting"] == 1)
        wire.leave(reset=reset)
        await lab.proxy.until(lambda status: status["queues"][0]["waiting"] == 0)
        assert len(lab["alpha"].seen) == 1


async def test_half_close_counts_as_leaving(lab: Lab) -> None:
    lab["alpha"].script = hangs
    async with lab.wire() as wire:
        await wire.send(chat())
        await lab["alpha"].has_seen(1)
        wire.writer.write_eof()
        await lab["alpha"].was_left()


@HOW
@pytest.mark.parametrize(
    ("provider", "path", "body", "events"),
    [
        ("beta", "/beta/v1/chat/completions", CHAT_STREAM, [event("all"), DONE]),
        (
            "beta",
            "/beta/v1/responses",
            {"model": "m", "input": "hello", "stream": True},
            [named_event("response.output_text.delta", delta="all"), named_event("response.completed", response={})],
        ),
        ("claude", "/claude/v1/messages", MESSAGES_STREAM, [MESSAGE_START, MESSAGE_TEXT, named_event("message_stop")]),
    ],
    ids=["chat", "responses", "messages"],
)
async def test_closing_right_after_the_last_event_is_a_success(
    lab: Lab, provider: str, path: str, body: dict[str, Any], events: list[bytes], reset: bool
) -> None:
    """The caller has all of it, though the provider has not ended its answer."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in events:
            await exchange.chunk(part)
        await hangs(exchange)

    lab[provider].script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", path, body=body))
        await wire.reader.readuntil(events[-1])
        wire.leave(reset=reset)
    await lab[provider].was_left()
    await lab.proxy.until(lambda status: status["in_flight"] == 0)
    line = lab.proxy.request_lines()[-1]
    assert (line["outcome"], line["provider"]) == ("ok", provider)


async def test_twenty_who_leave_cost_no_permit(lab: Lab) -> None:
    lab["alpha"].script = hangs
    for _ in range(20):
        await lab.call("/alpha/v1/chat/completions", CHAT, within=0.03)
    lab["alpha"].script = says("hi")
    answer = await lab.call("/alpha/v1/chat/completions", CHAT)
    assert answer.status == 200


async def test_leaving_a_stream_does_not_hurt_the_next_on_the_same_provider(lab: Lab) -> None:
    lab["beta"].script = hangs
    call = asyncio.ensure_future(lab.call("/beta/v1/chat/completions", CHAT_STREAM))
    await lab["beta"].has_seen(1)
    call.cancel()
    await lab["beta"].was_left()
    lab["beta"].script = says("hi")
    assert (await lab.call("/beta/v1/chat/completions", CHAT)).status == 200
    first, second = lab["beta"].seen
    assert first.connection != second.connection
