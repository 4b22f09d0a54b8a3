"""Merging, assembled: what outlives a policy, and within what requests travel together."""

from __future__ import annotations

import pytest

from proxy.decisions.answers import Answers
from proxy.plan import RoutePlan
from proxy.runtime.assembly import Runtime
from proxy.stages.merging import MergeLanes, MergeScope, MergingStage
from tests.runtime.shop import Shop
from tests.scripted import within

POLICY = """\
version: 1
providers:
  alpha: {{base_url: "{url}", {alpha}}}
  beta: {{base_url: http://127.0.0.1:9/v1, keys: [{{id: b1, env: KEY_3}}]}}
routes:
  - {{name: {name}, {was} match: {{path: /v1/embeddings}}, tiers: [{tiers}], {route}}}
"""
MERGE = "merge: {window: 5ms, max: 100}"
ONE_KEY = "keys: [{id: a1, env: KEY_1}]"
ALPHA = "{provider: alpha}"
BOTH = "{provider: alpha}, {provider: beta}"
SPREAD = "{spread: [{provider: alpha}, {provider: beta}]}"
HERE = "http://127.0.0.1:9/v1"


def policy(
    *, alpha: str = ONE_KEY, name: str = "emb", was: str = "", tiers: str = ALPHA, route: str = MERGE, url: str = HERE
) -> str:
    was = f"was: {was}," if was else ""
    return POLICY.format(alpha=alpha, name=name, was=was, tiers=tiers, route=route, url=url)


def stage_of(runtime: Runtime, path: str = "/v1/embeddings") -> MergingStage | None:
    plan: RoutePlan = runtime.router.candidates(path, {}).routes[0]
    found, below = within(plan.call)
    while not isinstance(found, MergingStage):
        try:
            found, below = within(below)
        except (KeyError, TypeError):
            return None
    return found


def scope_of(runtime: Runtime) -> MergeScope:
    stage = stage_of(runtime)
    assert stage is not None
    return stage._scope


async def test_lanes_outlive_every_policy(shop: Shop) -> None:
    first, second = stage_of(shop.live(policy())), stage_of(shop.live(policy(alpha="breaker: off")))
    assert first is not None
    assert second is not None
    assert first._lanes is second._lanes is shop.core(MergeLanes, "merge lanes")
    assert first._ledger is shop.core(Answers, "answers")


async def test_a_thousand_reloads_lose_no_lane(shop: Shop) -> None:
    lanes = None
    for number in range(1000):
        stage = stage_of(shop.live(policy(route=f"merge: {{window: 5ms, max: {number + 2}}}")))
        assert stage is not None
        if lanes is None:
            lanes = stage._lanes
            lanes.of(b"a lane", 0.0)
        assert stage._lanes is lanes
    assert lanes is not None
    assert b"a lane" in lanes.lanes


async def test_a_renamed_route_keeps_its_lanes_and_another_has_its_own(shop: Shop) -> None:
    first, renamed = scope_of(shop.live(policy())), scope_of(shop.live(policy(name="words", was="emb")))
    assert first.route == renamed.route
    assert scope_of(shop.live(policy(name="other"))).route != renamed.route


async def test_a_route_without_merge_and_a_provider_alone_have_no_such_stage(shop: Shop) -> None:
    runtime = shop.live(policy(route="retry: {attempts: 1}"))
    assert stage_of(runtime) is None
    assert stage_of(shop.live(policy()), "/alpha/v1/embeddings") is None


@pytest.mark.parametrize(
    ("alpha", "scope", "told_apart"),
    [
        (ONE_KEY, "tenant", False),
        (ONE_KEY, "route", False),
        (ONE_KEY, "credential", True),
        ("breaker: off", "tenant", True),
        ("breaker: off", "route", True),
    ],
)
async def test_callers_are_told_apart_where_their_credential_goes_along_or_counts(
    shop: Shop, alpha: str, scope: str, told_apart: bool
) -> None:
    found = scope_of(shop.live(policy(alpha=alpha, route=f"merge: {{window: 5ms, max: 8, scope: {scope}}}")))
    assert ("authorization" in found.credentials) is told_apart
    assert found.whose == scope


@pytest.mark.parametrize(
    ("url", "alpha", "tiers", "most"),
    [
        (HERE, ONE_KEY, ALPHA, None),
        ("https://api.openai.com/v1", ONE_KEY, ALPHA, 2048),
        ("https://api.mistral.ai/v1", ONE_KEY, ALPHA, 64),
        ("https://api.mistral.ai/v1", f"{ONE_KEY}, max_inputs: 500", ALPHA, 500),
        (HERE, f"{ONE_KEY}, max_inputs: 7", BOTH, 7),
        (HERE, f"{ONE_KEY}, max_inputs: 7", SPREAD, 7),
    ],
)
async def test_every_provider_of_the_route_takes_what_travels_together(
    shop: Shop, url: str, alpha: str, tiers: str, most: int | None
) -> None:
    stage = stage_of(shop.live(policy(url=url, alpha=alpha, tiers=tiers)))
    assert stage is not None
    if most is None:
        assert stage._bounds.inputs == 100
    else:
        assert stage._scope.most == most
        assert stage._bounds.inputs == min(most, 100)


async def test_the_tier_that_gives_kept_answers_is_known(shop: Shop) -> None:
    cache = "cache: {ttl: 1s}, " + MERGE
    assert scope_of(shop.live(policy(route=cache))).stale_tier is None
    tiers = "{provider: alpha}, {stale_cache: {max_age: 1h}}"
    assert scope_of(shop.live(policy(tiers=tiers, route=cache))).stale_tier == 2


async def test_headers_that_choose_the_route_keep_requests_apart(shop: Shop) -> None:
    text = policy().replace("path: /v1/embeddings", "path: /v1/embeddings, header: {X-Team: one}")
    runtime = shop.live(text)
    plan = runtime.router.candidates("/v1/embeddings", {"x-team": "one"}).routes[0]
    found, below = within(plan.call)
    while not isinstance(found, MergingStage):
        found, below = within(below)
    assert "x-team" in found._headers
