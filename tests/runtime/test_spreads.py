"""Spread tiers, assembled: how members wait and are tried by their place, and what is left of each."""

from __future__ import annotations

from proxy.decisions.places import Places
from proxy.plan import Equals
from proxy.runtime.assembly import Runtime
from proxy.stages.retry import RetryStage
from proxy.stages.tier import ProviderTier
from tests.fakes import make_exchange
from tests.runtime.shop import Shop, breaker_of, fallback_of, park, rest
from tests.scripted import within

POLICY = """\
version: 1
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    keys: [{id: a1, env: KEY_1}, {id: a2, env: KEY_2, concurrency: 5}]
    limits: {concurrency: 10}
    breaker: {consecutive: 4}
  beta:
    base_url: http://127.0.0.1:9/v1
    limits: {concurrency: 4}
routes:
  - name: chat
    tiers: [{spread: [{provider: alpha, model: large}, {provider: beta}]}]
"""
LATER = POLICY.replace("}]}]", "}]}, {answer: {status: 200, json: {}}}]")


def equals(runtime: Runtime) -> Equals:
    """The first step of the only route."""
    (plan,) = runtime.router.candidates("/v1/chat/completions", {}).routes
    step = fallback_of(plan)._tiers[0]
    assert isinstance(step, Equals)
    return step


def order(runtime: Runtime) -> list[ProviderTier]:
    tiers = equals(runtime).order(make_exchange())
    assert all(isinstance(tier, ProviderTier) for tier in tiers)
    return [tier for tier in tiers if isinstance(tier, ProviderTier)]


def names(runtime: Runtime) -> list[str]:
    return [tier.provider for tier in order(runtime)]


def retry_of(tier: ProviderTier) -> RetryStage:
    stage, _ = within(tier.targets.of(tier.model)[1])
    assert isinstance(stage, RetryStage)
    return stage


def tried(runtime: Runtime) -> list[tuple[str, int, float]]:
    """Of each member, in order: how often it may be called, and how long a call waits for a key."""
    stages = [(tier.provider, retry_of(tier)) for tier in order(runtime)]
    return [(name, stage._settings.attempts, stage._longest_rest) for name, stage in stages]


async def test_one_before_others_is_called_once_and_waits_briefly_the_last_as_one_alone(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    first, second = tried(runtime)
    assert first[1:] == (1, 0.3)
    assert second[1:] == (3, 30.0)


async def test_before_one_that_cannot_go_it_is_tried_again_but_waits_briefly(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    assert tried(runtime) == [("beta", 3, 0.3), ("alpha", 3, 30.0)]


async def test_with_a_later_tier_everybody_waits_briefly(shop: Shop) -> None:
    assert [wait for _, _, wait in tried(shop.live(LATER))] == [0.3, 0.3]


async def test_the_larger_part_left_goes_first(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    permits = [shop.permit("beta", "other") for _ in range(2)]
    assert names(runtime) == ["alpha", "beta"]
    for _ in range(6):
        shop.permit("alpha", "large")
    assert names(runtime) == ["beta", "alpha"], "four of ten, two of four"
    for permit in permits:
        permit.release(shop.clock.now())
    for _ in range(4):
        shop.permit("beta", "other")
    assert names(runtime) == ["alpha", "beta"]


async def test_one_whose_keys_all_rest_or_are_parked_goes_last(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    shop.permit("beta", "other")
    assert names(runtime) == ["alpha", "beta"]
    rest(shop, "a1", 60.0)
    assert names(runtime) == ["alpha", "beta"], "the other key is there"
    park(shop, "a2")
    assert names(runtime) == ["beta", "alpha"]
    shop.passes(61.0)
    assert names(runtime) == ["alpha", "beta"]


async def test_a_key_that_is_nearly_full_leaves_little(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    park(shop, "a1")
    for _ in range(4):
        shop.permit("alpha", "large")
    for _ in range(3):
        shop.permit("beta", "other")
    assert names(runtime) == ["beta", "alpha"], "a fifth of the key, a quarter of the provider"


async def test_quota_that_is_used_up_sends_the_next_call_to_an_equal(shop: Shop) -> None:
    limited = POLICY.replace("concurrency: 10", "rpm: 75").replace("concurrency: 4", "rpm: 75")
    runtime = shop.live(limited)
    assert names(runtime) == ["alpha", "beta"]
    shop.permit("alpha", "large")
    assert [name for name, *_ in tried(runtime)] == ["beta", "alpha"], "one request's worth was there"
    shop.permit("beta", "other")
    assert [attempts for _, attempts, _ in tried(runtime)] == [1, 3], "nobody can go"
    shop.passes(1.0)
    shop.permit("alpha", "large")
    shop.passes(1.0)
    assert names(runtime) == ["beta", "alpha"], "two are left, and one"


async def test_an_open_breaker_stands_last_until_it_half_opens(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    breaker = breaker_of(shop, "large")
    shop.trip(breaker)
    for _ in range(3):
        shop.permit("beta", "other")
    assert names(runtime) == ["beta", "alpha"]
    shop.passes(breaker.retry_after(shop.clock.now()))
    assert names(runtime) == ["alpha", "beta"]


async def test_where_a_provider_observes_its_breaker_holds_nobody_back(shop: Shop) -> None:
    runtime = shop.live(POLICY.replace("    breaker:", "    mode: observe\n    breaker:"))
    shop.trip(breaker_of(shop, "large"))
    shop.permit("beta", "other")
    assert names(runtime) == ["alpha", "beta"]


async def test_a_route_that_observes_goes_by_what_is_left_all_the_same(shop: Shop) -> None:
    runtime = shop.live(POLICY.replace("  - name: chat", "  - name: chat\n    mode: observe"))
    alpha, beta = (shop.core(Places, "provider", name) for name in ("alpha", "beta"))
    beta.used = 3
    assert names(runtime) == ["alpha", "beta"]
    alpha.used = 9
    assert names(runtime) == ["beta", "alpha"]


async def test_only_the_provider_named_first_is_whom_the_caller_meant(shop: Shop) -> None:
    same = POLICY.replace("{provider: beta}", "{provider: beta}, {provider: alpha, model: small}")
    meant = {(tier.provider, tier.model): tier.meant for tier in order(shop.live(same))}
    assert meant == {("alpha", "large"): True, ("beta", None): False, ("alpha", "small"): True}
