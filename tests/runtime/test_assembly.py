"""Assembly: what the parts of one policy share, and that a policy that fails to assemble changes nothing."""

from __future__ import annotations

import pytest

from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.keys import KeyRing
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Refusal, Waiter
from proxy.decisions.room import Room
from proxy.observer import BreakerChanged, KeyChanged
from proxy.outcome import Reason
from proxy.policy.snapshot import PolicySnapshot
from proxy.runtime.assembly import assemble
from proxy.upstream.transport import Transport
from tests.fakes import Ask, make_exchange
from tests.policy.samples import load
from tests.runtime.shop import POLICY, Shop, breaker_of, changed, rest

# One policy.


async def test_limits_are_as_the_policy_says(shop: Shop) -> None:
    shop.live(POLICY)
    assert shop.size("process") == 50
    assert shop.size("provider", "alpha") == 10
    assert shop.size("model", "alpha", "large") == 3
    assert shop.size("key", "alpha", "a2") == 5
    assert shop.size("connections", "alpha") == shop.size("connections", "beta") == 100
    assert [key.id for key in shop.core(KeyRing, "ring", "alpha").keys] == ["a1", "a2"]


async def test_fleet_wide_limits_are_divided_and_connections_are_not(shop: Shop) -> None:
    shop.live(POLICY + "fleet: {size: {static: 4}}\n")
    assert shop.size("process") == 12
    assert shop.size("provider", "alpha") == 2
    assert shop.size("model", "alpha", "large") == 0
    assert shop.size("key", "alpha", "a2") == 1
    assert shop.size("connections", "alpha") == 100


async def test_every_provider_knows_the_credentials_of_all(shop: Shop) -> None:
    runtime = shop.live(changed("  beta:\n", "  beta:\n    auth: {header: X-Acme-Key}\n"))
    exchange = make_exchange(Ask(headers=(("x-acme-key", "theirs"), ("x-tag", "1"))))
    for provider in runtime.providers:
        for first in (True, False):
            exchange.first_target = first
            transport = provider._upstreams[0]._transport
            assert isinstance(transport, Transport)
            head = transport._headers.request_head(exchange, -1)
            assert (b"theirs" in head) is (first and provider.snapshot.name == "beta")
            assert b"x-tag: 1" in head


async def test_a_permit_counts_in_every_limit_that_binds_it(shop: Shop) -> None:
    shop.live(POLICY)
    shop.permit("alpha", "large")
    used = {identity: places.used for identity, places, _ in shop.kept.all(Places)}
    key = next(identity for identity in used if identity[0] == "key")
    assert {identity for identity, count in used.items() if count} - {key} == {
        ("process",),
        ("provider", "alpha"),
        ("connections", "alpha"),
        ("model", "alpha", "large"),
    }


async def test_one_target_has_one_line_and_one_breaker_in_all_routes_and_tiers(shop: Shop) -> None:
    shop.live(POLICY)
    for kind, name in ((Line, "line"), (Breaker, "breaker")):
        targets = [key for key, _, _ in shop.kept.all(kind) if key[:2] == (name, "alpha") and "large" in key]
        assert len(targets) == 1
    other = shop.core(Line, "line", "alpha", "other")
    assert other.room is shop.core(Line, "line", "alpha", "large").room is shop.core(Room, "room", "alpha")


async def test_a_scope_of_the_whole_provider_is_one_breaker_that_releases_every_line(shop: Shop) -> None:
    shop.live(changed("breaker: {consecutive: 4}", "breaker: {consecutive: 4, scope: provider}"))
    for _ in range(3):
        shop.permit("alpha", "large")
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    shop.trip(shop.core(Breaker, "breaker", "alpha"))
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.BREAKER_OPEN


async def test_breaker_and_key_changes_are_told_to_the_observer(shop: Shop) -> None:
    shop.live(POLICY)
    shop.trip(breaker_of(shop, "large"))
    (told,) = [event for event in shop.observer.events if isinstance(event, BreakerChanged)]
    assert (told.provider, told.model, told.old, told.new, told.why) == (
        "alpha",
        "large",
        "closed",
        "open",
        "consecutive",
    )
    rest(shop, "a1", 20.0)
    assert shop.observer.events[-1] == KeyChanged(provider="alpha", key_id="a1", state="resting", seconds=20.0)


# Failing.


async def test_an_assembly_that_fails_changes_nothing_that_lives(shop: Shop) -> None:
    shop.live(POLICY)
    before = {identity: core for identity, core, used in shop.kept.all(object) if used}
    sizes = {identity: places.size for identity, places, _ in shop.kept.all(Places)}
    shop.trip(breaker_of(shop, "large"))
    with pytest.raises(KeyError):
        assemble(unreadable(), shop.around, shop.secrets)
    assert {identity: core for identity, core, used in shop.kept.all(object) if used} == before
    assert {identity: shop.core(Places, *map(str, identity)).size for identity in sizes} == sizes
    assert breaker_of(shop, "large").settings.consecutive == 4
    assert [key.id for key in shop.core(KeyRing, "ring", "alpha").keys] == ["a1", "a2"]
    shop.live(POLICY)
    assert breaker_of(shop, "large").state is BreakerState.OPEN


async def test_a_policy_is_built_without_touching_the_live_one(shop: Shop) -> None:
    shop.live(POLICY)
    shop.assemble(changed("concurrency: 10", "concurrency: 1"))
    assert shop.size("provider", "alpha") == 10
    assert isinstance(shop.enter("alpha", "other"), Permit | Refusal)


def unreadable() -> PolicySnapshot:
    """Other limits, a renaming, and then a key whose secret nobody has read."""
    text = changed("concurrency: 10", "concurrency: 1").replace("consecutive: 4", "consecutive: 1")
    text = text.replace("  beta:\n", "  delta:\n    was: beta\n    keys: [{id: d, env: NONE}]\n")
    return load(text.replace("provider: beta", "provider: delta").replace("a2, env", "other, was: a2, env"))
