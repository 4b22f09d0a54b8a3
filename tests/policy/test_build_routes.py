from __future__ import annotations

from proxy.decisions.idempotency import IdempotencySettings
from proxy.decisions.lanes import LaneSettings
from proxy.policy.snapshot import AnswerTier, ProviderTier, RouteSnapshot, SpreadTier
from tests.policy.samples import GOOD, ROUTE, load, route

BETA = "  b: {base_url: 'http://b.example/v1'}\n"


def tiers(text: str) -> RouteSnapshot:
    """The route with these tiers."""
    routes = load(GOOD + BETA + ROUTE.replace("[{provider: a}]", text)).routes
    assert routes is not None
    return routes[0]


def test_classes_and_lanes() -> None:
    one = route(
        "class: P2\nclass_from_header: true\nlanes: [{max_output: 100, share: 0.3}, {max_output: 1e3, share: 0.2}]"
    )
    assert (one.klass, one.class_from_header) == ("P2", True)
    assert one.lanes == (LaneSettings(max_output=100, share=0.3), LaneSettings(max_output=1000, share=0.2))


def test_a_key_is_in_one_header_or_made_of_several() -> None:
    assert route().idempotency == IdempotencySettings()
    assert route("idempotency: {header: X-Key, keep: 24h}").idempotency == IdempotencySettings(
        headers=("x-key",), keep=86400.0
    )
    assert route("idempotency: {from: [X-Agent-Id, x-task-id]}").idempotency == IdempotencySettings(
        headers=("x-agent-id", "x-task-id"), all_required=True
    )
    assert route("idempotency: {from: [x-a]}").idempotency.all_required


def test_equals_each_have_what_their_tier_sets() -> None:
    spread = "{spread: [{provider: a, model: m}, {provider: b, weight: 2}], by: weight, first_byte: 8s, queue: 0s}"
    first, second = (
        ProviderTier(provider="a", model="m", first_byte_seconds=8.0, queue_seconds=0.0),
        ProviderTier(provider="b", first_byte_seconds=8.0, queue_seconds=0.0),
    )
    assert tiers(f"[{spread}]").tiers == (SpreadTier(members=(first, second), weights=(1.0, 2.0), by="weight"),)


def test_equals_are_spread_by_what_remains() -> None:
    (tier,) = tiers("[{spread: [{provider: a}, {provider: b}]}]").tiers
    assert isinstance(tier, SpreadTier)
    assert (tier.by, tier.weights) == ("remaining", (1.0, 1.0))


def test_all_who_may_be_asked_are_known_in_order() -> None:
    one = tiers("[{provider: b}, {spread: [{provider: a, model: m}, {provider: a}]}, {answer: {}}]")
    assert [(tier.provider, tier.model) for tier in one.asked()] == [("b", None), ("a", "m"), ("a", None)]
    assert isinstance(one.tiers[-1], AnswerTier)
