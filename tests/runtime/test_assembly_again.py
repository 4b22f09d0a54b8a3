"""A second assembly: what survives it, what acts at once, and what a renaming keeps."""

from __future__ import annotations

from proxy.decisions.breaker import BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Waiter
from proxy.decisions.retry import BUDGET_FLOOR, RetryBudget
from proxy.upstream.pool import Pool
from tests.runtime.shop import POLICY, SECRETS, Shop, breaker_of, changed, park, rest

# What survives.


async def test_an_equal_policy_keeps_every_core(shop: Shop) -> None:
    shop.live(POLICY)
    before = {identity: core for identity, core, used in shop.kept.all(object) if used}
    shop.live(POLICY)
    after = {identity: core for identity, core, used in shop.kept.all(object) if used}
    assert before == after


async def test_an_open_breaker_stays_open_and_a_failing_count_goes_on(shop: Shop) -> None:
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    shop.clock.advance(10.0)
    waits = breaker_of(shop, "large").retry_after(shop.clock.now())
    shop.live(POLICY)
    assert breaker_of(shop, "large").state is BreakerState.OPEN
    assert breaker_of(shop, "large").retry_after(shop.clock.now()) == waits


async def test_a_resting_key_rests_on_and_a_parked_one_stays_parked(shop: Shop) -> None:
    shop.live(POLICY)
    rest(shop, "a1", 20.0)
    park(shop, "a2")
    shop.live(changed("concurrency: 10", "concurrency: 11"))
    assert shop.key("alpha", "a1").rests_until == shop.clock.now() + 20.0
    assert shop.key("alpha", "a2").parked


async def test_another_secret_ends_rest_and_parking_of_its_key_only(shop: Shop) -> None:
    environ = dict(SECRETS)
    shop = Shop(environ)
    shop.live(POLICY)
    park(shop, "a1")
    park(shop, "a2")
    environ["KEY_1"] = "s1-new"
    shop.live(POLICY)
    assert not shop.key("alpha", "a1").parked
    assert shop.key("alpha", "a2").parked
    credential = shop.key("alpha", "a1").credential
    assert credential is not None
    assert credential.line == b"authorization: Bearer s1-new\r\n"
    await shop.close()


async def test_places_in_use_stay_counted_and_are_given_back_where_they_were_taken(shop: Shop) -> None:
    shop.live(POLICY)
    permits = [shop.permit("alpha", "large") for _ in range(3)]
    shop.live(POLICY)
    assert shop.core(Places, "provider", "alpha").used == 3
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    permits[0].release(shop.clock.now())
    assert waiter.permit is not None
    for permit in (*permits[1:], waiter.permit):
        permit.release(shop.clock.now())
    assert all(places.used == 0 for _, places, _ in shop.kept.all(Places))


async def test_a_spent_retry_budget_stays_spent(shop: Shop) -> None:
    shop.live(POLICY)
    budget = shop.core(RetryBudget, "budget", "chat", "alpha")
    for _ in range(BUDGET_FLOOR):
        assert budget.take(shop.clock.now())
    shop.live(changed("budget: 0.2", "budget: 0.3"))
    assert shop.core(RetryBudget, "budget", "chat", "alpha") is budget
    assert not budget.take(shop.clock.now())
    assert budget.ratio == 0.3


async def test_removing_a_provider_and_adding_it_again_resets_nothing(shop: Shop) -> None:
    shop.live(POLICY)
    shop.permit("alpha", "large")
    shop.trip(breaker_of(shop, "large"))
    shop.live("version: 1\nproviders: {beta: {base_url: 'http://127.0.0.1:9/v1'}}\n")
    assert not any(used for key, _, used in shop.kept.all(object) if "alpha" in key)
    shop.clock.advance(5.0)
    shop.live(POLICY)
    assert breaker_of(shop, "large").state is BreakerState.OPEN
    assert shop.core(Places, "provider", "alpha").used == 1


async def test_another_address_is_another_breaker_and_another_pool(shop: Shop) -> None:
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    pool = shop.core(Pool, "pool", "alpha")
    shop.live(POLICY.replace("http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"))
    assert breaker_of(shop, "large").state is BreakerState.CLOSED
    assert shop.core(Pool, "pool", "alpha") is not pool


# What acts at once.


async def test_a_lower_limit_admits_nothing_until_use_falls(shop: Shop) -> None:
    shop.live(POLICY)
    permits = [shop.permit("alpha", "large") for _ in range(3)]
    shop.live(changed("concurrency: 3", "concurrency: 1"))
    for permit in permits[:2]:
        permit.release(shop.clock.now())
        assert isinstance(shop.enter("alpha", "large"), Waiter)
    permits[2].release(shop.clock.now())
    assert shop.core(Places, "model", "alpha", "large").used == 1


async def test_a_higher_limit_lets_waiters_go_with_the_swap(shop: Shop) -> None:
    shop.live(POLICY)
    for _ in range(3):
        shop.permit("alpha", "large")
    waiters = [shop.enter("alpha", "large") for _ in range(2)]
    runtime = shop.assemble(changed("concurrency: 3", "concurrency: 4"))
    assert [w.permit for w in waiters if isinstance(w, Waiter)] == [None, None]
    runtime.go_live(shop.clock.now())
    assert [w.permit is not None for w in waiters if isinstance(w, Waiter)] == [True, False]


async def test_a_limit_that_goes_away_binds_no_more_and_a_new_one_binds_at_once(shop: Shop) -> None:
    shop.live(POLICY)
    for _ in range(3):
        shop.permit("alpha", "large")
    shop.live(changed("    models: {large: {limits: {concurrency: 3}}}\n", ""))
    assert isinstance(shop.enter("alpha", "large"), Permit)
    shop.live(changed("limits: {concurrency: 50}", "limits: {concurrency: 0}"))
    assert not isinstance(shop.enter("beta", "other"), Permit)


async def test_breaker_settings_change_without_its_state(shop: Shop) -> None:
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    shop.live(changed("consecutive: 4", "consecutive: 2"))
    assert breaker_of(shop, "large").settings.consecutive == 2
    assert breaker_of(shop, "large").state is BreakerState.OPEN


async def test_a_key_that_is_taken_out_is_chosen_no_more(shop: Shop) -> None:
    shop.live(POLICY)
    shop.live(changed("{id: a1, env: KEY_1}, ", ""))
    permits = [shop.permit("alpha", "other") for _ in range(4)]
    assert {permit.key.id for permit in permits if permit.key is not None} == {"a2"}


# Renamed.


async def test_a_renamed_provider_keeps_its_breakers_places_keys_and_queue(shop: Shop) -> None:
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    shop.permit("alpha", "large")
    park(shop, "a2")
    renamed = changed("  alpha:\n", "  gamma:\n    was: alpha\n").replace("provider: alpha", "provider: gamma")
    for _ in range(2):
        shop.live(renamed)
        assert shop.core(Places, "provider", "gamma").used == 1
        assert shop.key("gamma", "a2").parked
        assert breaker_of(shop, "large", provider="gamma").state is BreakerState.OPEN
        assert not any(key[1:2] == ("alpha",) for key, _, used in shop.kept.all(object) if used)


async def test_a_renamed_key_stays_parked_and_has_its_new_name(shop: Shop) -> None:
    shop.live(POLICY)
    park(shop, "a1")
    shop.live(changed("{id: a1, env: KEY_1}", "{id: first, was: a1, env: KEY_1}"))
    key = shop.key("alpha", "first")
    assert key.parked
    assert key.credential is not None
    assert key.credential.key_id == "first"


async def test_a_renamed_route_keeps_its_budget(shop: Shop) -> None:
    shop.live(POLICY)
    budget = shop.core(RetryBudget, "budget", "chat", "alpha")
    shop.live(changed("- name: chat\n", "- name: talk\n    was: chat\n"))
    assert shop.core(RetryBudget, "budget", "talk", "alpha") is budget


ALPHA_IS_GAMMA = ("  alpha:\n", "  gamma:\n    was: alpha\n")
OLD_NAMES = changed("{id: a1, env: KEY_1}", "{id: a1, was: a0, env: KEY_1}").replace(
    "name: chat\n", "name: chat\n    was: talk\n"
)


async def test_a_renamed_provider_keeps_what_bears_an_old_name_of_its_own(shop: Shop) -> None:
    shop.live(OLD_NAMES)
    park(shop, "a1")
    budget = shop.core(RetryBudget, "budget", "chat", "alpha")
    shop.live(OLD_NAMES.replace(*ALPHA_IS_GAMMA).replace("provider: alpha", "provider: gamma"))
    assert shop.key("gamma", "a1").parked
    assert shop.core(RetryBudget, "budget", "chat", "gamma") is budget


async def test_a_renamed_key_keeps_its_places(shop: Shop) -> None:
    shop.live(POLICY)
    for _ in range(2):
        shop.permit("alpha", "large")
    places = shop.core(Places, "key", "alpha", "a2")
    assert places.used == 1
    renamed = changed("{id: a2, env: KEY_2, concurrency: 5}", "{id: second, was: a2, env: KEY_2, concurrency: 4}")
    shop.live(renamed)
    assert shop.core(Places, "key", "alpha", "second") is places
    assert (places.used, places.size) == (1, 4)
    shop.live(renamed.replace(*ALPHA_IS_GAMMA).replace("provider: alpha", "provider: gamma"))
    assert shop.core(Places, "key", "gamma", "second") is places


async def test_a_key_that_is_renamed_with_its_provider_keeps_its_places_and_stays_parked(shop: Shop) -> None:
    shop.live(POLICY)
    park(shop, "a2")
    places = shop.core(Places, "key", "alpha", "a2")
    both = POLICY.replace(*ALPHA_IS_GAMMA).replace("provider: alpha", "provider: gamma")
    shop.live(both.replace("{id: a2, env", "{id: second, was: a2, env"))
    assert shop.key("gamma", "second").parked
    assert shop.core(Places, "key", "gamma", "second") is places


# Retry budgets.


async def test_a_route_that_is_called_like_its_provider_has_the_budget_that_it_asks_for(shop: Shop) -> None:
    shop.live(POLICY.replace("- name: chat", "- name: alpha").replace("budget: 0.2", "budget: 0.7"))
    assert shop.core(RetryBudget, "budget", "alpha", "alpha").ratio == 0.7


async def test_a_budget_is_kept_though_an_earlier_renaming_still_stands(shop: Shop) -> None:
    older = changed("  alpha:\n", "  alpha:\n    was: older\n")
    shop.live(older)
    budget = shop.core(RetryBudget, "budget", "chat", "alpha")
    shop.live(older.replace("- name: chat\n", "- name: talk\n    was: chat\n"))
    assert shop.core(RetryBudget, "budget", "talk", "alpha") is budget


async def test_a_renamed_provider_keeps_the_budget_of_its_own_path(shop: Shop) -> None:
    shop.live(POLICY)
    budget = shop.core(RetryBudget, "budget", "/alpha", "alpha")
    shop.live(POLICY.replace(*ALPHA_IS_GAMMA).replace("provider: alpha", "provider: gamma"))
    assert shop.core(RetryBudget, "budget", "/gamma", "gamma") is budget
