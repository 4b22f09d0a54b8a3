"""What is said of quotas, tenants, lanes, addresses and the adaptive limit is what a reload does to them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.decisions.adaptive import AdaptiveLimit
from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Waiter
from proxy.decisions.quota import Bucket
from proxy.decisions.tenants import Tenants
from proxy.upstream.pool import Pool
from tests.policy.difference.policies import difference, section, told
from tests.runtime.shop import SECRETS, WAITS, Shop

POLICY = """\
version: 1
fleet: {size: {static: 2}}
providers:
  alpha:
    base_url: [http://127.0.0.1:9/v1, http://127.0.0.1:10/v1]
    keys: [{id: a1, env: KEY_1, rpm: 600}]
    limits: {rpm: 600, tpm: 60000, concurrency: 20, headroom: 1, adaptive: {min: 2}}
    models: {large: {limits: {concurrency: 4, tpm: 6000}}}
    breaker: {consecutive: 4}
tenants: {from: [{header: x-agent}], default: {rps: 10, concurrency: 4}}
routes:
  - name: chat
    tiers: [{provider: alpha, model: large}]
"""
SIZE_OF_RPM = 25.0
"""600 a minute, half of it here, for five seconds."""


def changed(old: str, new: str) -> str:
    """The policy with this difference."""
    assert old in POLICY
    return POLICY.replace(old, new)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop(dict(SECRETS))
    shop.live(POLICY)
    yield shop
    await shop.close()


def sentence(new: str, subject: str, words: str) -> None:
    """Fails unless this is told of the thing."""
    assert words in told(section(difference(POLICY, new), subject))


def bucket(shop: Shop, *identity: str) -> Bucket:
    """A bucket that is full, and has given a request or so."""
    found = shop.core(Bucket, *identity)
    found.take(1.0, shop.clock.now())
    shop.clock.advance(60.0)
    assert found.level(shop.clock.now()) == found.capacity
    return found


async def test_a_reload_refills_no_bucket_and_another_rate_keeps_the_level(shop: Shop) -> None:
    new = changed("rpm: 600, tpm: 60000", "rpm: 1200, tpm: 60000")
    sentence(new, "provider alpha", "keeps its level, up to its new size: nothing is refilled or forgiven")
    requests = bucket(shop, "rpm", "alpha")
    requests.take(20.0, shop.clock.now())
    for _ in range(20):
        shop.live(POLICY)
        shop.live(new)
    assert shop.core(Bucket, "rpm", "alpha") is requests
    assert (requests.capacity, requests.level(shop.clock.now())) == (2 * SIZE_OF_RPM, SIZE_OF_RPM - 20.0)


async def test_a_smaller_rate_keeps_a_debt_and_no_more_than_its_size(shop: Shop) -> None:
    new = changed("rpm: 600, tpm: 60000", "rpm: 60, tpm: 600")
    requests, tokens = bucket(shop, "rpm", "alpha"), bucket(shop, "tpm", "alpha")
    tokens.take(tokens.capacity + 100.0, shop.clock.now())
    shop.live(new)
    assert requests.level(shop.clock.now()) == requests.capacity == SIZE_OF_RPM / 10
    assert tokens.level(shop.clock.now()) == -100.0


async def test_a_bucket_that_is_new_holds_one_request(shop: Shop) -> None:
    new = changed("tpm: 6000}", "tpm: 6000, rpm: 600}")
    sentence(new, "model alpha/large", "is new: it begins with one request's worth, not full")
    shop.live(new)
    found = shop.core(Bucket, "model_rpm", "alpha", "large")
    assert found.wait(1.0, shop.clock.now()) == 0.0
    found.take(1.0, shop.clock.now())
    assert found.wait(1.0, shop.clock.now()) > 0.0


async def test_buckets_of_a_renamed_provider_and_key_keep_their_level(shop: Shop) -> None:
    new = changed("  alpha:\n", "  beta:\n    was: alpha\n").replace("provider: alpha", "provider: beta")
    new = new.replace("{id: a1, env", "{id: first, was: a1, env")
    sentence(new, "key beta/first", "its buckets keep their level under its new id")
    sentence(new, "provider beta", "quota of requests, quota of tokens")
    found = [bucket(shop, *names) for names in (("rpm", "alpha"), ("model_tpm", "alpha"), ("key_rpm", "alpha", "a1"))]
    shop.live(new)
    again = [("rpm", "beta"), ("model_tpm", "beta", "large"), ("key_rpm", "beta", "first")]
    assert [shop.core(Bucket, *names) for names in again] == found


async def test_an_adaptive_limit_goes_on_from_where_it_stands(shop: Shop) -> None:
    new = changed("adaptive: {min: 2}", "adaptive: {min: 1}")
    sentence(new, "provider alpha", "the adaptive limit goes on from where it stands")
    limit = shop.core(AdaptiveLimit, "adaptive_limit", "alpha")
    assert limit.size == shop.size("provider", "alpha") == 10
    shop.clock.advance(60.0)
    limit.refused(shop.clock.now())
    shop.live(new)
    assert limit.size == shop.size("adaptive", "alpha") < 10


async def test_who_waits_for_a_quota_that_goes_gets_on_at_once(shop: Shop) -> None:
    new = changed(", tpm: 6000}", "}")
    sentence(new, "model alpha/large", "of this model in a minute any more: who waits for them goes at once")
    line, ask = shop.core(Line, "line", "alpha", "large"), Ask(limits=WAITS, tokens=400.0)
    assert isinstance(shop.admission.enter(line, ask, shop.clock.now()), Permit)
    waiter = shop.admission.enter(line, ask, shop.clock.now())
    assert isinstance(waiter, Waiter)
    shop.clock.advance(1.0)
    shop.live(POLICY)
    assert waiter.permit is None
    shop.live(new)
    assert waiter.permit is not None


async def test_what_tenants_have_in_flight_stays_counted(shop: Shop) -> None:
    new = changed("concurrency: 4}", "concurrency: 1}")
    sentence(new, "tenants", "what tenants have used and have in flight stays counted: nothing is refilled")
    tenants = shop.core(Tenants, "tenants")
    now = shop.clock.now()
    grants = [tenants.of("one", now).caps.take(0.0, now) for _ in range(2)]
    shop.live(new)
    assert shop.core(Tenants, "tenants") is tenants
    assert tenants.of("one", now).caps.refusal(0.0, now) is not None
    for grant in grants:
        grant.give_back(0.0, now)
    shop.clock.advance(1.0)
    now = shop.clock.now()
    assert tenants.of("one", now).caps.refusal(0.0, now) is None


async def test_who_waits_keeps_its_place_when_lanes_come_and_go(shop: Shop) -> None:
    lanes = POLICY + "    lanes: [{max_output: 100, share: 0.3}]\n"
    sentence(lanes, "route chat", "who waits keeps its place; permits in use stay counted where they were taken")
    permits = []
    for _ in range(2):
        permits.append(shop.permit("alpha", "large"))
        shop.clock.advance(1.0)
    first = shop.enter("alpha", "large")
    shop.live(lanes)
    in_lane = shop.core(Line, "line", "alpha", "large", "lane chat/100")
    second = shop.admission.enter(in_lane, Ask(limits=WAITS), shop.clock.now())
    shop.live(POLICY)
    assert isinstance(first, Waiter)
    assert isinstance(second, Waiter)
    for permit, waiter in zip(permits, (first, second), strict=True):
        permit.release(shop.clock.now())
        assert waiter.permit is not None
    assert shop.core(Places, "provider", "alpha").used == 2


async def test_an_address_that_stays_keeps_its_pool_and_open_breaker(shop: Shop) -> None:
    new = changed("[http://127.0.0.1:9/v1, http://127.0.0.1:10/v1]", "[http://127.0.0.1:10/v1, http://127.0.0.1:11/v1]")
    sentence(new, "provider alpha", "addresses that stay keep their connections and breakers")
    sentence(new, "provider alpha", "http://127.0.0.1:11: begins with a closed breaker and no connections")
    here = "http://127.0.0.1:10"
    pool, breaker = shop.core(Pool, "pool", "alpha", here), shop.core(Breaker, "breaker", "alpha", here, "large")
    shop.trip(breaker)
    shop.live(new)
    assert shop.core(Pool, "pool", "alpha", here) is pool
    assert shop.core(Breaker, "breaker", "alpha", here, "large").state is BreakerState.OPEN
    assert shop.core(Breaker, "breaker", "alpha", "http://127.0.0.1:11", "large").state is BreakerState.CLOSED
    assert shop.core(Places, "provider", "alpha").size == 10
