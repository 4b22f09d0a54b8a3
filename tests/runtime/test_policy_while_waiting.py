"""A policy goes live while calls wait: who waits keeps its place and its own time, and what changes acts at once."""

from __future__ import annotations

import pytest

from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Refusal, Waiter
from proxy.decisions.room import Room
from proxy.outcome import Reason
from tests.runtime.shop import POLICY, WAITS, Shop, changed, rest

WITHOUT_ALPHA = "version: 1\nproviders: {beta: {base_url: 'http://127.0.0.1:9/v1'}}\n"
RENAMED = changed("  alpha:\n", "  gamma:\n    was: alpha\n").replace("provider: alpha", "provider: gamma")


def full(shop: Shop, policy: str = POLICY) -> list[Permit]:
    """Takes the policy live and all three places of alpha's large model."""
    shop.live(policy)
    return [shop.permit("alpha", "large") for _ in range(3)]


def waits(shop: Shop, provider: str = "alpha", model: str = "large") -> Waiter:
    waiter = shop.enter(provider, model)
    assert isinstance(waiter, Waiter), waiter
    return waiter


# Limits.


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("large: {limits: {concurrency: 3}}", "large: {limits: {concurrency: 5}}", id="raised"),
        pytest.param("    models: {large: {limits: {concurrency: 3}}}\n", "", id="gone"),
    ],
)
async def test_a_limit_that_is_raised_or_goes_lets_as_many_go_as_it_allows_in_their_order(
    shop: Shop, old: str, new: str
) -> None:
    full(shop)
    waiters = [waits(shop) for _ in range(5)]
    shop.live(changed(old, new))
    gone = [waiter.permit is not None for waiter in waiters]
    assert gone == ([True, True, False, False, False] if new else [True] * 5)


async def test_the_limit_of_all_providers_is_raised_for_who_waits_at_any_of_them(shop: Shop) -> None:
    shop.live(changed("limits: {concurrency: 50}", "limits: {concurrency: 1}"))
    shop.permit("beta", "other")
    waiters = [waits(shop, "alpha", "large"), waits(shop, "beta", "other"), waits(shop, "alpha", "other")]
    shop.live(changed("limits: {concurrency: 50}", "limits: {concurrency: 3}"))
    assert [waiter.permit is not None for waiter in waiters] == [True, True, False]


async def test_a_limit_that_falls_under_what_is_used_lets_nobody_go_until_use_has_fallen(shop: Shop) -> None:
    permits = full(shop)
    waiter = waits(shop)
    shop.live(changed("concurrency: 3", "concurrency: 1"))
    for permit in permits[:2]:
        permit.release(shop.clock.now())
        assert waiter.permit is None
    permits[2].release(shop.clock.now())
    assert waiter.permit is not None
    assert shop.core(Places, "model", "alpha", "large").used == 1


async def test_a_limit_that_becomes_zero_holds_who_waits_already_until_it_rises_again(shop: Shop) -> None:
    permits = full(shop)
    waiter = waits(shop)
    shop.live(changed("limits: {concurrency: 50}", "limits: {concurrency: 0}"))
    permits[0].release(shop.clock.now())
    assert (waiter.permit, waiter.refusal) == (None, None)
    shop.live(POLICY)
    assert waiter.permit is not None


# The queue.


async def test_a_queue_that_becomes_shorter_than_it_is_turns_only_newcomers_away(shop: Shop) -> None:
    permits = full(shop)
    waiters = [waits(shop) for _ in range(3)]
    shop.live(changed("    breaker: {consecutive: 4}\n", "    queue: {max: 2}\n"))
    refusal = shop.enter("alpha", "large")
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.QUEUE_FULL
    for permit in permits[:2]:
        permit.release(shop.clock.now())
    assert [waiter.permit is not None for waiter in waiters] == [True, True, False]
    assert waits(shop).sequence > waiters[2].sequence


async def test_who_waits_keeps_the_time_that_its_own_policy_allowed(shop: Shop) -> None:
    full(shop)
    waiter = waits(shop)
    shop.live(changed("    breaker: {consecutive: 4}\n", "    timeouts: {queue: 1s, quota_wait: 1s}\n"))
    shop.passes(WAITS.queue - 0.1)
    assert waiter.refusal is None
    shop.passes(0.1)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.QUEUE_TIMEOUT


# The provider.


async def test_who_waits_for_a_provider_that_is_taken_out_keeps_its_place_and_goes_in_its_turn(shop: Shop) -> None:
    permits = full(shop)
    first, second = waits(shop), waits(shop)
    shop.live(WITHOUT_ALPHA)
    assert (first.permit, first.refusal) == (None, None)
    permits[0].release(shop.clock.now())
    assert first.permit is not None
    assert first.permit.key is not None
    shop.passes(WAITS.queue)
    assert second.refusal is not None
    for permit in (*permits[1:], first.permit):
        permit.release(shop.clock.now())
    assert all(places.used == 0 for _, places, _ in shop.kept.all(Places))


async def test_a_provider_that_comes_back_finds_its_queue_as_it_was(shop: Shop) -> None:
    permits = full(shop)
    first = waits(shop)
    shop.live(WITHOUT_ALPHA)
    shop.live(POLICY)
    second = waits(shop)
    assert second.line is first.line
    for permit, waiter in zip(permits, (first, second), strict=False):
        permit.release(shop.clock.now())
        assert waiter.permit is not None
    assert shop.core(Room, "room", "alpha").waiting == 0


async def test_who_waits_for_a_provider_that_is_renamed_stands_before_who_comes_under_its_new_name(shop: Shop) -> None:
    permits = full(shop)
    first = waits(shop)
    shop.live(RENAMED)
    second = waits(shop, "gamma")
    assert shop.core(Room, "room", "gamma").waiting == 2
    permits[0].release(shop.clock.now())
    assert (first.permit is not None, second.permit) == (True, None)
    permits[1].release(shop.clock.now())
    assert second.permit is not None
    assert shop.core(Places, "model", "gamma", "large").used == 3


# Its keys.


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        pytest.param("{id: a2, env: KEY_2, concurrency: 5}", "{id: a3, env: KEY_3}", "a3", id="another key"),
        pytest.param("{id: a2, env: KEY_2, concurrency: 5}", "{id: a2, env: KEY_3}", "a2", id="another secret"),
    ],
)
async def test_who_waits_for_keys_that_rest_goes_at_once_when_the_policy_brings_another(
    shop: Shop, old: str, new: str, key: str
) -> None:
    shop.live(POLICY)
    rest(shop, "a1", 20.0)
    rest(shop, "a2", 20.0)
    waiter = waits(shop)
    shop.live(changed(old, new))
    assert waiter.permit is not None
    assert waiter.permit.key is not None
    assert waiter.permit.key.id == key


async def test_who_waits_for_a_key_that_is_taken_out_waits_for_the_next_one_then(shop: Shop) -> None:
    shop.live(POLICY)
    rest(shop, "a1", 5.0)
    rest(shop, "a2", 25.0)
    waiter = waits(shop)
    shop.live(changed("{id: a1, env: KEY_1}, ", ""))
    shop.passes(24.9)
    assert waiter.permit is None
    shop.passes(0.1)
    assert waiter.permit is not None


async def test_a_key_that_comes_back_to_a_waiting_call_is_still_resting(shop: Shop) -> None:
    shop.live(POLICY)
    rest(shop, "a1", 20.0)
    rest(shop, "a2", 25.0)
    waiter = waits(shop)
    shop.live(changed("{id: a1, env: KEY_1}, ", ""))
    shop.live(POLICY)
    assert waiter.permit is None
    shop.passes(20.0)
    assert waiter.permit is not None


@pytest.mark.parametrize("first", ["keys", "none"])
async def test_who_waits_goes_with_the_kind_of_credential_that_its_own_policy_uses(shop: Shop, first: str) -> None:
    """Its request head is built by that policy: with the provider's keys, or else with the caller's own credential."""
    keys = "    keys: [{id: a1, env: KEY_1}, {id: a2, env: KEY_2, concurrency: 5}]\n"
    policies = [POLICY, changed(keys, "")]
    if first == "none":
        policies.reverse()
    permits = full(shop, policies[0])
    waiter = waits(shop)
    shop.live(policies[1])
    permits[0].release(shop.clock.now())
    assert waiter.permit is not None
    assert (waiter.permit.key is not None) is (first == "keys")
    permits[1].release(shop.clock.now())
    assert (shop.permit("alpha", "large").key is not None) is (first == "none")
    assert sum(line is waiter.line for _, line, _ in shop.kept.all(Line)) == 1
