"""Saved work, assembled: what outlives every policy, who shares what, and that reloads lose nothing."""

from __future__ import annotations

import random

import pytest

from proxy.decisions.cached import Cached
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.plan import RoutePlan
from proxy.ports import StoredAnswer
from proxy.runtime.assembly import Runtime
from proxy.stages.response_cache import CacheCounts, ResponseCacheStage
from proxy.stages.single_flight import Flights, SingleFlightStage
from tests.fakes import Ask, make_exchange
from tests.runtime.shop import Shop
from tests.scripted import within
from tests.stages.saving import body_of

POLICY = """\
version: 1
tenants: {{from: [{{header: x-agent-id}}]}}
providers:
  alpha: {{base_url: {url}, {alpha}}}
  beta: {{base_url: http://127.0.0.1:9/v1, keys: [{{id: b1, env: KEY_3}}]}}
routes:
  - {{name: {name}, {was} match: {{path: "/v1/chat/*"}}, tiers: [{tiers}], {saving}}}
"""
PATH = "/v1/chat/completions"
KEY = "keys: [{id: a1, env: KEY_1}]"
CACHE = "cache: {ttl: 5m}"
ANSWER = StoredAnswer(
    status=200, phrase=b"OK", lines=b"x-up: 1\r\n", body=b"kept", length=4, provider="alpha", model="m", tier=1
)


def policy(
    *,
    saving: str = CACHE,
    name: str = "chat",
    was: str = "",
    tiers: str = "{provider: alpha}",
    alpha: str = KEY,
    url: str = "http://127.0.0.1:9/v1",
) -> str:
    return POLICY.format(saving=saving, name=name, was=f"was: {was}," if was else "", tiers=tiers, alpha=alpha, url=url)


def stages_of(runtime: Runtime, path: str = PATH) -> list[object]:
    plan: RoutePlan = runtime.router.candidates(path, {}).routes[0]
    found: list[object] = []
    call = plan.call
    while True:
        try:
            stage, call = within(call)
        except (AssertionError, AttributeError, TypeError, ValueError):
            return found
        found.append(stage)


def cache_of(runtime: Runtime, path: str = PATH) -> ResponseCacheStage:
    (stage,) = (stage for stage in stages_of(runtime, path) if isinstance(stage, ResponseCacheStage))
    return stage


def name_of(
    runtime: Runtime, *headers: tuple[str, str], tenant: str = "t", body: bytes = b'{"model":"m"}', path: str = PATH
) -> bytes:
    exchange = make_exchange(Ask(headers=headers, body=body))
    exchange.facts.tenant = tenant
    return cache_of(runtime, path)._names.name(exchange)


async def test_a_route_has_what_it_asks_for_and_nothing_else(shop: Shop) -> None:
    both, one, none = (
        [type(stage) for stage in stages_of(shop.live(policy(saving=saving)))]
        for saving in (CACHE, "single_flight: true", "class: P1")
    )
    assert ResponseCacheStage in both
    assert SingleFlightStage in both
    assert ResponseCacheStage not in one
    assert SingleFlightStage in one
    assert not {ResponseCacheStage, SingleFlightStage} & set(none)


@pytest.mark.parametrize(
    "other",
    [
        {"tiers": "{provider: beta}"},
        {"tiers": "{provider: alpha, model: small}"},
        {"tiers": "{provider: alpha, set: {max_tokens: 5}}"},
        {"tiers": "{spread: [{provider: alpha}, {provider: beta}]}"},
        {"alpha": KEY + ", query: {api-version: two}"},
        {"alpha": KEY + ", headers: {x-team: search}"},
        {"alpha": KEY, "url": "http://127.0.0.1:9/v2"},
        {"alpha": KEY, "url": "http://127.0.0.1:10/v1"},
        {"name": "talk"},
        {"saving": "cache: {ttl: 5m, scope: route}"},
    ],
    ids=str,
)
async def test_what_makes_answers_others_makes_names_others(shop: Shop, other: dict[str, str]) -> None:
    assert name_of(shop.live(policy())) != name_of(shop.live(policy(**other)))


@pytest.mark.parametrize(
    "other",
    [
        {"saving": "cache: {ttl: 1h, max_bytes: 1MiB}"},
        {"tiers": "{provider: alpha}, {provider: beta}"},
        {"alpha": KEY + ", limits: {concurrency: 3}"},
        {"name": "talk", "was": "chat"},
    ],
    ids=str,
)
async def test_what_makes_no_difference_to_answers_makes_none_to_names(shop: Shop, other: dict[str, str]) -> None:
    assert name_of(shop.live(policy())) == name_of(shop.live(policy(**other)))


async def test_a_new_route_with_the_old_name_of_another_shares_nothing_with_it(shop: Shop) -> None:
    before = name_of(shop.live(policy()))
    shop.live(policy(name="talk", was="chat"))
    both = policy(name="talk") + POLICY.split("routes:\n")[1].format(
        name="chat", was="", tiers="{provider: alpha}", saving=CACHE
    ).replace("/v1/chat/*", "/v1/other/*")
    runtime = shop.live(both)
    assert name_of(runtime) == before
    assert name_of(runtime, path="/v1/other/x") != before


async def test_a_callers_credential_counts_where_it_goes_along_and_only_there(shop: Shop) -> None:
    own, ours = shop.live(policy(alpha="breaker: off")), shop.live(policy())
    mine, yours = ("authorization", "Bearer mine"), ("authorization", "Bearer yours")
    assert name_of(own, mine) != name_of(own, yours)
    assert name_of(ours, mine) == name_of(ours, yours)
    apart = shop.live(policy(saving="cache: {ttl: 5m, scope: credential}"))
    assert name_of(apart, mine) != name_of(apart, yours)


async def test_tenants_share_nothing_unless_the_scope_is_the_route(shop: Shop) -> None:
    apart = shop.live(policy())
    assert name_of(apart, tenant="a") != name_of(apart, tenant="b")
    together = shop.live(policy(saving="cache: {ttl: 5m, scope: route}"))
    assert name_of(together, tenant="a") == name_of(together, tenant="b")


async def test_a_thousand_reloads_lose_no_kept_answer_and_no_flight(shop: Shop) -> None:
    draw = random.Random(1)
    runtime = shop.live(policy())
    name, now = name_of(runtime), shop.clock.now()
    flights = shop.core(Flights, "flights")
    shop.core(Cached, "cache", "chat", "tenant").keep(name, ANSWER, owner="t", seconds=3600.0, now=now)
    shop.core(CacheCounts, "cache counts", "chat").hits = 7
    route = {"name": "chat", "was": "talk"}
    for _ in range(1000):
        if draw.random() < 0.1:
            route = {"name": route["was"], "was": route["name"]}
        ttl, size = draw.choice(["5m", "1h"]), draw.choice(["1MiB", "9MiB"])
        tiers = draw.choice(["{provider: alpha}", "{provider: alpha}, {stale_cache: {max_age: 1h}}"])
        saving = f"cache: {{ttl: {ttl}, max_bytes: {size}}}"
        runtime = shop.live(policy(saving=saving, tiers=tiers, **route))
    exchange = make_exchange(Ask(headers=(), body=b'{"model":"m"}'))
    exchange.facts.tenant = "t"
    stage = cache_of(runtime)
    await stage(exchange, _never)
    assert body_of(exchange) == b"kept"
    assert stage._parts.counts.hits == 8
    assert shop.core(Flights, "flights") is flights


async def _never(exchange: Exchange) -> Outcome:
    raise AssertionError("it was asked for, and is kept")
