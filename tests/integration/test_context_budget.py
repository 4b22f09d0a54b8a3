"""Context over the wire: too long a prompt costs nothing, or goes where it may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {
        "from": [{"header": "x-agent-id"}],
        "default": {},
        "overrides": {
            "short-*": {"context_tokens": 100},
            "later-*": {"context_tokens": 100, "too_long": {"tier": 2}},
        },
    },
    "providers": {
        "alpha": {"models": {"small": {"context_tokens": 100}}},
        "beta": {"models": {"medium": {"context_tokens": 5000}}},
        "watched": {"mode": "observe", "models": {"small": {"context_tokens": 100}}},
    },
    "routes": [
        route("one", "alpha"),
        route("two", "alpha", "beta", {"answer": {"status": 200, "json": {"note": "sorry"}}}),
        route("models", {"provider": "alpha", "model": "small"}, {"provider": "beta", "model": "medium"}),
        route("observed", {"provider": "watched", "model": "small"}),
    ],
}


async def ask(
    lab: Lab, model: str, *, words: int = 2000, tenant: str = "any", path: str = "chat/completions"
) -> Answer:
    """Sends so many words."""
    body = {"model": model, "max_tokens": 5, "messages": [{"role": "user", "content": "word " * words}]}
    headers = [("x-agent-id", tenant), ("authorization", "Bearer sk-mine")]
    return await lab.call(f"/v1/{path}", body, headers=headers)


def refused(answer: Answer) -> str:
    """Checks a refusal; returns what people are told."""
    assert (answer.status, answer.reason, answer.attempts) == (413, "context_too_long", 0)
    assert answer.header("retry-after") is None
    message: str = answer.json()["error"]["message"]
    return message


async def test_too_long_for_its_tenant_it_is_refused_before_anything_is_asked(lab: Lab) -> None:
    assert "context_tokens: 100" in refused(await ask(lab, "one", tenant="short-1"))
    refused(await ask(lab, "two", tenant="short-1"))
    assert not lab["alpha"].seen
    assert not lab["beta"].seen
    assert (await ask(lab, "one", tenant="short-1", words=5)).status == 200
    assert (await ask(lab, "one", tenant="long-1")).status == 200
    assert (await lab.row("tenants", tenant="short-1"))["refused"] == 2


async def test_an_anthropic_caller_is_told_in_its_own_words(lab: Lab) -> None:
    answer = await ask(lab, "one", tenant="short-1", path="messages")
    refused(answer)
    assert answer.json()["type"] == "error"


async def test_it_goes_to_the_tier_that_may_take_it_and_no_earlier_one_is_asked(lab: Lab) -> None:
    answer = await ask(lab, "two", tenant="later-1")
    assert (answer.status, answer.provider, answer.tier, answer.attempts) == (200, "beta", 2, 1)
    assert not lab["alpha"].seen
    # The caller's own credential is for the provider that it meant.
    assert lab["beta"].seen[0].header("authorization") is None
    answer = await ask(lab, "two", tenant="later-1", words=5)
    assert (answer.provider, answer.tier) == ("alpha", 1)


async def test_from_there_the_order_goes_on(lab: Lab) -> None:
    async def down(exchange: Any) -> None:
        exchange.reset()

    lab["beta"].script = down
    answer = await ask(lab, "two", tenant="later-1")
    assert (answer.status, answer.tier, answer.json()) == (200, 3, {"note": "sorry"})
    assert not lab["alpha"].seen


async def test_where_a_route_has_no_such_tier_it_is_refused(lab: Lab) -> None:
    assert "no tier 2" in refused(await ask(lab, "one", tenant="later-1"))
    answer = await lab.call("/alpha/v1/chat/completions", long_body(), headers=[("x-agent-id", "later-1")])
    assert "no tier 2" in refused(answer)
    assert not lab["alpha"].seen


async def test_too_long_for_a_model_the_next_tier_is_asked(lab: Lab) -> None:
    answer = await ask(lab, "models")
    assert (answer.status, answer.provider, answer.tier, answer.attempts) == (200, "beta", 2, 1)
    assert lab["beta"].seen[0].json()["model"] == "medium"
    assert not lab["alpha"].seen
    answer = await ask(lab, "models", words=5)
    assert (answer.provider, answer.tier) == ("alpha", 1)


async def test_too_long_for_every_model_it_is_refused(lab: Lab) -> None:
    assert "small" in refused(await ask(lab, "models", words=20_000))
    assert not lab["alpha"].seen
    assert not lab["beta"].seen


async def test_observed_it_passes_and_is_told(lab: Lab) -> None:
    answer = await ask(lab, "observed")
    assert answer.status == 200
    assert (await lab.proxy.line_of(answer))["would"] == ["would_context_too_long"]
    assert (await lab.row("observed", provider="watched"))["would_context_too_long"] == 1


async def test_what_nobody_understands_passes(lab: Lab) -> None:
    for body, kind in [(b"word " * 2000, "text/plain"), (b"[" + b"1," * 5000 + b"1]", "application/json")]:
        headers = [("x-agent-id", "short-1"), ("content-type", kind)]
        assert (await lab.call("/alpha/v1/other", body, headers=headers)).status == 200


def long_body() -> dict[str, Any]:
    """A chat of two thousand words."""
    return {**CHAT, "messages": [{"role": "user", "content": "word " * 2000}]}
