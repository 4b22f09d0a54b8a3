"""Quotas are reserved before a call and settled once, whatever way it ends; a failed call costs what it has used."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import HOST, Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import DONE, answers, babbles, event, hangs, in_turn, resets, streams
from tests.integration.quotas import ALLOWED, PROMPT, RESERVED, USED, cost, costs, full, level, usage, uses
from tests.integration.scripted import Exchange, Script
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

QUICK = {"attempts": 2, "base": "1ms"}
METERED: dict[str, Any] = {"limits": {}, "breaker": "off"}
TIMES = {"first_byte": "300ms", "answer": "300ms", "idle": "300ms"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": METERED,
        "beta": METERED,
        "gone": {**METERED, "base_url": f"http://{HOST}:{free_port()}/v1"},
        "hasty": {**METERED, "timeouts": TIMES},
        "fragile": {"limits": {}, "breaker": {"consecutive": 1, "open": {"first": "1h", "cap": "1h"}}},
        "keyed": {**METERED, "keys": [{"id": name, "env": f"KEY_{name.upper()}"} for name in "ab"]},
        "cached": {**METERED, "limits": {"count": {"cached_input": 0.1}}},
        "watched": {**METERED, "mode": "observe"},
    },
    "routes": [
        route("once", "alpha", retry={"attempts": 1}),
        route("twice", "alpha", retry=QUICK),
        route("tiers", "alpha", "beta", retry={"attempts": 1}),
        route("gone", "gone", "beta", retry=QUICK),
        route("hasty", "hasty", retry={"attempts": 1}),
        route("fragile", "fragile", retry={"attempts": 1}),
        route("keyed", "keyed", retry={"attempts": 1}),
        route("cached", "cached", retry={"attempts": 1}),
        route("watched", "watched", retry={"attempts": 1}),
        route("write", "alpha", repeatable=False, retry=QUICK),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with full(POLICY, env={"KEY_A": "sk-a", "KEY_B": "sk-b"}) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def clean(lab: Lab) -> None:
    for provider in lab.providers.values():
        provider.forget()
        provider.script = uses()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_costs_what_it_says(lab: Lab, stream: bool) -> None:
    answer, spent = await costs(lab, "once", stream=stream)
    assert (answer.status, answer.complete, spent) == (200, True, (1, USED))
    assert b"usage" in answer.body or stream


async def test_a_stream_whose_caller_asked_for_its_usage_costs_that_once(lab: Lab) -> None:
    answer, spent = await costs(lab, "once", stream=True, stream_options={"include_usage": True})
    assert (spent, answer.body.count(b'"usage"')) == ((1, USED), 1)


async def test_a_stream_without_usage_costs_its_prompt_and_what_was_seen(lab: Lab) -> None:
    lab["alpha"].script = streams(*[event("word") for _ in range(30)], DONE)
    answer, (requests, tokens) = await costs(lab, "once", stream=True)
    assert (answer.complete, requests) == (True, 1)
    assert PROMPT + 10 < tokens < PROMPT + ALLOWED


def chunk(text: str | None, **rest: Any) -> bytes:
    """Returns a chunk with some text, or for None with no choice at all."""
    choices = [] if text is None else [{"index": 0, "delta": {"content": text}, "finish_reason": None}]
    document = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices, **rest}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


NULL: Any = {"usage": None}
FIRST = {"usage": {"prompt_tokens": PROMPT, "completion_tokens": 1, "total_tokens": PROMPT + 1}}
TOLD: dict[str, list[bytes]] = {
    "null until the end": [chunk("a", **NULL), chunk("b", **NULL), chunk(None, usage=usage())],
    "with every chunk": [chunk("a", **FIRST), chunk("b", usage=usage())],
    "with the last text": [chunk("a"), chunk("b", usage=usage())],
    "again at the end": [chunk("a", **FIRST), chunk("b"), chunk(None, usage=usage())],
    "and then null": [chunk("a"), chunk(None, usage=usage()), chunk(None, **NULL)],
}


@pytest.mark.parametrize("name", TOLD)
async def test_a_stream_costs_once_what_it_tells_however_it_tells_it(lab: Lab, name: str) -> None:
    lab["alpha"].script = streams(*TOLD[name], DONE)
    answer, spent = await costs(lab, "once", stream=True, stream_options={"include_usage": True})
    assert (spent, answer.body) == ((1, USED), b"".join([*TOLD[name], DONE]))


async def test_a_stream_whose_usage_is_null_to_the_end_is_not_for_nothing(lab: Lab) -> None:
    lab["alpha"].script = streams(*[chunk("word ", **NULL)] * 30, DONE)
    _, (requests, tokens) = await costs(lab, "once", stream=True)
    assert requests == 1
    assert PROMPT + 10 < tokens <= PROMPT + ALLOWED


async def test_cached_tokens_cost_what_the_policy_says(lab: Lab) -> None:
    lab["cached"].script = uses(cached_tokens=80)
    assert (await costs(lab, "cached", provider="cached"))[1] == (1, USED - 72)
    lab["alpha"].script = uses(cached_tokens=80)
    assert (await costs(lab, "once"))[1] == (1, USED)


@pytest.mark.parametrize(
    ("status", "prompt"), [(400, PROMPT), (404, PROMPT), (413, PROMPT), (429, PROMPT), (500, PROMPT)]
)
async def test_a_refusal_of_the_provider_costs_the_prompt(lab: Lab, status: int, prompt: int) -> None:
    lab["alpha"].script = answers(status)
    answer, spent = await costs(lab, "once")
    assert (answer.status, spent) == (status, (1, prompt))


async def test_each_attempt_is_settled_by_itself(lab: Lab) -> None:
    lab["alpha"].script = in_turn(answers(503), uses())
    answer, spent = await costs(lab, "twice")
    assert (answer.status, answer.attempts, spent) == (200, 2, (2, PROMPT + USED))


@pytest.mark.parametrize("script", [resets, babbles])
async def test_what_may_have_been_executed_costs_all_that_was_reserved(lab: Lab, script: Script) -> None:
    lab["alpha"].script = script
    answer, spent = await costs(lab, "write")
    assert (answer.attempts, spent) == (1, (1, RESERVED))


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_nobody_answers_costs_all_that_was_reserved(lab: Lab, stream: bool) -> None:
    lab["hasty"].script = hangs
    answer, spent = await costs(lab, "hasty", provider="hasty", stream=stream)
    assert (answer.status, answer.reason) == (504, "first_byte_timeout" if stream else "answer_timeout")
    assert spent == (1, RESERVED)


async def test_a_provider_that_cannot_be_reached_costs_nothing(lab: Lab) -> None:
    answer, spent = await costs(lab, "gone", provider="gone")
    assert (answer.provider, answer.attempts, spent) == ("beta", 3, (0, 0))


async def test_the_next_tier_has_quotas_of_its_own(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    before = await level(lab, "provider beta")
    answer, spent = await costs(lab, "tiers")
    after = await level(lab, "provider beta")
    assert (answer.provider, spent) == ("beta", (1, PROMPT))
    assert (round(before.requests - after.requests), round(before.tokens - after.tokens)) == (1, USED)


async def test_a_connection_that_was_closed_meanwhile_costs_no_second_request(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await uses()(exchange)
        exchange.close()

    lab["alpha"].script = script
    for _ in range(3):
        answer, spent = await costs(lab, "once")
        assert (answer.status, answer.attempts, spent) == (200, 1, (1, USED))


async def test_what_is_refused_here_costs_nothing(lab: Lab) -> None:
    answer, spent = await costs(lab, "once", max_tokens=700_000)
    assert (answer.status, answer.reason, spent) == (413, "context_too_long", (0, 0))


async def test_an_open_breaker_costs_nothing(lab: Lab) -> None:
    lab["fragile"].script = answers(500)
    _, spent = await costs(lab, "fragile", provider="fragile")
    assert spent == (1, PROMPT)
    answer, spent = await costs(lab, "fragile", provider="fragile")
    assert (answer.reason, spent) == ("breaker_open", (0, 0))


async def test_another_key_is_another_attempt(lab: Lab) -> None:
    lab["keyed"].script = in_turn(answers(429, headers=[("retry-after", "1")]), uses())
    answer, spent = await costs(lab, "keyed", provider="keyed")
    assert (answer.status, answer.attempts, spent) == (200, 2, (2, PROMPT + USED))


async def test_what_nobody_understands_costs_little_and_is_settled_by_what_is_told(lab: Lab) -> None:
    async def opaque() -> Answer:
        return await lab.call("/alpha/v1/other", b"x" * 300, headers=[("content-type", "text/plain")])

    lab["alpha"].script = answers(200, {"fine": True})
    assert (await cost(lab, "alpha", opaque)).all == (1, 100)


async def test_observed_calls_are_counted_alike(lab: Lab) -> None:
    answer, spent = await costs(lab, "watched", provider="watched")
    assert (answer.status, spent) == (200, (1, USED))


async def test_nothing_was_lost_at_the_end(lab: Lab) -> None:
    status = await lab.proxy.status()
    assert status["permits_out"] == 0
    assert status["holders"] == []
