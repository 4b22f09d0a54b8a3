"""What binds the calls to one provider, as a policy says it: places and their reserves, lanes, adaptive limit, room."""

from __future__ import annotations

from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Waiter
from proxy.decisions.room import Room
from tests.runtime.shop import WAITS, Shop

POLICY = """\
version: 1
limits: {concurrency: 50}
classes: {P0: {reserved: 0.2}, P2: {idle_below: 0.5}}
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    keys: [{id: a1, env: KEY_1, concurrency: 8}]
    limits: {concurrency: 10, adaptive: {}}
    models: {large: {limits: {concurrency: 5}}}
routes:
  - name: chat
    match: {path: /v1/chat/completions}
    tiers: [{provider: alpha, model: large}]
    lanes: [{max_output: 100, share: 0.1}, {max_output: 500, share: 0.2}]
  - {name: rest, match: {}, tiers: [{provider: alpha}]}
"""


def lines(shop: Shop, model: str) -> dict[frozenset[str], Line]:
    """The lines of a model by the lanes whose reserves a P1 in them may use."""
    found = [line for key, line, used in shop.kept.all(Line) if used and line.name == f"alpha/{model}"]
    return {frozenset(line.groups[1]): line for line in found}


def plain(shop: Shop, model: str) -> Line:
    """The line of a model's calls that are in no lane."""
    return lines(shop, model)[frozenset()]


def permit(shop: Shop, model: str) -> Permit:
    """Takes a permit that is there."""
    answer = enter(shop, plain(shop, model))
    assert isinstance(answer, Permit)
    return answer


def enter(shop: Shop, line: Line, klass: int = 1) -> Permit | Waiter:
    answer = shop.admission.enter(line, Ask(klass=klass, limits=WAITS), shop.clock.now())
    assert isinstance(answer, Permit | Waiter)
    return answer


def going(shop: Shop, line: Line, klass: int = 1) -> int:
    """How many calls go at once."""
    count = 0
    while isinstance(enter(shop, line, klass), Permit):
        count += 1
    return count


async def test_a_call_takes_a_place_in_everything_that_its_provider_model_and_key_are_bound_by(shop: Shop) -> None:
    shop.live(POLICY)
    taken = permit(shop, "large")
    assert [places.label for places in taken.limits] == [
        "all providers",
        "provider alpha",
        "connections alpha",
        "adaptive alpha",
        "model alpha/large",
        "key alpha/a1",
    ]


async def test_every_limit_keeps_its_part_for_p0(shop: Shop) -> None:
    shop.live(POLICY)
    kept = {
        places.label: next(reserve.size for reserve in places.reserves if reserve.group == "P0")
        for places in permit(shop, "large").limits
        if places.reserves
    }
    assert kept == {
        "all providers": 10,
        "provider alpha": 2,
        "adaptive alpha": 2,
        "model alpha/large": 1,
        "key alpha/a1": 1,
    }


async def test_lower_classes_leave_that_part_free_and_p0_takes_it(shop: Shop) -> None:
    shop.live(POLICY.replace("keys: [{id: a1, env: KEY_1, concurrency: 8}]", "queue: {max: 99}"))
    line = plain(shop, "other")
    assert going(shop, line, 1) == 10 - 2 - 2 - 1, "two for P0, two and one for the lanes"
    assert going(shop, line, 0) == 2


async def test_each_lane_of_a_route_has_a_line_whose_calls_may_use_its_own_part_and_those_of_wider_ones(
    shop: Shop,
) -> None:
    shop.live(POLICY)
    found = lines(shop, "large")
    wide, narrow = "lane chat/500", "lane chat/100"
    assert set(found) == {frozenset(), frozenset({wide}), frozenset({wide, narrow})}
    assert [{r.group: r.size for r in line.limits[1].reserves} for line in found.values()] == [
        {"P0": 2, wide: 2, narrow: 1}
    ] * 3


async def test_the_adaptive_limit_is_one_more_limit_that_shrinks_with_its_reserve(shop: Shop) -> None:
    shop.live(POLICY)
    adaptive = shop.core(Places, "adaptive", "alpha")
    adaptive.reconfigure(5)
    assert next(reserve.size for reserve in adaptive.reserves if reserve.group == "P0") == 1


async def test_a_reload_leaves_a_lowered_adaptive_limit_as_low(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    adapting = runtime.providers[0].capacity.adapting
    assert adapting is not None
    adapting._limit.refused(shop.clock.now())
    adapting.places.reconfigure(adapting._limit.size)
    shop.live(POLICY.replace("max_output: 500", "max_output: 600"))
    assert shop.core(Places, "adaptive", "alpha").size == 8


async def test_p2_may_use_the_part_of_the_share_that_the_policy_says(shop: Shop) -> None:
    shop.live(POLICY)
    line = plain(shop, "other")
    enter(shop, line, 1)
    assert going(shop, line, 2) == 4
    assert shop.core(Room, "room", "alpha").running == 5


async def test_without_a_limit_of_its_own_a_provider_is_bound_by_its_connections_which_keep_the_parts(
    shop: Shop,
) -> None:
    shop.live(POLICY.replace("limits: {concurrency: 10, adaptive: {}}", "connections: {max: 20}"))
    taken = permit(shop, "other")
    connections = taken.limits[1]
    assert (connections.label, connections.size) == ("connections alpha", 20)
    assert {reserve.group: reserve.size for reserve in connections.reserves}["P0"] == 4


async def test_a_permit_that_is_out_over_a_reload_comes_back_where_it_was_taken(shop: Shop) -> None:
    shop.live(POLICY)
    taken = permit(shop, "large")
    limits = taken.limits
    shop.live(POLICY.replace(", adaptive: {}", "").replace("    models: {large: {limits: {concurrency: 5}}}\n", ""))
    assert [places.used for places in limits] == [1] * 6
    taken.release(shop.clock.now())
    assert [places.used for places in limits] == [0] * 6
