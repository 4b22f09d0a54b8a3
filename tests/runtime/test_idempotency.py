"""Idempotency, assembled: what outlives a policy, and within what a key holds."""

from __future__ import annotations

import pytest

from proxy.decisions.answers import Answers
from proxy.plan import RoutePlan
from proxy.runtime.assembly import Runtime
from proxy.stages.idempotency import IdempotencyStage, KeyedCalls, KeyScope
from tests.runtime.shop import Shop
from tests.scripted import within

POLICY = """\
version: 1
providers:
  alpha: {{base_url: http://127.0.0.1:9/v1, {alpha}}}
  beta: {{base_url: http://127.0.0.1:9/v1, keys: [{{id: b1, env: KEY_3}}]}}
routes:
  - {{name: {name}, {was} match: {{path: "/v1/chat/*"}}, tiers: [{tiers}]}}
"""
ONE_KEY = "keys: [{id: a1, env: KEY_1}]"
TWO_KEYS = "keys: [{id: a1, env: KEY_1}, {id: a2, env: KEY_2}]"
KNOWS = "idempotency_header: Idempotency-Key, "
ALPHA = "{provider: alpha}"
SPREAD = "{spread: [{provider: alpha}, {provider: beta}]}"


def policy(*, alpha: str = ONE_KEY, name: str = "chat", was: str = "", tiers: str = ALPHA) -> str:
    return POLICY.format(alpha=alpha, name=name, was=f"was: {was}," if was else "", tiers=tiers)


def stage_of(runtime: Runtime, path: str = "/v1/chat/completions") -> IdempotencyStage:
    plan: RoutePlan = runtime.router.candidates(path, {}).routes[0]
    _, below_deadline = within(plan.call)
    stage, _ = within(below_deadline)
    assert isinstance(stage, IdempotencyStage)
    return stage


def scope_of(runtime: Runtime, path: str = "/v1/chat/completions") -> KeyScope:
    return stage_of(runtime, path)._scope


async def test_calls_and_answers_outlive_every_policy(shop: Shop) -> None:
    first, second = shop.live(policy()), shop.live(policy(alpha=TWO_KEYS))
    one, other = stage_of(first), stage_of(second)
    assert one is not other
    assert one._calls is other._calls is shop.core(KeyedCalls, "keyed calls")
    assert one._answers is other._answers is shop.core(Answers, "answers")
    assert scope_of(first).route == scope_of(second).route


async def test_a_renamed_route_keeps_its_keys_and_another_has_its_own(shop: Shop) -> None:
    first, renamed = shop.live(policy()), shop.live(policy(name="talk", was="chat"))
    assert scope_of(first).route == scope_of(renamed).route
    another = shop.live(policy(name="other"))
    assert scope_of(another).route != scope_of(renamed).route
    assert scope_of(another, "/alpha/v1/chat/completions").route != scope_of(another).route


@pytest.mark.parametrize(
    ("alpha", "tiers", "told_apart"),
    [
        (ONE_KEY, ALPHA, False),
        ("breaker: off", ALPHA, True),
        ("auth: {header: X-Acme}", ALPHA, True),
        ("breaker: off", f"{{provider: beta}}, {ALPHA}", False),
        ("breaker: off", SPREAD, True),
        (ONE_KEY, SPREAD, False),
        ("breaker: off", "{answer: {status: 200}}", False),
    ],
)
async def test_callers_are_told_apart_where_their_own_credential_may_go_along(
    shop: Shop, alpha: str, tiers: str, told_apart: bool
) -> None:
    credentials = scope_of(shop.live(policy(alpha=alpha, tiers=tiers))).credentials
    assert ("authorization" in credentials) is told_apart
    if "X-Acme" in alpha:
        assert "x-acme" in credentials


@pytest.mark.parametrize(
    ("alpha", "tiers", "deduplicates"),
    [
        (ONE_KEY, ALPHA, False),
        (KNOWS + ONE_KEY, ALPHA, True),
        (KNOWS + "breaker: off", ALPHA, True),
        (KNOWS + TWO_KEYS, ALPHA, False),
        (KNOWS + ONE_KEY, f"{ALPHA}, {{provider: beta}}", False),
        (KNOWS + ONE_KEY, f"{ALPHA}, {{answer: {{status: 200}}}}", True),
        (KNOWS + ONE_KEY, SPREAD, False),
    ],
)
async def test_a_key_is_left_to_its_provider_where_that_is_the_only_one(
    shop: Shop, alpha: str, tiers: str, deduplicates: bool
) -> None:
    assert scope_of(shop.live(policy(alpha=alpha, tiers=tiers))).deduplicates is deduplicates
