"""Tiers: every kind of failure goes to the next one, which is called once; what the caller sees then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import HOST
from tests.integration.harness import Lab, route
from tests.integration.messages import (
    CHAT,
    ERROR_EVENT,
    ERROR_OBJECT,
    MESSAGE_START,
    MESSAGES_STREAM,
    OVERLOADED,
    answers,
    babbles,
    closes,
    event,
    hangs,
    resets,
    says,
    streams,
)
from tests.integration.scripted import Exchange, Script
from tests.integration.unreachable import full_listener
from tests.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def begins_and_stops(exchange: Exchange) -> None:
    """A stream that says its role, and nothing more."""
    await exchange.begin()
    await exchange.chunk(event(None))
    await hangs(exchange)


async def cut_before_content(exchange: Exchange) -> None:
    """A stream that is reset after its role."""
    await exchange.begin()
    await exchange.chunk(event(None))
    await asyncio.sleep(0.02)
    exchange.reset()


async def half_a_head(exchange: Exchange) -> None:
    """An answer that breaks within its head."""
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    exchange.reset()


FAILURES: dict[str, tuple[Script, bool]] = {
    **{str(status): (answers(status), False) for status in (408, 429, 500, 502, 503, 504, 529, 599)},
    "reset": (resets, False),
    "closed": (closes, False),
    "garbage": (babbles, False),
    "half a head": (half_a_head, False),
    "no answer": (hangs, False),
    "no first byte": (hangs, True),
    "no content": (begins_and_stops, True),
    "cut before content": (cut_before_content, True),
    "error in a 200": (answers(200, ERROR_OBJECT), False),
    "error event first": (streams(ERROR_EVENT), True),
    "error event after the role": (streams(event(None), ERROR_EVENT), True),
}
FIRST = {
    "breaker": "off",
    "timeouts": {"connect": "300ms", "first_byte": "400ms", "answer": "400ms", "queue": "200ms"},
}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "first": FIRST,
        "second": {"breaker": "off"},
        "gone": {**FIRST, "base_url": f"http://{HOST}:{free_port()}/v1"},
        "stuck": {**FIRST, "base_url": "set by the fixture"},
        "keyed": {**FIRST, "keys": [{"id": "k1", "env": "KEY"}]},
        "trailed": {**FIRST, "keys": [{"id": "k1", "env": "KEY"}]},
        "busy": {**FIRST, "limits": {"concurrency": 1}, "queue": {"max": 1}},
        "claude": {**FIRST, "dialect": "anthropic"},
        "opened": {**FIRST, "breaker": {"consecutive": 1, "scope": "provider"}},
    },
    "routes": [
        route("plain", "first", "second", retry={"attempts": 1}),
        route("gone", "gone", "second", retry={"attempts": 1}),
        route("stuck", "stuck", "second", retry={"attempts": 1}),
        route("keyed", "keyed", "second", retry={"attempts": 1}),
        route("trailed", "trailed", "second", retry={"attempts": 1}),
        route("busy", "busy", "second", retry={"attempts": 1}),
        route("opened", "opened", "second", retry={"attempts": 1}),
        route("lone", "gone", "opened", retry={"attempts": 1}),
        route("back", "first", "gone", retry={"attempts": 1}),
        route("claude", "claude", "claude", retry={"attempts": 1}),
        route(
            "set",
            "first",
            {"provider": "second", "model": "small-7b", "set": {"max_tokens": 512, "response_format": {"type": "x"}}},
            retry={"attempts": 1},
        ),
        route(
            "static",
            "first",
            {"answer": {"status": 203, "json": {"note": "try again soon"}}},
            retry={"attempts": 1},
        ),
        route("known-wait", "first", "second", retry={"attempts": 3}),
        route("timed", {"provider": "first", "answer": "150ms"}, "second", retry={"attempts": 1}),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    with full_listener() as port:
        POLICY["providers"]["stuck"]["base_url"] = f"http://{HOST}:{port}/v1"
        async with Lab(POLICY, env={"KEY": "sk-k"}) as lab:
            yield lab


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def second(clean: None, lab: Lab) -> None:
    for provider in lab.providers.values():
        provider.script = says("second")


@pytest.mark.parametrize("name", FAILURES)
async def test_failure_goes_to_the_next_tier_which_is_called_once(lab: Lab, name: str) -> None:
    lab["first"].script, stream = FAILURES[name]
    if stream:
        lab["second"].script = streams(event("second"))
    answer = await lab.chat("plain", stream=stream)
    assert (answer.status, answer.provider, answer.tier, answer.attempts) == (200, "second", 2, 2)
    assert b"second" in answer.body
    assert answer.complete
    assert b"worn out" not in answer.body
    assert answer.reason is None
    assert (len(lab["first"].seen), len(lab["second"].seen)) == (1, 1)


@pytest.mark.parametrize("model", ["gone", "stuck"])
async def test_provider_that_cannot_be_reached_gives_way_to_the_next(lab: Lab, model: str) -> None:
    answer = await lab.chat(model)
    assert (answer.status, answer.provider, answer.tier, answer.attempts) == (200, "second", 2, 2)
    assert len(lab["second"].seen) == 1
    assert answer.seconds < 2


@pytest.mark.parametrize("status", [401, 402])
async def test_rejected_key_goes_to_the_next_tier(lab: Lab, status: int) -> None:
    lab["keyed"].script = answers(status)
    answer = await lab.chat("keyed")
    assert (answer.status, answer.provider) == (200, "second")
    assert (len(lab["keyed"].seen) <= 1, len(lab["second"].seen)) == (True, 1)


async def test_full_queue_goes_to_the_next_tier_without_an_attempt(lab: Lab) -> None:
    lab["busy"].script = says("busy", after=0.3)
    running = [asyncio.ensure_future(lab.call("/busy/v1/x", CHAT)) for _ in range(2)]
    await lab.proxy.until(lambda s: any(q["provider"] == "busy" and q["waiting"] == 1 for q in s["queues"]))
    answer = await lab.chat("busy")
    assert (answer.provider, answer.tier, answer.attempts) == ("second", 2, 1)
    await asyncio.gather(*running)


async def test_open_breaker_goes_to_the_next_tier_without_an_attempt(lab: Lab) -> None:
    lab["opened"].script = answers(500)
    assert (await lab.chat("opened")).attempts == 2
    answer = await lab.chat("opened")
    assert (answer.provider, answer.tier, answer.attempts) == ("second", 2, 1)
    assert len(lab["opened"].seen) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 413, 415, 422, 501, 505])
async def test_callers_mistake_stays_with_the_first_tier(lab: Lab, status: int) -> None:
    lab["first"].script = answers(status)
    answer = await lab.chat("plain")
    assert (answer.status, answer.provider, answer.tier) == (status, "first", 1)
    assert not lab["second"].seen


async def test_tier_changes_model_and_parameters_and_nothing_else(lab: Lab) -> None:
    lab["first"].script = answers(503)
    body = b'{"top": 12345678901234567890, "model":"set" ,"max_tokens":9,"messages":[{"model":"set"}],"x":"\\u00e9"}'
    answer = await lab.call(body=body, headers=[("content-type", "application/json")])
    assert answer.tier == 2
    assert lab["first"].only.body == body
    sent = lab["second"].only.body
    assert lab["second"].only.json() == {
        "top": 12345678901234567890,
        "model": "small-7b",
        "max_tokens": 512,
        "messages": [{"model": "set"}],
        "x": "é",
        "response_format": {"type": "x"},
    }
    assert b'"top": 12345678901234567890' in sent
    assert b'"x":"\\u00e9"' in sent


async def test_answer_tier_is_the_last_resort(lab: Lab) -> None:
    lab["first"].script = answers(503)
    answer = await lab.chat("static")
    assert (answer.status, answer.json(), answer.tier) == (203, {"note": "try again soon"}, 2)
    assert answer.header("content-type") == "application/json"
    assert (answer.attempts, answer.reason) == (1, None)


async def test_trail_tells_every_attempt(lab: Lab) -> None:
    lab["trailed"].script = answers(503)
    answer = await lab.chat("trailed", headers=[("x-sponson-trail", "1")])
    assert answer.attempts == 2
    first, second = ",".join(answer.all("x-sponson-trail")).split(",")
    assert all(word in first for word in ("1", "trailed", "k1", "503"))
    assert all(word in second for word in ("2", "second", "200"))
    assert (await lab.chat("plain")).header("x-sponson-trail") is None


async def test_last_answer_of_a_provider_is_relayed_when_all_fail(lab: Lab) -> None:
    lab["first"].script = answers(503, {"error": {"message": "first"}})
    lab["second"].script = answers(502, {"error": {"message": "second"}}, headers=[("x-own", "2"), ("x-own", "3")])
    answer = await lab.chat("plain")
    assert (answer.status, answer.json()["error"]["message"], answer.reason) == (502, "second", None)
    assert answer.all("x-own") == ["2", "3"]
    assert (answer.provider, answer.tier, answer.attempts) == ("second", 2, 2)


async def test_earlier_answer_is_relayed_when_the_last_tier_gives_none(lab: Lab) -> None:
    lab["first"].script = answers(503, {"error": {"message": "first"}}, headers=[("retry-after", "1")])
    answer = await lab.chat("back")
    assert (answer.status, answer.json()["error"]["message"]) == (503, "first")
    assert (answer.header("retry-after"), answer.attempts) == ("1", 2)


async def test_first_tiers_reason_is_told_when_no_provider_answered(lab: Lab) -> None:
    lab["opened"].script = answers(500)
    await lab.chat("opened")
    answer = await lab.chat("lone")
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")


async def test_known_wait_is_not_waited_for_when_there_is_a_next_tier(lab: Lab) -> None:
    lab["first"].script = answers(503, headers=[("retry-after", "5")])
    answer = await lab.chat("known-wait")
    assert (answer.provider, answer.attempts) == ("second", 2)
    assert answer.seconds < 1


async def test_tier_may_have_limits_of_its_own(lab: Lab) -> None:
    lab["first"].script = says("first", after=0.3)
    assert (await lab.chat("timed")).provider == "second"
    assert (await lab.chat("plain")).provider == "first"


async def test_overload_in_a_messages_stream_is_replaced_before_the_content(lab: Lab) -> None:
    text = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"well"}}\n\n'

    async def script(exchange: Exchange) -> None:
        await exchange.stream([MESSAGE_START, OVERLOADED] if exchange.number == 0 else [MESSAGE_START, text])

    lab["claude"].script = script
    answer = await lab.call("/v1/messages", {**MESSAGES_STREAM, "model": "claude"})
    assert (answer.status, answer.tier, answer.body) == (200, 2, MESSAGE_START + text)


async def test_when_every_tier_is_overloaded_the_callers_sees_the_providers_529(lab: Lab) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    lab["claude"].script = answers(529, body)
    answer = await lab.call("/v1/messages", {**MESSAGES_STREAM, "model": "claude"})
    assert (answer.status, answer.json(), answer.reason) == (529, body, None)


@pytest.mark.parametrize("line", [b"HTTP/1.1 529 ", b"HTTP/1.1 529"], ids=["no phrase", "not even its space"])
async def test_overload_without_words_is_overload_and_is_told_as_it_came(lab: Lab, line: bytes) -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Come back later"}}'

    async def script(exchange: Exchange) -> None:
        await exchange.send(line + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    lab["claude"].script = script
    answer = await lab.call("/v1/messages", {**MESSAGES_STREAM, "model": "claude"})
    assert (answer.status, answer.phrase, answer.body, answer.tier) == (529, "", body, 2)
    assert len(lab["claude"].seen) == 2


async def test_every_answer_says_who_gave_it(lab: Lab) -> None:
    answer = await lab.chat("plain")
    assert (answer.provider, answer.tier, answer.attempts) == ("second", 2, 2) or answer.provider == "first"
    ids = {(await lab.chat("plain")).header("x-sponson-request-id") for _ in range(5)}
    assert len(ids) == 5
