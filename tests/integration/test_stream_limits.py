"""The limits of a stream: to its first content, between its events, and for all of it; what each says when it ends one.

Every provider here would go on for ever: a limit that does not hold keeps its test waiting.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT_STREAM, DONE, MESSAGE_START, MESSAGE_TEXT, MESSAGES_STREAM, event, hangs
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

RESPONSES = {"model": "m", "input": "hello", "stream": True}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "slow": {"breaker": "off", "timeouts": {"first_byte": "500ms"}},
        "patient": {"breaker": "off", "timeouts": {"first_byte": "3s"}},
        "idle": {"breaker": "off", "timeouts": {"idle": "400ms"}},
        "messages": {"dialect": "anthropic", "breaker": "off", "timeouts": {"idle": "400ms"}},
        "long": {"breaker": "off", "timeouts": {"stream": "600ms"}},
        "counted": {"timeouts": {"idle": "400ms", "first_byte": "600ms", "stream": "2s"}},
        "narrow": {"breaker": "off", "limits": {"concurrency": 1}, "timeouts": {"idle": "400ms", "queue": "10s"}},
    },
    "routes": [
        route("patient", "patient", retry={"attempts": 2}),
        route("slow", "slow", retry={"attempts": 1}),
        route("counted", "counted", retry={"attempts": 1}),
        route("hurried", {"provider": "idle", "queue": "10ms", "quota_wait": "10ms"}, total="700ms"),
    ],
}


LONE = {rule["name"] for rule in POLICY["routes"]}
HALF = b"data: {"


def for_ever(*parts: bytes, first: tuple[bytes, ...] = (), gap: float = 0.05) -> Script:
    """A provider that says the first parts once, and the others over and over."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in first:
            await exchange.chunk(part)
        while True:
            for part in parts:
                await asyncio.sleep(gap)
                await exchange.chunk(part)

    return script


def silent_after(*parts: bytes) -> Script:
    """A provider that stops after these parts, and keeps the connection."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in parts:
            await exchange.chunk(part)
        await hangs(exchange)

    return script


async def ended(lab: Lab, provider: str, path: str = "/v1/chat/completions", body: Any = CHAT_STREAM) -> Answer:
    """Calls this provider by its route or its path; the stream must break, and the provider must be let go."""
    prefix = "" if provider in LONE else f"/{provider}"
    answer = await lab.call(prefix + path, {**body, "model": provider})
    assert (answer.status, answer.complete) == (200, False)
    assert DONE not in answer.body
    await lab[provider].was_left()
    return answer


@pytest.mark.parametrize("sign", [b": still here\n\n", event(None), b"event: ping\ndata: {}\n\n", HALF])
async def test_first_content_is_waited_for_whatever_else_comes(lab: Lab, sign: bytes) -> None:
    lab["slow"].script = for_ever(sign)
    answer = await ended(lab, "slow")
    assert answer.body.startswith(sign)
    # Half an event is not completed by one of ours.
    assert (
        answer.body.endswith(HALF) if sign is HALF else b'"code":"first_byte_timeout"' in answer.body.splitlines()[-2]
    )
    assert (await lab.proxy.line_of(answer))["outcome"] == "first_byte_timeout"


async def test_first_content_is_waited_for_after_what_was_held_is_passed_on(lab: Lab) -> None:
    """What is held for 2 s is passed on then; the limit to the first content of 3 s goes on."""
    lab["patient"].script = for_ever(b": still here\n\n")
    answer = await ended(lab, "patient")
    assert (answer.attempts, len(lab["patient"].seen)) == (1, 1)
    assert answer.body.startswith(b": still here\n\n" * 20)
    assert b'"code":"first_byte_timeout"' in answer.body.splitlines()[-2]


@pytest.mark.parametrize(
    ("provider", "path", "body", "content", "told"),
    [
        ("idle", "/v1/chat/completions", CHAT_STREAM, event("a"), b'data: {"error":{'),
        ("idle", "/v1/responses", RESPONSES, b'data: {"type":"response.output_text.delta"}\n\n', b"data: {"),
        ("messages", "/v1/messages", MESSAGES_STREAM, MESSAGE_START + MESSAGE_TEXT, b'data: {"type":"error","error":{'),
    ],
    ids=["chat", "responses", "messages"],
)
async def test_silence_ends_a_stream_in_its_dialect(
    lab: Lab, provider: str, path: str, body: dict[str, Any], content: bytes, told: bytes
) -> None:
    lab[provider].script = silent_after(content)
    answer = await ended(lab, provider, path, body)
    assert answer.body.startswith(content)
    last = answer.body.splitlines()[-2]
    assert last.startswith(told)
    assert b'"code":"idle_timeout"' in last
    assert (await lab.proxy.line_of(answer))["outcome"] == "idle_timeout"


@pytest.mark.parametrize("drip", [b"x", b"data: x\n", b"data:", b"id: 1\n", b"event: x\n\n", b"\n\n"])
async def test_drip_that_completes_no_event_is_silence(lab: Lab, drip: bytes) -> None:
    lab["idle"].script = for_ever(drip, first=(event("a"),))
    answer = await ended(lab, "idle")
    assert answer.body.startswith(event("a") + drip)
    assert (await lab.proxy.line_of(answer))["outcome"] == "idle_timeout"


async def test_drip_over_the_wire_is_silence(lab: Lab) -> None:
    """Bytes that are not even a whole chunk of the framing."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("a"))
        await exchange.send(b"ffff\r\n")
        while True:
            await exchange.send(b"y")
            await asyncio.sleep(0.05)

    lab["idle"].script = script
    answer = await ended(lab, "idle")
    assert answer.body.startswith(event("a") + b"yyy")
    assert (await lab.proxy.line_of(answer))["outcome"] == "idle_timeout"


@pytest.mark.parametrize("sign", [event("b"), event(None), b": still here\n", b"event: ping\ndata: {}\n\n"])
async def test_longest_stream_is_bounded_however_alive_it_is(lab: Lab, sign: bytes) -> None:
    lab["long"].script = for_ever(sign, first=(event("a"),))
    answer = await ended(lab, "long")
    assert answer.body.startswith(event("a") + sign * 2)
    assert b'data: {"error":{' in answer.body
    assert (await lab.proxy.line_of(answer))["outcome"] == "stream_timeout"


@pytest.mark.parametrize(
    ("script", "failures"),
    [
        (silent_after(event("a")), 1),
        (for_ever(b"x", first=(event("a"),)), 1),
        (for_ever(b": still here\n\n"), 1),
        (for_ever(event("b"), first=(event("a"),)), 0),
    ],
    ids=["silence", "drip", "no content", "longest"],
)
async def test_provider_is_blamed_for_what_it_did_not_send_and_not_for_a_long_stream(
    lab: Lab, script: Script, failures: int
) -> None:
    async def failed() -> int:
        rows = (await lab.proxy.status())["breakers"]
        return sum(row["failures"] for row in rows if row["provider"] == "counted")

    lab["counted"].script, before = script, await failed()
    await ended(lab, "counted")
    await lab.idle()
    assert await failed() - before == failures


@pytest.mark.parametrize("media", ["application/x-ndjson", "Application/JSONL", "application/vnd.amazon.eventstream"])
async def test_stream_of_another_media_type_is_bound_by_silence_and_not_by_the_total(lab: Lab, media: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin(media)
        for _ in range(10):
            await exchange.chunk(b'{"response":"a"}\n')
            await asyncio.sleep(0.1)
        await hangs(exchange)

    lab["idle"].script = script
    answer = await lab.call("/v1/api/generate", {"model": "hurried", "prompt": "hello"})
    assert (answer.status, answer.complete, answer.body) == (200, False, b'{"response":"a"}\n' * 10)
    assert (await lab.proxy.line_of(answer))["outcome"] == "idle_timeout"
    await lab["idle"].was_left()


async def test_limit_that_ends_a_stream_gives_its_place_to_the_next_call(lab: Lab) -> None:
    lab["narrow"].script = silent_after(event("a"))
    answers = await asyncio.gather(
        *(lab.call("/narrow/v1/chat/completions", CHAT_STREAM, within=10) for _ in range(3)),
    )
    assert [answer.body.startswith(event("a")) for answer in answers] == [True] * 3
    assert (len(lab["narrow"].seen), lab["narrow"].peak) == (3, 1)
