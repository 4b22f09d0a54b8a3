"""Modes and paces in an assembled policy: which of them holds, and what a reload keeps of what is out and known."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from proxy.decisions.observing import Tally
from proxy.decisions.pace import FEWEST_CALLS, Pace
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Waiter
from proxy.observer import Would
from proxy.runtime.status import StatusReader
from proxy.stages.admission import ObservingAdmissionStage
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import ObservingBreakerStage
from proxy.stages.fallback import FallbackTiers
from proxy.stages.retry import RetryStage
from tests.runtime.shop import Shop, breaker_of
from tests.scripted import within

ENFORCED = """\
version: 1
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    limits: {concurrency: 1}
    breaker: {consecutive: 4}
  beta:
    base_url: http://127.0.0.1:9/v1
    limits: {concurrency: 1}
routes:
  - name: chat
    match: {path: /v1/chat/completions}
    tiers: [{provider: alpha}, {provider: beta}]
  - name: rest
    match: {path: "/v1/*"}
    tiers: [{provider: alpha}]
"""
OBSERVED = ENFORCED + "mode: observe\n"
PROVIDER = ENFORCED.replace("  alpha:\n", "  alpha:\n    mode: observe\n")
ROUTE = ENFORCED.replace("name: rest\n", "name: rest\n    mode: observe\n")
PACED = ENFORCED.replace("breaker: {consecutive: 4}", "timeouts: {answer: {p95: 2, plus: 1s}}")


def tiers_of(plan: Any) -> Any:
    """The tiers of a route, below all its stages."""
    call = plan.call
    while not isinstance(call, FallbackTiers):
        _, call = within(call)
    return call._tiers


def stages(shop: Shop, policy: str, path: str, tier: int = 0) -> list[Any]:
    """The stages of a route's tier, for models that the policy does not name."""
    plan: Any = shop.live(policy).router.candidates(path, {}).routes[0]
    one: Any = tiers_of(plan)[tier]
    _, call = one.targets.of(None)
    found = []
    while isinstance(call, FunctionType):
        stage, call = within(call)
        found.append(stage)
    return found


def observes(found: list[Any]) -> bool:
    """Whether every stage observes, or none; a tier that is half in one mode fails."""
    kinds = {
        any(isinstance(stage, ObservingBreakerStage) for stage in found),
        any(isinstance(stage, ObservingAdmissionStage) for stage in found),
        next(stage for stage in found if isinstance(stage, RetryStage))._breaker is None,
    }
    (kind,) = kinds
    return kind


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (ENFORCED, [False, False, False, False]),
        (OBSERVED, [True, True, True, True]),
        (PROVIDER, [True, False, True, True]),
        (ROUTE, [False, False, True, False]),
    ],
    ids=["enforced", "policy", "provider", "route"],
)
async def test_the_most_lenient_mode_holds(shop: Shop, policy: str, expected: list[bool]) -> None:
    tiers = [("/v1/chat/completions", 0), ("/v1/chat/completions", 1), ("/v1/models", 0), ("/alpha/models", 0)]
    assert [observes(stages(shop, policy, path, tier)) for path, tier in tiers] == expected


async def test_permits_that_went_out_above_the_share_stay_counted_when_it_is_enforced(shop: Shop) -> None:
    shop.live(PROVIDER)
    permits = [shop.permit("alpha", "other") for _ in range(3)]
    places = shop.core(Places, "provider", "alpha")
    assert (places.used, places.size) == (3, 1)
    shop.live(ENFORCED)
    assert places.used == 3
    waiter = shop.enter("alpha", "other")
    assert isinstance(waiter, Waiter)
    for permit in permits:
        assert waiter.permit is None
        permit.release(shop.clock.now())
    assert waiter.permit is not None
    assert places.used == 1


async def test_who_waits_for_a_place_goes_when_the_provider_becomes_observed(shop: Shop) -> None:
    shop.live(ENFORCED)
    shop.permit("alpha", "other")
    waiter = shop.enter("alpha", "other")
    assert isinstance(waiter, Waiter)
    shop.live(OBSERVED)
    assert waiter.permit is not None
    assert shop.core(Places, "provider", "alpha").used == 2


async def test_who_waits_at_a_model_that_callers_invented_goes_too(shop: Shop) -> None:
    plan: Any = shop.live(ENFORCED).router.candidates("/v1/models", {}).routes[0]
    tiers_of(plan)[0].targets.of("m-new")
    shop.permit("alpha", "m-new")
    waiter = shop.enter("alpha", "m-new")
    assert isinstance(waiter, Waiter)
    shop.live(PROVIDER)
    assert waiter.permit is not None


async def test_where_one_route_observes_the_others_still_wait(shop: Shop) -> None:
    shop.live(ROUTE)
    lines = {key: line for key, line, _ in shop.kept.all(Line)}
    now, line, apart = shop.clock.now(), lines["line", "alpha", "other"], lines["line", "alpha", "other", "observing"]
    assert isinstance(shop.admission.enter_at_once(line, None, now), Permit)
    assert isinstance(shop.admission.enter_at_once(apart, None, now), Permit)
    assert shop.admission.enter_at_once(line, None, now) is None
    assert shop.core(Places, "provider", "alpha").used == 2


async def test_status_tells_what_enforcing_would_have_done_while_something_observes(shop: Shop) -> None:
    shop.live(PROVIDER)
    shop.core(Tally, "tally", "alpha", "http://127.0.0.1:9", "other").count(Would.BREAKER_OPEN)
    tally = next(tally for key, tally, _ in shop.kept.all(Tally) if key == ("tally", "alpha"))
    for would in (Would.WAIT, Would.WAIT, Would.BREAKER_OPEN):
        tally.count(would)
    status = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()
    assert status["observed"] == [
        {
            "provider": "alpha",
            "would_wait": 2,
            "would_queue_full": 0,
            "would_queue_timeout": 0,
            "would_quota_exhausted": 0,
            "would_breaker_open": 1,
            "would_tenant_limit": 0,
            "would_context_too_long": 0,
        }
    ]
    assert [row["would_refuse"] for row in status["breakers"]] == [1, None]
    shop.live(ENFORCED)
    status = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()
    assert status["observed"] == []
    assert [row["would_refuse"] for row in status["breakers"]] == [None, None]


async def test_a_breaker_keeps_its_state_when_the_mode_changes(shop: Shop) -> None:
    shop.live(PROVIDER)
    breaker = breaker_of(shop, "other")
    shop.trip(breaker)
    shop.live(ENFORCED)
    assert breaker_of(shop, "other") is breaker
    assert breaker.retry_after(shop.clock.now()) > 0


async def test_a_pace_is_its_targets_and_outlives_a_reload(shop: Shop) -> None:
    found = stages(shop, PACED, "/v1/models")
    attempt = next(stage for stage in found if isinstance(stage, AttemptStage))
    assert attempt._paced is not None
    pace = shop.core(Pace, "pace", "alpha")
    for _ in range(FEWEST_CALLS):
        pace.answered(1.0, shop.clock.now())
    assert attempt._paced.limits(shop.clock.now()).answer == pytest.approx(3.1, rel=0.2)
    shop.live(PACED.replace("p95: 2", "p95: 3"))
    assert shop.core(Pace, "pace", "alpha") is pace
    (row,) = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()["paces"]
    assert (row["provider"], row["model"], row["calls"]) == ("alpha", "other", FEWEST_CALLS)
    assert row["p95"] == pytest.approx(1.0, rel=0.2)


async def test_without_a_pace_nothing_is_learned(shop: Shop) -> None:
    attempt = next(stage for stage in stages(shop, ENFORCED, "/v1/models") if isinstance(stage, AttemptStage))
    assert attempt._paced is None
    assert list(shop.kept.all(Pace)) == []
