"""What is said of kept answers is what a reload of a really assembled policy does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.decisions.cached import Cached
from proxy.ports import Found, StoredAnswer
from proxy.stages.response_cache import ResponseCacheStage
from tests.fakes import Ask, make_exchange
from tests.policy.difference.policies import difference, section, told
from tests.runtime.shop import SECRETS, Shop
from tests.scripted import within

POLICY = """\
version: 1
providers:
  a: {base_url: 'http://127.0.0.1:9/v1', keys: [{id: k, env: KEY_1}]}
  b: {base_url: 'http://127.0.0.1:9/v1', keys: [{id: k, env: KEY_1}]}
routes:
  - {name: r, tiers: [{provider: a}], cache: {ttl: 5m}}
"""
ANSWER = StoredAnswer(
    status=200, phrase=b"OK", lines=b"x-up: 1\r\n", body=b"kept", length=4, provider="a", model="m", tier=1
)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop(dict(SECRETS))
    yield shop
    await shop.close()


def cache_of(shop: Shop, policy: str) -> ResponseCacheStage:
    """The cache of the route when this policy is live; the question has the header x-a."""
    call = shop.live(policy).router.candidates("/v1/chat/completions", {"x-a": "v"}).routes[0].call
    while True:
        stage, call = within(call)
        if isinstance(stage, ResponseCacheStage):
            return stage


def keep(shop: Shop, policy: str, *, seconds: float = 600.0) -> None:
    """Keeps an answer to the question."""
    cache = cache_of(shop, policy)
    cache._parts.store.keep(question(cache), ANSWER, owner="default", seconds=seconds, now=shop.clock.now())


async def found(shop: Shop, policy: str, *, body: bytes = b'{"model":"m"}') -> Found | None:
    """What is kept for the question when this policy is live."""
    cache = cache_of(shop, policy)
    return await cache._parts.store.find(question(cache, body), shop.clock.now())


def question(cache: ResponseCacheStage, body: bytes = b'{"model":"m"}') -> bytes:
    name = cache._names.name(make_exchange(Ask(headers=(("x-a", "v"),), body=body)))
    assert name
    return name


def said(new: str, words: str, *, old: str = POLICY, route: str = "r") -> None:
    """Fails unless this is told of the route."""
    assert words in told(section(difference(old, new), f"route {route}"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("ttl: 5m", "ttl: 5m, scope: route", "another scope begins empty"),
        ("provider: a}", "provider: b}", "the first tier's answers are others now"),
        ("provider: a}", "provider: a, model: m2}", "the first tier's answers are others now"),
        ("provider: a}", "provider: a, set: {n: 1}}", "the first tier's answers are others now"),
        ("name: r,", "name: r, match: {header: {x-a: '*'}},", "other headers tell requests apart now"),
    ],
)
async def test_answers_that_are_not_given_any_more(shop: Shop, old: str, new: str, words: str) -> None:
    changed = POLICY.replace(old, new)
    said(changed, words)
    keep(shop, POLICY)
    assert await found(shop, changed) is None
    assert await found(shop, POLICY) is not None


async def test_another_service_of_the_first_tier_has_other_answers(shop: Shop) -> None:
    changed = POLICY.replace("  a: {", "  a: {headers: {x-team: b}, ", 1)
    said(changed, "the first tier's answers are others now")
    keep(shop, POLICY)
    assert await found(shop, changed) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ttl: 5m", "ttl: 1m, stale_while_revalidate: 1m"),
        ("ttl: 5m", "ttl: 5m, max_bytes: 1MiB"),
        ("ttl: 5m", "ttl: 5m, ignore: [user], normalize: [space, case]"),
        ("[{provider: a}]", "[{provider: a, idle: 9s}, {provider: b}, {stale_cache: {max_age: 1h}}]"),
        ("cache:", "class: P2, merge: {}, cache:"),
    ],
)
async def test_answers_that_stay_as_long_as_they_were_to(shop: Shop, old: str, new: str) -> None:
    changed = POLICY.replace(old, new)
    keep(shop, POLICY)
    shop.clock.advance(599.0)
    assert await found(shop, changed) is not None
    shop.clock.advance(2.0)
    assert await found(shop, changed) is None


async def test_a_request_that_is_the_same_by_the_new_rules_too(shop: Shop) -> None:
    changed = POLICY.replace("ttl: 5m", "ttl: 5m, ignore: [user]")
    said(changed, "answers that are kept are given where a request is the same by the new rules, too")
    keep(shop, POLICY)
    assert await found(shop, changed, body=b'{"user":"u","model":"m"}') is not None
    assert await found(shop, POLICY, body=b'{"user":"u","model":"m"}') is None


async def test_answers_stay_as_far_as_there_is_room(shop: Shop) -> None:
    changed = POLICY.replace("ttl: 5m", "ttl: 5m, max_bytes: 1")
    said(changed, "answers that are kept stay, as far as there is room for them")
    keep(shop, POLICY)
    assert await found(shop, changed) is None


async def test_a_renamed_route_keeps_its_cache(shop: Shop) -> None:
    changed = POLICY.replace("name: r,", "name: talk, was: r,")
    said(changed, "keeps its cache: answers that are kept are given under the new name, too", route="talk")
    keep(shop, POLICY)
    assert await found(shop, changed) is not None


@pytest.mark.parametrize(("seconds", "stays"), [(599.0, True), (601.0, False)])
async def test_a_cache_that_goes_is_put_aside_for_ten_minutes(shop: Shop, seconds: float, stays: bool) -> None:
    without = POLICY.replace(", cache: {ttl: 5m}", "")
    said(without, "put aside for 10 minutes, in case the cache comes back")
    keep(shop, POLICY, seconds=3600.0)
    store = shop.core(Cached, "cache", "r", "tenant")
    shop.live(without)
    shop.clock.advance(seconds)
    shop.kept.expire(shop.clock.now())
    shop.live(POLICY)
    assert (shop.core(Cached, "cache", "r", "tenant") is store) is stays
    assert (await found(shop, POLICY) is not None) is stays
