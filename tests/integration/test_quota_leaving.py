"""Who leaves, and streams that end badly: settled once, by what was seen; who had no turn has cost nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import DONE, ERROR_EVENT, event, hangs, streams
from tests.integration.quotas import (
    ALLOWED,
    JSON,
    PROMPT,
    RESERVED,
    USED,
    ask,
    body,
    cost,
    costs,
    full,
    level,
    usage,
    uses,
)
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

ONCE = {"attempts": 1}
METERED: dict[str, Any] = {"limits": {}, "breaker": "off"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": METERED,
        "hasty": {**METERED, "timeouts": {"idle": "300ms"}},
        "single": {**METERED, "connections": {"max": 1}, "timeouts": {"queue": "20s"}},
    },
    "routes": [
        route("once", "alpha", retry=ONCE),
        route("hasty", "hasty", retry=ONCE),
        route("single", "single", retry=ONCE),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with full(POLICY) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def clean(lab: Lab) -> None:
    for provider in lab.providers.values():
        provider.forget()
        provider.script = uses()


async def pieces(exchange: Exchange, *events: bytes) -> None:
    """Begins a stream."""
    await exchange.begin()
    for one in events:
        await exchange.chunk(one)


async def test_a_stream_that_the_provider_breaks_costs_what_was_seen(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await pieces(exchange, *[event("word") for _ in range(30)])
        exchange.reset()

    lab["alpha"].script = script
    answer, (requests, tokens) = await costs(lab, "once", stream=True)
    assert (answer.status, requests) == (200, 1)
    assert PROMPT + 10 < tokens < PROMPT + ALLOWED


async def test_an_error_in_a_stream_costs_what_was_seen(lab: Lab) -> None:
    lab["alpha"].script = streams(*[event("word") for _ in range(30)], ERROR_EVENT, DONE)
    _, (requests, tokens) = await costs(lab, "once", stream=True)
    assert requests == 1
    assert PROMPT + 10 < tokens <= PROMPT + ALLOWED


async def test_a_stream_that_falls_silent_costs_what_was_seen(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await pieces(exchange, *[event("word") for _ in range(30)])
        await hangs(exchange)

    lab["hasty"].script = script
    _, (requests, tokens) = await costs(lab, "hasty", provider="hasty", stream=True)
    assert requests == 1
    assert PROMPT + 10 < tokens < PROMPT + ALLOWED


@pytest.mark.parametrize("reset", [True, False])
async def test_a_caller_who_leaves_a_stream_has_cost_what_was_seen(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await pieces(exchange, *[event("word") for _ in range(30)])
        await hangs(exchange)

    async def leaves() -> None:
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=JSON, body=body("once", stream=True)))
            await wire.reader.readuntil(b"word")
            assert round((await level(lab, "provider alpha")).tokens - before) == -RESERVED
            wire.leave(reset=reset)
            await lab["alpha"].was_left()

    lab["alpha"].script = script
    before = (await level(lab, "provider alpha")).tokens
    spent = await cost(lab, "alpha", leaves)
    assert spent.requests == 1
    assert PROMPT < spent.tokens < PROMPT + ALLOWED


async def test_a_caller_who_leaves_before_the_answer_has_cost_all_that_was_reserved(lab: Lab) -> None:
    async def leaves() -> None:
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=JSON, body=body("once")))
            await lab["alpha"].has_seen(1)
            wire.leave()
            await lab["alpha"].was_left()

    lab["alpha"].script = hangs
    assert (await cost(lab, "alpha", leaves)).all == (1, RESERVED)


async def test_a_caller_who_leaves_a_queue_has_cost_nothing(lab: Lab) -> None:
    gate = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await gate.wait()
        await uses()(exchange)

    async def leaves() -> None:
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=JSON, body=body("single")))
            await lab.proxy.until(lambda s: any(row["waiting"] == 1 for row in s["queues"]))
            wire.leave()
            await lab.proxy.until(lambda s: all(row["waiting"] == 0 for row in s["queues"]))
        gate.set()
        assert (await running).status == 200

    lab["single"].script = script
    before = await level(lab, "provider single")
    running = asyncio.ensure_future(ask(lab, "single"))
    await lab["single"].has_seen(1)
    during = await level(lab, "provider single")
    assert round(before.tokens - during.tokens) == RESERVED
    await leaves()
    await lab.idle()
    after = await level(lab, "provider single")
    assert (round(before.requests - after.requests, 2), round(before.tokens - after.tokens)) == (1, USED)


async def test_calls_with_one_key_cost_one_call(lab: Lab) -> None:
    async def together() -> Answer:
        keyed = [("idempotency-key", "one")]
        first, *rest = await asyncio.gather(*(ask(lab, "once", headers=keyed) for _ in range(5)))
        again = await ask(lab, "once", headers=keyed)
        assert {answer.body for answer in (*rest, again)} == {first.body}
        return first

    assert (await cost(lab, "alpha", together)).all == (1, USED)
    assert len(lab["alpha"].seen) == 1


async def test_callers_of_one_stream_cost_one_call_also_when_one_leaves(lab: Lab) -> None:
    gate = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await pieces(exchange, event("a"))
        await gate.wait()
        told = json.dumps({"id": "c", "choices": [], "usage": usage()}).encode()
        await exchange.chunk(b"data: " + told + b"\n\n" + DONE)
        await exchange.end()

    async def together() -> Answer:
        headers = [*JSON, ("idempotency-key", "shared")]
        async with lab.wire() as wire:
            data = body("once", stream=True)
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=headers, body=data))
            await wire.reader.readuntil(b'"a"')
            second = asyncio.ensure_future(ask(lab, "once", stream=True, headers=headers[1:]))
            await lab.proxy.until(lambda s: s["in_flight"] == 2)
            wire.leave()
            await lab.proxy.until(lambda s: s["in_flight"] == 1)
        gate.set()
        return await second

    lab["alpha"].script = script
    spent = await cost(lab, "alpha", together)
    assert spent.answer is not None
    assert (spent.answer.complete, spent.all) == (True, (1, USED))


async def test_nothing_was_lost_at_the_end(lab: Lab) -> None:
    status = await lab.proxy.status()
    assert status["permits_out"] == 0
    assert status["holders"] == []
