"""Quotas, assembled: which buckets bind a call, how much of a fleet-wide limit each holds, and who counts tokens."""

from __future__ import annotations

import pytest

from proxy.decisions.quota import MINUTE, Bucket
from proxy.policy.identities import bounds_tokens, learns
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot
from proxy.runtime.quotas import bounds_rates, heeds
from tests.policy.samples import load
from tests.runtime.shop import Shop

POLICY = """\
version: 1
classes: {P0: {reserved: 0.2}}
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    keys: [{id: a1, env: KEY_1, rpm: 60, tpm: 6000}, {id: a2, env: KEY_2}]
    limits: {rpm: 120, tpm: 12000}
    models: {large: {limits: {rpm: 30, tpm: 1200}}}
routes:
  - {name: chat, match: {}, tiers: [{provider: alpha, model: large}, {provider: alpha}]}
"""


def bucket(shop: Shop, *identity: str) -> Bucket:
    return shop.core(Bucket, *identity)


def provider(limits: str) -> tuple[PolicySnapshot, ProviderSnapshot]:
    """A policy with one provider, and the provider."""
    policy = load(f"version: 1\nproviders:\n  alpha:\n    base_url: http://127.0.0.1:9/v1\n    {limits}\n")
    return policy, policy.providers[0]


async def test_a_call_is_bound_by_its_provider_its_model_and_its_key_together(shop: Shop) -> None:
    shop.live(POLICY)
    shop.clock.advance(60.0)
    (permit, other) = (shop.permit("alpha", model) for model in ("large", "other"))
    bound = {tuple(b.label for b in one.buckets) for one in (permit, other)}
    wide = {"rpm of alpha", "tpm of alpha"}
    keyed = {label for labels in bound for label in labels} - wide
    assert keyed == {"rpm of alpha/large", "tpm of alpha/large", "rpm of alpha/a1", "tpm of alpha/a1"}
    assert all(wide <= set(labels) for labels in bound)


@pytest.mark.parametrize("size", [1, 3, 7])
async def test_rates_are_divided_exactly_and_used_up_to_the_headroom(shop: Shop, size: int) -> None:
    shop.live(POLICY + f"fleet: {{size: {{static: {size}}}}}\n")
    for identity, limit in (("rpm", 120), ("tpm", 12000), ("key_rpm", 60), ("model_tpm", 1200)):
        one = bucket(shop, identity)
        assert one.rate * MINUTE == pytest.approx(limit * 0.8 / size)
        assert one.most == limit * 0.8, "what the whole fleet may use in a minute, whatever its size"


async def test_a_bucket_holds_some_seconds_of_rate_of_which_a_part_is_for_p0(shop: Shop) -> None:
    shop.live(POLICY)
    assert (bucket(shop, "tpm").capacity, bucket(shop, "tpm").reserved) == (800.0, 160.0)
    assert (bucket(shop, "rpm").capacity, bucket(shop, "rpm").reserved) == (8.0, 1.6)
    shop.live(
        POLICY.replace("tpm: 12000}", "tpm: 12000, headroom: 1, burst: 60s}").replace("reserved: 0.2", "reserved: 0")
    )
    assert (bucket(shop, "tpm").capacity, bucket(shop, "tpm").reserved) == (12000.0, 0.0)


async def test_a_small_part_of_a_limit_holds_one_request_at_least(shop: Shop) -> None:
    shop.live(POLICY + "fleet: {size: {static: 100}}\n")
    assert bucket(shop, "rpm").capacity == 1.0
    shop.permit("alpha", "other")


async def test_a_limit_of_zero_lets_nothing_go_and_none_binds_nobody(shop: Shop) -> None:
    zero = POLICY.replace("limits: {rpm: 120, tpm: 12000}", "limits: {rpm: 0}")
    shop.live(zero)
    refusal = shop.enter("alpha", "other")
    assert "quota_exhausted" in repr(refusal)
    free = zero.replace("limits: {rpm: 0}", "connections: {max: 500}").replace("rpm: 60, tpm: 6000", "weight: 1")
    shop.live(free)
    assert [shop.permit("alpha", "other").buckets for _ in range(50)] == [()] * 50


async def test_what_is_assembled_changes_no_bucket_before_it_goes_live(shop: Shop) -> None:
    shop.live(POLICY)
    before = bucket(shop, "rpm").rate
    runtime = shop.assemble(POLICY.replace("rpm: 120", "rpm: 1200"))
    assert bucket(shop, "rpm").rate == before
    runtime.go_live(shop.clock.now())
    assert bucket(shop, "rpm").rate == before * 10


@pytest.mark.parametrize(
    ("limits", "tokens", "rates"),
    [
        ("connections: {max: 9}", False, False),
        ("limits: {concurrency: 3}", False, False),
        ("limits: {rpm: 3}", False, True),
        ("limits: {tpm: 0}", True, True),
        ("models: {m: {limits: {tpm: 5}}}", True, True),
        ("models: {m: {limits: {rpm: 5}}}", False, True),
        ("keys: [{id: a, env: KEY_1, tpm: 7}]", True, True),
        ("keys: [{id: a, env: KEY_1, rpm: 7}]", False, True),
    ],
)
def test_whether_anything_bounds_tokens_or_requests_a_minute(limits: str, tokens: bool, rates: bool) -> None:
    policy, alpha = provider(limits)
    assert (bounds_tokens(alpha), bounds_rates(alpha)) == (tokens, rates)
    assert learns(policy, alpha) is tokens


def test_a_models_context_and_tenants_want_to_know_how_many_tokens_calls_take() -> None:
    policy, alpha = provider("models: {m: {context_tokens: 1000}}")
    assert learns(policy, alpha)
    policy = load("version: 1\nproviders: {alpha: {base_url: 'http://127.0.0.1:9/v1'}}\ntenants: {default: {rps: 1}}\n")
    assert learns(policy, policy.providers[0])


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("limits: {rpm: 3}", False),
        ("keys: [{id: a, env: KEY_1}]", False),
        ("keys: [{id: a, env: KEY_1}, {id: b, env: KEY_2}]", True),
        ("keys: [{id: a, env: KEY_1, rpm: 3}]", True),
    ],
)
def test_what_a_provider_says_is_left_matters_where_there_is_a_choice_or_a_bucket(limits: str, expected: bool) -> None:
    policy, alpha = provider(limits)
    assert heeds(policy, alpha) is expected
