"""What is said of breakers, permits, keys, queues and pools is what a reload of a really assembled policy does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from proxy.decisions.breaker import BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Refusal, Waiter
from proxy.decisions.retry import BUDGET_FLOOR, RetryBudget
from proxy.decisions.room import Room
from proxy.stages.fallback import FallbackTiers
from proxy.upstream.pool import Pool
from tests.policy.difference.policies import difference, says, section, told
from tests.runtime.shop import POLICY, SECRETS, Shop, breaker_of, changed, park, rest
from tests.scripted import within

WITHOUT_ALPHA = "version: 1\nproviders: {beta: {base_url: 'http://127.0.0.1:9/v1'}}\n"
RENAMED = changed("  alpha:\n", "  gamma:\n    was: alpha\n").replace("provider: alpha", "provider: gamma")
ELSEWHERE = changed("  alpha:\n    base_url: http://127.0.0.1:9/v1", "  alpha:\n    base_url: http://127.0.0.1:10/v1")


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop(dict(SECRETS))
    yield shop
    await shop.close()


def sentence(new: str, subject: str, words: str, *, old: str = POLICY) -> None:
    """Fails unless this is told of the thing."""
    assert words in told(section(difference(old, new), subject))


async def test_permits_in_use_stay_counted_and_nobody_goes_until_they_are_fewer_than_the_new_share(shop: Shop) -> None:
    new = changed("large: {limits: {concurrency: 3}}", "large: {limits: {concurrency: 2}}")
    sentence(new, "model alpha/large", "in use stay counted: nobody new goes until fewer than 2 are in use")
    shop.live(POLICY)
    permits = [shop.permit("alpha", "large") for _ in range(3)]
    shop.live(new)
    permits[0].release(shop.clock.now())
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    permits[1].release(shop.clock.now())
    assert waiter.permit is not None


async def test_who_waits_goes_at_once_when_the_share_rises(shop: Shop) -> None:
    new = changed("large: {limits: {concurrency: 3}}", "large: {limits: {concurrency: 4}}")
    sentence(new, "model alpha/large", "who waits for a permit of this model goes at once")
    shop.live(POLICY)
    for _ in range(3):
        shop.permit("alpha", "large")
    waiter = shop.enter("alpha", "large")
    shop.live(new)
    assert isinstance(waiter, Waiter)
    assert waiter.permit is not None


async def test_calls_that_run_are_not_counted_in_a_limit_that_is_new(shop: Shop) -> None:
    new = changed("  beta:\n", "  beta:\n    limits: {concurrency: 2}\n")
    sentence(new, "provider beta", "not counted in the new limit: until they have ended, more than 2 can be in flight")
    shop.live(POLICY)
    for _ in range(3):
        shop.permit("beta", "other")
    shop.live(new)
    assert [isinstance(shop.enter("beta", "other"), Permit) for _ in range(3)] == [True, True, False]


async def test_shares_are_those_that_an_instance_has(shop: Shop) -> None:
    new = POLICY + "fleet: {size: {static: 3}}\n"
    found = difference(POLICY, new)
    shop.live(new)
    for subject, identity in (
        ("the whole policy", ("process",)),
        ("provider alpha", ("provider", "alpha")),
        ("key alpha/a2", ("key", "alpha", "a2")),
        ("model alpha/large", ("model", "alpha", "large")),
    ):
        assert says(section(found, subject))["share of an instance"][1] == str(shop.size(*identity))
    assert says(section(found, "provider alpha"))["most that may wait"][1] == str(
        shop.core(Room, "room", "alpha").max_waiters
    )


async def test_who_waits_keeps_its_place_in_a_shorter_queue_and_newcomers_are_refused(shop: Shop) -> None:
    new = changed("    breaker: {consecutive: 4}", "    breaker: {consecutive: 4}\n    queue: {max: 2}")
    sentence(new, "provider alpha", "who waits keeps its place; newcomers get queue_full until fewer than 2 wait")
    shop.live(POLICY)
    permits = [shop.permit("alpha", "large") for _ in range(3)]
    waiters = [shop.enter("alpha", "large") for _ in range(3)]
    shop.live(new)
    assert isinstance(shop.enter("alpha", "large"), Refusal)
    for permit in permits:
        permit.release(shop.clock.now())
    assert all(isinstance(waiter, Waiter) and waiter.permit is not None for waiter in waiters)


async def test_an_open_breaker_stays_open_under_other_settings(shop: Shop) -> None:
    new = changed("consecutive: 4", "consecutive: 2, open: {first: 5s}")
    sentence(new, "provider alpha", "an open breaker stays open as long as it was to")
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    waits = breaker_of(shop, "large").retry_after(shop.clock.now())
    shop.live(new)
    assert breaker_of(shop, "large").retry_after(shop.clock.now()) == waits


async def test_another_scope_begins_with_a_closed_breaker(shop: Shop) -> None:
    new = changed("consecutive: 4", "scope: provider, consecutive: 4")
    sentence(new, "provider alpha", "one for all models, closed, also where one is open now")
    sentence(new, "provider alpha", "begin anew: breakers")
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    shop.live(new)
    assert breaker_of(shop, "*").state is BreakerState.CLOSED


async def test_another_address_has_new_breakers_and_connections_and_the_same_permits(shop: Shop) -> None:
    sentence(
        ELSEWHERE, "provider alpha", "kept: permits of its limit, permits of its connections, queue places, keys\n"
    )
    sentence(ELSEWHERE, "provider alpha", "another address has breakers of its own: closed, also where one is open now")
    sentence(ELSEWHERE, "provider alpha", "begin anew: breakers, connections\n")
    sentence(ELSEWHERE, "provider alpha", "put aside for 10 minutes, in case they come back: breakers, connections")
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    shop.permit("alpha", "large")
    park(shop, "a1")
    pool = shop.core(Pool, "pool", "alpha")
    shop.live(ELSEWHERE)
    assert breaker_of(shop, "large").state is BreakerState.CLOSED
    assert shop.core(Pool, "pool", "alpha") is not pool
    assert shop.core(Places, "provider", "alpha").used == 1
    assert shop.key("alpha", "a1").parked
    shop.live(POLICY)
    assert breaker_of(shop, "large").state is BreakerState.OPEN
    assert shop.core(Pool, "pool", "alpha") is pool


async def test_another_path_of_the_same_address_keeps_breakers_and_connections(shop: Shop) -> None:
    new = POLICY.replace("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v2")
    sentence(new, "provider alpha", "the same address: connections and breakers stay")
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    pool = shop.core(Pool, "pool", "alpha")
    shop.live(new)
    assert breaker_of(shop, "large").state is BreakerState.OPEN
    assert shop.core(Pool, "pool", "alpha") is pool


async def test_a_removed_provider_keeps_its_state_for_ten_minutes() -> None:
    words = "for 10 minutes, in case it comes back: breakers, permits of its limit"
    sentence(WITHOUT_ALPHA, "provider alpha", words)
    for seconds, kept in ((599.0, True), (601.0, False)):
        shop = Shop(dict(SECRETS))
        shop.live(POLICY)
        shop.trip(breaker_of(shop, "large"))
        shop.live(WITHOUT_ALPHA)
        shop.clock.advance(seconds)
        for core in shop.kept.expire(shop.clock.now()):
            if isinstance(core, Pool):
                await core.close()
        shop.live(POLICY)
        assert (breaker_of(shop, "large").generation > 0) is kept
        await shop.close()


async def test_a_renamed_provider_keeps_all(shop: Shop) -> None:
    found = section(difference(POLICY, RENAMED), "provider gamma")
    assert says(found)["name"] == ("alpha", "gamma")
    assert "begin anew" not in told(found)
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    shop.permit("alpha", "large")
    park(shop, "a1")
    shop.live(RENAMED)
    assert breaker_of(shop, "large", provider="gamma").state is BreakerState.OPEN
    assert shop.core(Places, "provider", "gamma").used == 1
    assert shop.key("gamma", "a1").parked


# Keys.


async def test_another_secret_ends_rest_and_parking_and_the_same_one_does_not() -> None:
    new = changed("{id: a1, env: KEY_1}", "{id: a1, env: KEY_3}")
    sentence(new, "key alpha/a1", "ends the key's rest and parking; the same secret from another source keeps them")
    for secret, parked in (("s3", False), ("s1", True)):
        shop = Shop({**SECRETS, "KEY_3": secret})
        shop.live(POLICY)
        park(shop, "a1")
        shop.live(new)
        assert shop.key("alpha", "a1").parked is parked
        await shop.close()


async def test_a_key_that_goes_keeps_its_parking_and_one_that_is_new_serves_who_waits(shop: Shop) -> None:
    new = changed("{id: a1, env: KEY_1}", "{id: a3, env: KEY_3}")
    sentence(new, "key alpha/a1", "its rest or parking is kept aside for 10 minutes")
    sentence(
        new, "key alpha/a3", "begins usable: chosen with the others from the next decision on, also by calls that wait"
    )
    shop.live(POLICY)
    park(shop, "a1")
    rest(shop, "a2", 20.0)
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    shop.live(new)
    assert waiter.permit is not None
    assert waiter.permit.key is shop.key("alpha", "a3")
    shop.live(POLICY)
    assert shop.key("alpha", "a1").parked


async def test_a_renamed_key_stays_parked(shop: Shop) -> None:
    new = changed("{id: a1, env: KEY_1}", "{id: first, was: a1, env: KEY_1}")
    sentence(new, "key alpha/first", "renamed: it rests on or stays parked, as long as its secret is the same")
    shop.live(POLICY)
    park(shop, "a1")
    shop.live(new)
    assert shop.key("alpha", "first").parked


async def test_permits_of_a_renamed_key_stay_counted(shop: Shop) -> None:
    new = changed("{id: a2, env: KEY_2, concurrency: 5}", "{id: second, was: a2, env: KEY_2, concurrency: 5}")
    sentence(new, "key alpha/second", "its permits in use stay counted under its new id")
    shop.live(POLICY)
    park(shop, "a1")
    shop.permit("alpha", "large")
    shop.live(new)
    assert shop.core(Places, "key", "alpha", "second").used == 1


async def test_without_keys_who_waits_goes_on_with_the_keys_it_came_for(shop: Shop) -> None:
    new = changed("    keys: [{id: a1, env: KEY_1}, {id: a2, env: KEY_2, concurrency: 5}]\n", "")
    sentence(new, "provider alpha", "calls that wait at the reload wait on for the keys that they came for")
    shop.live(POLICY)
    permits = [shop.permit("alpha", "large") for _ in range(3)]
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    shop.live(new)
    permits[0].release(shop.clock.now())
    assert waiter.permit is not None
    assert waiter.permit.key is not None


# Modes, names and budgets.


async def test_observing_lets_who_waits_go_and_enforcing_holds_back_again(shop: Shop) -> None:
    new = changed("  alpha:\n", "  alpha:\n    mode: observe\n")
    sentence(
        new, "provider alpha", "shares and breakers hold nobody back any more; who waits for a permit goes at once"
    )
    back = told(section(difference(new, POLICY), "provider alpha"))
    assert "where more permits are in use than the share has, nobody new goes until they are fewer" in back
    shop.live(POLICY)
    for _ in range(3):
        shop.permit("alpha", "large")
    waiter = shop.enter("alpha", "large")
    shop.live(new)
    assert isinstance(waiter, Waiter)
    assert waiter.permit is not None
    shop.live(POLICY)
    waiter.permit.release(shop.clock.now())
    assert isinstance(shop.enter("alpha", "large"), Waiter)


async def test_retry_budgets_of_a_renamed_route_stay_counted(shop: Shop) -> None:
    new = changed("- name: chat\n", "- name: talk\n    was: chat\n").replace("budget: 0.2", "budget: 0.3")
    sentence(new, "route talk", "keeps its retry budgets: what was counted stays counted")
    shop.live(POLICY)
    budget = shop.core(RetryBudget, "budget", "chat", "alpha")
    for _ in range(BUDGET_FLOOR):
        budget.take(shop.clock.now())
    shop.live(new)
    assert not shop.core(RetryBudget, "budget", "talk", "alpha").take(shop.clock.now())


async def test_a_model_that_is_named_goes_on_where_callers_asked_for_it_before(shop: Shop) -> None:
    new = changed("large: {limits: {concurrency: 3}}", "large: {limits: {concurrency: 3}}, tiny: {}")
    sentence(new, "model alpha/tiny", "where callers asked for it by name before, its queue and breaker go on")
    plan: Any = shop.live(POLICY).router.candidates("/v1/models", {}).routes[0]
    below = within(plan.call)[1]
    while not isinstance(below, FallbackTiers):
        below = within(below)[1]
    cast(Any, below)._tiers[0].targets.of("tiny")
    shop.trip(breaker_of(shop, "tiny"))
    shop.live(new)
    assert breaker_of(shop, "tiny").state is BreakerState.OPEN
