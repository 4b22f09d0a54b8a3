"""`mode: observe` over the wire for tenants' caps, wherever it is said; and what it does not turn off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer
from tests.integration.doors import Doors, leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.keyed import conflict, key
from tests.integration.messages import CHAT, answers, hangs, says

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVELS = ("policy", "tenants", "route")
OVERRIDES: dict[str, Any] = {
    "rate": {"rps": 0.01},
    "crowd": {"concurrency": 1},
    "tokens": {"tpm": 600},
    "words": {"context_tokens": 20},
    "many": {"context_tokens": 20, "too_long": {"tier": 2}},
    "none": {"concurrency": 0, "rps": 0},
}
PROMPT = {"messages": [{"role": "user", "content": "word " * 400}]}
ENV = {"KEY": "sk-k"}


def policy(level: str) -> dict[str, Any]:
    """The mode at one level."""

    def mode(here: str) -> dict[str, str]:
        return {"mode": "observe"} if level == here else {}

    return {
        "version": 1,
        "tenants": {"from": [{"header": "x-agent-id"}], "overrides": OVERRIDES, **mode("tenants")},
        "providers": {
            "alpha": {"timeouts": {"answer": "300ms"}, "breaker": "off"},
            "patient": {},
            "second": {},
            "keyed": {"keys": [{"id": "a", "env": "KEY"}], "timeouts": {"quota_wait": "1ms"}},
        },
        "routes": [
            route("m", "patient", "second", **mode("route")),
            route("alpha", "alpha", retry={"attempts": 1}, **mode("route")),
            route("keyed", "keyed", retry={"attempts": 1}, **mode("route")),
        ],
        **mode("policy"),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    async with Lab(policy(request.param), env=ENV) as lab:
        for provider in lab.providers.values():
            provider.script = says("hi")
        yield lab


async def told(lab: Lab, *done: Answer) -> list[Any]:
    """Checks that all were answered; returns what was said of each."""
    assert [(answer.status, answer.tier) for answer in done] == [(200, 1)] * len(done)
    return [(await lab.proxy.line_of(answer)).get("would") for answer in done]


async def ask(lab: Lab, tenant: str, **body: Any) -> Answer:
    """Asks as this tenant."""
    lab["patient"].script = says("hi")
    return await lab.call(body={**CHAT, **body}, headers=[("x-agent-id", tenant)])


async def test_a_cap_of_requests(lab: Lab) -> None:
    done = [await ask(lab, "rate") for _ in range(3)]
    assert await told(lab, *done) == [None, ["would_tenant_limit"], ["would_tenant_limit"]]
    row = await lab.row("tenants", tenant="rate")
    assert (row["would_tenant_limit"], row["refused"], row["in_flight"]) == (2, 0, 0)


async def test_a_cap_of_requests_in_flight(lab: Lab) -> None:
    doors = Doors(lab, "patient", model="m")
    for name in ("first", "second"):
        await doors.runs(name, headers=[("x-agent-id", "crowd")])
    assert (await lab.row("tenants", tenant="crowd"))["in_flight"] == 2
    assert await told(lab, *await doors.end_all()) == [None, ["would_tenant_limit"]]
    assert (await lab.row("tenants", tenant="crowd"))["in_flight"] == 0
    await leaves_nothing(lab)


async def test_a_cap_of_tokens(lab: Lab) -> None:
    done = [await ask(lab, "tokens", max_tokens=most) for most in (100, 100, 5000)]
    assert await told(lab, *done) == [None, ["would_tenant_limit"], ["would_tenant_limit"]]


async def test_a_budget_of_context_keeps_the_tier(lab: Lab) -> None:
    done = [await ask(lab, "words"), await ask(lab, "words", **PROMPT), await ask(lab, "many", **PROMPT)]
    assert await told(lab, *done) == [None, ["would_context_too_long"], ["would_context_too_long"]]


async def test_a_tenant_that_may_nothing(lab: Lab) -> None:
    assert await told(lab, await ask(lab, "none")) == [["would_tenant_limit"]]
    metrics = (await lab.proxy.get("/metrics")).body.decode()
    assert 'sponson_mode="enforce",sponson_provider="",sponson_reason="tenant_limit"' not in metrics
    assert 'sponson_mode="observe",sponson_provider="",sponson_reason="tenant_limit"' in metrics


async def test_a_key_that_rests_is_not_used(lab: Lab) -> None:
    lab["keyed"].script = answers(429, headers=[("retry-after", "30")])
    assert (await lab.chat("keyed")).status == 429
    lab["keyed"].script = says("hi")
    answer = await lab.chat("keyed")
    assert (answer.status, answer.reason, len(lab["keyed"].seen)) == (429, "keys_resting", 1)


async def test_a_call_that_takes_too_long_is_ended(lab: Lab) -> None:
    lab["alpha"].script = hangs
    answer = await lab.chat("alpha")
    assert (answer.status, answer.reason) == (504, "answer_timeout")


async def test_a_key_that_was_used_for_something_else_is_a_conflict(lab: Lab) -> None:
    lab["alpha"].script = says("hi")
    first = await lab.call(body={**CHAT, "model": "alpha"}, headers=key("k-1"))
    other = await lab.call(body={**CHAT, "model": "alpha", "n": 2}, headers=key("k-1"))
    assert first.status == 200
    conflict(other)
    again = await asyncio.gather(*(lab.call(body={**CHAT, "model": "alpha"}, headers=key("k-1")) for _ in range(3)))
    assert {(answer.status, answer.body) for answer in again} == {(200, first.body)}
