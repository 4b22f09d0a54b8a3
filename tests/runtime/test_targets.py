"""One provider's living parts: models that callers invent share the provider's limits, for this policy and the next."""

from __future__ import annotations

from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Waiter
from proxy.decisions.verdict import Verdict
from proxy.outcome import Reason
from proxy.runtime.models import MOST_INVENTED_MODELS
from tests.runtime.shop import Shop, breaker_of, targets

POLICY = """\
version: 1
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    limits: {concurrency: 3}
    breaker: {consecutive: 4}
"""


async def test_an_invented_model_has_a_breaker_of_its_own_and_the_providers_limit(shop: Shop) -> None:
    tier = targets(shop.live(POLICY))
    assert tier.of("m-new")[0] == "other"
    for _ in range(3):
        shop.permit("alpha", "m-new")
    assert shop.core(Places, "provider", "alpha").used == 3
    assert isinstance(shop.enter("alpha", "other"), Waiter)
    shop.trip(breaker_of(shop, "m-new"))
    assert breaker_of(shop, "other").retry_after(shop.clock.now()) == 0.0


async def test_cores_of_invented_models_are_bounded(shop: Shop) -> None:
    tier = targets(shop.live(POLICY))
    for number in range(3 * MOST_INVENTED_MODELS):
        tier.of(f"m-{number}")
    assert sum(1 for _ in shop.kept.all(Breaker)) == MOST_INVENTED_MODELS + 1
    assert sum(1 for _ in shop.kept.all(Line)) == MOST_INVENTED_MODELS + 1


async def test_an_invented_model_keeps_its_breaker_over_a_reload(shop: Shop) -> None:
    targets(shop.live(POLICY)).of("m-new")
    breaker = breaker_of(shop, "m-new")
    shop.trip(breaker)
    runtime = shop.live(POLICY)
    targets(runtime).of("m-new")
    assert breaker_of(shop, "m-new") is breaker


async def test_a_request_that_outlives_its_policy_sets_no_core_back_to_it(shop: Shop) -> None:
    old = targets(shop.live(POLICY))
    new = targets(shop.live("limits: {concurrency: 1}\n" + POLICY.replace("consecutive: 4", "consecutive: 2")))
    new.of("m-new")
    assert old.of("m-new") == old.of(None)
    assert breaker_of(shop, "m-new").settings.consecutive == 2
    assert isinstance(shop.enter("alpha", "m-new"), Permit)
    assert isinstance(shop.enter("alpha", "m-new"), Waiter), "the new policy's limit binds no more"


async def test_a_providers_breaker_releases_the_lines_of_an_earlier_policy_too(shop: Shop) -> None:
    policy = POLICY.replace("consecutive: 4", "consecutive: 4, scope: provider")
    targets(shop.live(policy)).of("m-new")
    for _ in range(3):
        shop.permit("alpha", "m-new")
    waiter = shop.enter("alpha", "m-new")
    assert isinstance(waiter, Waiter)
    shop.live(policy)
    shop.trip(breaker_of(shop, "*"))
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.BREAKER_OPEN


TIERS = """\
    timeouts: {first_byte: 1s, answer: 4s}
routes:
  - {name: quick, match: {path: /a}, tiers: [{provider: alpha, answer: 2s}]}
  - {name: patient, match: {path: /b}, tiers: [{provider: alpha, answer: 10s}]}
  - {name: rest, match: {}, tiers: [{provider: alpha}]}
"""


async def test_the_most_patient_tier_says_how_long_a_probe_without_a_stream_may_take_at_most(shop: Shop) -> None:
    shop.live(POLICY + TIERS)
    breaker, clock = breaker_of(shop, "other"), shop.clock
    long = breaker.acquire(clock.now(), stream=False)
    assert long is not None
    long.on_wire(clock.now())
    clock.advance(9.0)
    long.end(Verdict.SUCCESS, clock.now())
    shop.trip(breaker)
    clock.advance(breaker.retry_after(clock.now()))
    probe = breaker.acquire(clock.now(), stream=False)
    assert probe is not None
    probe.on_wire(clock.now())
    clock.advance(9.9)
    assert breaker.statistics(clock.now()).probes_running == 1
    clock.advance(0.1)
    assert breaker.statistics(clock.now()).state is BreakerState.OPEN
