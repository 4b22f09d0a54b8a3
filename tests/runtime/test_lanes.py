"""What is kept of each limit for short answers, as one policy wants it."""

from __future__ import annotations

from dataclasses import replace

from proxy.decisions.classification import MatchSettings
from proxy.decisions.lanes import LaneSettings
from proxy.policy.snapshot import PolicySnapshot, ProviderTier, RouteSnapshot, SpreadTier
from proxy.runtime.lanes import LaneParts
from tests.policy.samples import provider

LANES = (LaneSettings(max_output=100, share=0.2), LaneSettings(max_output=500, share=0.3))
ROUTE = RouteSnapshot(name="chat", lanes=LANES, tiers=(ProviderTier(provider="alpha"),))
KEPT = (("lane chat/100", 0.2), ("lane chat/500", 0.3))


def parts(*routes: RouteSnapshot) -> LaneParts:
    return LaneParts(PolicySnapshot(providers=(provider(),), routes=routes))


def test_a_policy_without_lanes_keeps_nothing() -> None:
    for lanes in (LaneParts(PolicySnapshot(providers=())), parts(replace(ROUTE, lanes=()))):
        assert (lanes.of("alpha"), lanes.was) == ((), {})


def test_a_provider_keeps_something_for_every_route_that_asks_it_once() -> None:
    twice = replace(ROUTE, tiers=(*ROUTE.tiers, ProviderTier(provider="alpha", model="small")))
    other = replace(ROUTE, name="talk", lanes=LANES[:1])
    assert parts(twice, other).of("alpha") == (*KEPT, ("lane talk/100", 0.2))
    assert parts(twice, other).of("beta") == ()


def test_equals_of_a_spread_tier_are_asked_too() -> None:
    spread = SpreadTier(members=(ProviderTier(provider="alpha"), ProviderTier(provider="beta")), weights=(1.0, 1.0))
    assert parts(replace(ROUTE, tiers=(spread,))).of("beta") == KEPT


def test_a_model_keeps_something_for_routes_that_ask_for_it() -> None:
    named = replace(ROUTE, tiers=(ProviderTier(provider="alpha", model="large"),))
    assert (parts(named).of("alpha", "large"), parts(named).of("alpha", "small")) == (KEPT, ())
    assert parts(ROUTE).of("alpha", "small") == KEPT
    matched = replace(ROUTE, match=MatchSettings(model=("large*",)))
    assert (parts(matched).of("alpha", "large-2"), parts(matched).of("alpha", "small")) == (KEPT, ())


def test_a_renamed_route_tells_by_what_names_its_lanes_went() -> None:
    assert parts(replace(ROUTE, name="talk", was="chat")).was == {
        "lane talk/100": "lane chat/100",
        "lane talk/500": "lane chat/500",
    }
