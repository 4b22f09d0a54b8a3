"""A breaker in its place: its ceiling binds the calls of its target, over reloads, and it empties no other's queues."""

from __future__ import annotations

from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.queues import Line, Waiter
from proxy.decisions.verdict import Verdict
from proxy.outcome import Reason
from tests.runtime.shop import Shop, breaker_of

POLICY = """\
version: 1
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    limits: {concurrency: 22}
    models: {small: {limits: {concurrency: 2}}}
    breaker: {consecutive: 4, probes: 2}
  beta:
    base_url: http://127.0.0.1:9/v1
routes:
  - name: chat
    tiers: [{provider: alpha, model: large}]
"""
WHOLE = POLICY.replace("probes: 2", "probes: 2, scope: provider")


def half_opens(shop: Shop, breaker: Breaker) -> None:
    if breaker.state is BreakerState.CLOSED:
        shop.trip(breaker)
    shop.passes(breaker.retry_after(shop.clock.now()))
    assert breaker.state is BreakerState.HALF_OPEN


def recovers(shop: Shop, breaker: Breaker) -> None:
    """Opens the breaker, waits, and lets its probes succeed."""
    half_opens(shop, breaker)
    for _ in range(2):
        ticket = breaker.acquire(shop.clock.now(), stream=False)
        assert ticket is not None
        ticket.on_wire(shop.clock.now())
        ticket.end(Verdict.SUCCESS, shop.clock.now())
    assert breaker.state is BreakerState.CLOSED


def go(shop: Shop, model: str = "large", times: int = 40) -> int:
    """How many of so many calls may go at once; the others wait no more."""
    answers = [shop.enter("alpha", model) for _ in range(times)]
    for answer in answers:
        if isinstance(answer, Waiter):
            shop.admission.leave(answer, shop.clock.now())
    return sum(isinstance(answer, Permit) for answer in answers)


async def test_after_closing_calls_come_back_under_a_ceiling_that_rises_and_goes(shop: Shop) -> None:
    shop.live(POLICY)
    recovers(shop, breaker_of(shop, "large"))
    seen = []
    for _ in range(5):
        seen.append(go(shop))
        shop.passes(2.5)
    assert seen == [2, 5, 5, 5, 5]
    line = shop.core(Line, "line", "alpha", "large")
    assert [places.label for places in line.limits] == ["provider alpha", "connections alpha"]


async def test_who_waits_under_the_ceiling_goes_on_as_it_rises(shop: Shop) -> None:
    shop.live(POLICY)
    recovers(shop, breaker_of(shop, "large"))
    assert go(shop, times=2) == 2
    waiters = [shop.enter("alpha", "large") for _ in range(3)]
    shop.passes(1.0)
    assert [isinstance(waiter, Waiter) and waiter.permit is not None for waiter in waiters] == [True, True, False]


async def test_other_targets_are_not_under_it(shop: Shop) -> None:
    shop.live(POLICY)
    recovers(shop, breaker_of(shop, "large"))
    assert go(shop, "other") == 22


async def test_one_ceiling_binds_all_lines_of_a_provider_whose_breaker_is_one(shop: Shop) -> None:
    shop.live(WHOLE)
    recovers(shop, breaker_of(shop, "*"))
    shop.passes(5.0)
    assert [go(shop, "large", 7), go(shop, "other"), go(shop, "large")] == [7, 5, 0]


async def test_probes_that_still_run_when_it_closes_are_counted(shop: Shop) -> None:
    shop.live(POLICY)
    breaker = breaker_of(shop, "large")
    half_opens(shop, breaker)
    for _ in range(2):
        ticket = breaker.acquire(shop.clock.now(), stream=True)
        assert ticket is not None
        shop.permit("alpha", "large")
        ticket.on_wire(shop.clock.now())
        ticket.first_content(shop.clock.now())
    assert breaker.state is BreakerState.CLOSED
    assert go(shop) == 0
    shop.passes(1.0)
    assert go(shop) == 2


async def test_opening_again_ends_it(shop: Shop) -> None:
    shop.live(POLICY)
    breaker = breaker_of(shop, "large")
    recovers(shop, breaker)
    shop.trip(breaker)
    assert breaker.ramp.size is None
    assert breaker.ramp.places not in shop.core(Line, "line", "alpha", "large").limits


async def test_a_models_own_limit_is_the_share_that_it_grows_to(shop: Shop) -> None:
    shop.live(POLICY)
    breaker = breaker_of(shop, "small")
    recovers(shop, breaker)
    assert breaker.ramp.size is None
    assert go(shop, "small") == 2


async def test_a_reload_on_the_way_changes_what_it_grows_to(shop: Shop) -> None:
    shop.live(POLICY)
    recovers(shop, breaker_of(shop, "large"))
    shop.passes(5.0)
    shop.live(POLICY.replace("concurrency: 22", "concurrency: 62"))
    shop.passes(0.0)
    assert go(shop) == 32
    shop.passes(5.0)
    assert go(shop) == 30


async def test_a_provider_that_goes_and_comes_back_is_under_it_still_and_no_longer_than_it_lasts(shop: Shop) -> None:
    without = POLICY.replace("alpha:", "gamma:").replace("provider: alpha", "provider: beta")
    shop.live(POLICY)
    recovers(shop, breaker_of(shop, "large"))
    shop.live(without)
    shop.passes(5.0)
    shop.live(POLICY)
    assert go(shop) == 12
    shop.live(without)
    shop.passes(5.0)
    shop.live(POLICY)
    assert go(shop) == 10


async def test_a_breaker_that_is_switched_off_takes_its_ceiling_along(shop: Shop) -> None:
    shop.live(POLICY)
    recovers(shop, breaker_of(shop, "large"))
    shop.live(POLICY.replace("{consecutive: 4, probes: 2}", "off"))
    shop.passes(1.0)
    assert go(shop) == 22


async def test_the_breaker_of_an_address_that_is_no_more_has_no_say_over_the_queue(shop: Shop) -> None:
    shop.live(POLICY)
    old = breaker_of(shop, "large")
    shop.live(POLICY.replace("127.0.0.1:9", "127.0.0.1:7"))
    assert go(shop) == 22
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    shop.trip(old)
    assert waiter.refusal is None
    half_opens(shop, old)
    assert old.ramp.size == 2
    assert old.ramp.places not in waiter.line.limits


async def test_calls_that_wait_for_a_provider_that_was_removed_are_still_released_by_its_breaker(shop: Shop) -> None:
    shop.live(POLICY)
    breaker = breaker_of(shop, "large")
    assert go(shop, times=22) == 22
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    shop.live(POLICY.replace("alpha:", "gamma:").replace("provider: alpha", "provider: beta"))
    shop.trip(breaker)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.BREAKER_OPEN
    assert "beta" not in repr(breaker)


async def test_lines_that_observe_are_counted_under_the_ceiling_and_freed_from_it(shop: Shop) -> None:
    observing = POLICY.replace(
        "tiers: [{provider: alpha, model: large}]", "mode: observe\n    tiers: [{provider: alpha, model: large}]"
    )
    shop.live(observing)
    breaker = breaker_of(shop, "large")
    recovers(shop, breaker)
    lines = [line for key, line, _ in shop.kept.all(Line) if key[1:3] == ("alpha", "large")]
    assert [breaker.ramp.places in line.limits for line in lines] == [True, True]
    shop.passes(10.0)
    assert [breaker.ramp.places in line.limits for line in lines] == [False, False]
