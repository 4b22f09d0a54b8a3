"""Several addresses, assembled: one line, a breaker and a ceiling each, and what reloads and observers see of it."""

from __future__ import annotations

from proxy.decisions.addresses import Openings, Site
from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Waiter
from proxy.decisions.verdict import Verdict
from proxy.observer import BreakerChanged
from proxy.outcome import Reason
from proxy.runtime.assembly import Runtime
from proxy.runtime.status import StatusReader
from proxy.stages.addresses import AddressChoice, AddressGate
from proxy.upstream.pool import Pool
from tests.runtime.shop import Shop, targets
from tests.scripted import within

A, B, C = "http://127.0.0.1:9", "http://127.0.0.2:9", "http://127.0.0.3:9"
POLICY = f"""\
version: 1
providers:
  alpha:
    base_url: [{A}/v1, {B}/v1]
    limits: {{concurrency: 10}}
    connections: {{max: 4}}
    models: {{large: {{}}, small: {{}}}}
    breaker: {{consecutive: 2, probes: 1}}
"""
ONE = POLICY.replace(f"[{A}/v1, {B}/v1]", f"{A}/v1")
OTHER = POLICY.replace(f"{A}/v1", f"{C}/v1")


def breaker(shop: Shop, address: str, model: str = "large") -> Breaker:
    return shop.core(Breaker, "breaker", "alpha", address, model)


def choice(runtime: Runtime, model: str = "large") -> AddressChoice:
    """Who chooses for the calls of a model."""
    call = targets(runtime).of(model)[1]
    stages = []
    for _ in range(3):
        stage, call = within(call)
        stages.append(stage)
    assert any(isinstance(stage, AddressGate) for stage in stages)
    assert isinstance(call, AddressChoice)
    return call


def enter(shop: Shop, runtime: Runtime, model: str = "large") -> str:
    """A call with a permit gets its address; returns it by its host."""
    shop.permit("alpha", model)
    stay = choice(runtime, model)._addresses.enter(shop.clock.now())
    return stay._site.peer[0]


async def test_one_address_has_nothing_of_it(shop: Shop) -> None:
    shop.live(ONE)
    assert not list(shop.kept.all(Site))
    assert not list(shop.kept.all(Openings))
    assert shop.size("connections", "alpha") == 4


async def test_each_has_its_pool_and_breaker_and_the_provider_its_limits(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    assert [str(pool.address) for _, pool, _ in shop.kept.all(Pool)] == [A, B]
    assert shop.size("connections", "alpha") == 8
    assert shop.size("provider", "alpha") == 8, "no more than there are connections"
    assert [enter(shop, runtime) for _ in range(4)] == ["127.0.0.1", "127.0.0.2"] * 2
    assert isinstance(shop.enter("alpha", "small"), Permit)


async def test_a_connection_of_one_model_is_missed_by_another(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    shop.trip(breaker(shop, A, "large"))
    permits = [shop.permit("alpha", "large") for _ in range(4)]
    stays = [choice(runtime)._addresses.enter(shop.clock.now()) for _ in permits]
    assert {stay._site.peer[0] for stay in stays} == {"127.0.0.2"}
    shop.trip(breaker(shop, A, "small"))
    waiter = shop.enter("alpha", "small")
    assert isinstance(waiter, Waiter)
    stays[0].end()
    assert waiter.permit is not None, "the other model's call has gone"


def waiting_for_one_place(shop: Shop) -> tuple[Runtime, list[Waiter]]:
    """A call of each of two models waits, and then there is one place for both of them."""
    runtime = shop.live(POLICY.replace("max: 4", "max: 1"))
    for model in ("large", "small"):
        shop.trip(breaker(shop, B, model))
    held = shop.permit("alpha", "large")
    stay = choice(runtime)._addresses.enter(shop.clock.now())
    waiters = [shop.enter("alpha", model) for model in ("large", "small")]
    stay.end()
    held.release(shop.clock.now())
    return runtime, [waiter for waiter in waiters if isinstance(waiter, Waiter)]


async def test_two_models_whose_turn_comes_together_do_not_both_get_the_last_connection(shop: Shop) -> None:
    runtime, (large, small) = waiting_for_one_place(shop)
    assert [large.permit is not None, small.permit is not None].count(True) == 1
    model, first, second = ("large", large, small) if large.permit is not None else ("small", small, large)
    stay = choice(runtime, model)._addresses.enter(shop.clock.now())
    assert second.permit is None
    stay.end()
    assert first.permit is not None
    first.permit.release(shop.clock.now())
    assert second.permit is not None


async def test_who_leaves_with_a_permit_and_no_address_leaves_its_place_to_others(shop: Shop) -> None:
    _, waiters = waiting_for_one_place(shop)
    (first,), (second,) = ([w for w in waiters if (w.permit is not None) is has] for has in (True, False))
    assert first.permit is not None
    first.permit.release(shop.clock.now())
    shop.passes(0.05)
    assert second.permit is not None


async def test_a_call_that_went_elsewhere_leaves_its_place_to_others(shop: Shop) -> None:
    runtime = shop.live(POLICY.replace("max: 4", "max: 1"))
    shop.trip(breaker(shop, B, "small"))
    at_a = choice(runtime)._addresses.enter(shop.clock.now())
    at_a.end()
    shop.permit("alpha", "large")
    waiter = shop.enter("alpha", "small")
    assert isinstance(waiter, Waiter), "the only place that it could have may be the other call's"
    stay = choice(runtime)._addresses.enter(shop.clock.now())
    assert stay._site.peer[0] == "127.0.0.2"
    assert waiter.permit is not None


async def test_a_breaker_that_opens_empties_the_line_only_as_the_last_one(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    for _ in range(8):
        enter(shop, runtime)
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    shop.trip(breaker(shop, A))
    assert waiter.refusal is None
    shop.passes(1.0)
    shop.trip(breaker(shop, B))
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.BREAKER_OPEN
    first = breaker(shop, A).retry_after(shop.clock.now())
    assert waiter.refusal.retry_after == first < breaker(shop, B).retry_after(shop.clock.now())
    changes = [event for event in shop.observer.events if isinstance(event, BreakerChanged)]
    assert [(event.model, event.new) for event in changes] == [("large", "open")] * 2


async def test_who_waits_goes_when_a_breaker_half_opens(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    shop.trip(breaker(shop, A))
    for _ in range(4):
        assert enter(shop, runtime) == "127.0.0.2"
    waiters = [shop.enter("alpha", "large") for _ in range(2)]
    assert all(isinstance(waiter, Waiter) for waiter in waiters)
    shop.passes(breaker(shop, A).retry_after(shop.clock.now()))
    assert breaker(shop, A).state is BreakerState.HALF_OPEN
    assert [isinstance(one, Waiter) and one.permit is not None for one in waiters] == [True, False]


async def test_a_ceiling_is_each_addresss_own(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    shop.trip(breaker(shop, A))
    shop.passes(breaker(shop, A).retry_after(shop.clock.now()))
    ticket = breaker(shop, A).acquire(shop.clock.now(), stream=False)
    assert ticket is not None
    ticket.on_wire(shop.clock.now())
    ticket.end(Verdict.SUCCESS, shop.clock.now())
    assert breaker(shop, A).ramp.size == 1
    assert [enter(shop, runtime) for _ in range(5)].count("127.0.0.1") == 1
    assert isinstance(shop.enter("alpha", "large"), Waiter)
    readings = list(StatusReader(shop.kept, shop.clock, admission=shop.admission).gauges())
    shares = [r.value for r in readings if r.name == "sponson.permits.share" and ("limit", "breaker") in r.labels]
    assert shares == [1]


async def test_gauges_show_the_worst_address_and_status_shows_each(shop: Shop) -> None:
    shop.live(POLICY)
    shop.trip(breaker(shop, B))
    reader = StatusReader(shop.kept, shop.clock, admission=shop.admission)
    states = {dict(r.labels)["model"]: r.value for r in reader.gauges() if r.name == "sponson.breaker.state"}
    assert states == {"large": 2, "small": 0, "other": 0}
    rows = {(row["address"], row["model"]): row["state"] for row in reader.status()["breakers"]}
    assert (rows[A, "large"], rows[B, "large"], rows[B, "small"]) == ("closed", "open", "closed")
    assert [row["address"] for row in reader.status()["connections"]] == [A, B]
    assert {(r.name, r.labels) for r in reader.gauges()} == {(r.name, r.labels) for r in reader.gauges()}
    labels = [(r.name, r.labels) for r in reader.gauges()]
    assert len(labels) == len(set(labels)), "one reading a label"


async def test_a_reload_keeps_what_is_in_use_at_an_address_and_who_waits(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    permits = [shop.permit("alpha", "large") for _ in range(8)]
    stays = [choice(runtime)._addresses.enter(shop.clock.now()) for _ in permits]
    shop.trip(breaker(shop, A))
    waiter = shop.enter("alpha", "large")
    assert isinstance(waiter, Waiter)
    again = shop.live(POLICY + "mode: enforce\n")
    assert waiter.permit is None
    assert [site.in_use for _, site, used in shop.kept.all(Site) if used] == [4, 4]
    assert breaker(shop, A).state is BreakerState.OPEN
    stays[1].end()
    permits[1].release(shop.clock.now())
    assert waiter.permit is not None
    assert choice(again)._addresses.enter(shop.clock.now())._site.peer[0] == "127.0.0.2"
    for stay, permit in zip([*stays[:1], *stays[2:]], [*permits[:1], *permits[2:]], strict=True):
        stay.end()
        permit.release(shop.clock.now())
    assert [site.in_use for _, site, used in shop.kept.all(Site) if used] == [0, 1]


async def test_an_address_that_is_replaced_gives_way_to_one_with_a_closed_breaker(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    assert [enter(shop, runtime) for _ in range(2)] == ["127.0.0.1", "127.0.0.2"]
    shop.trip(breaker(shop, A))
    again = shop.live(OTHER)
    assert [enter(shop, again) for _ in range(3)] == ["127.0.0.3", "127.0.0.2", "127.0.0.3"]
    assert enter(shop, runtime) == "127.0.0.2", "a request of the old policy knows the old addresses"


async def test_a_second_address_comes_and_goes_with_all_permits_counted(shop: Shop) -> None:
    shop.live(ONE)
    permits = [shop.permit("alpha", "large") for _ in range(4)]
    runtime = shop.live(POLICY)
    connections = shop.core(Places, "connections", "alpha")
    assert (connections.used, connections.size) == (4, 8)
    enter(shop, runtime)
    shop.live(ONE)
    assert (connections.used, connections.size) == (5, 4)
    for permit in permits:
        permit.release(shop.clock.now())
    assert shop.core(Line, "line", "alpha", "large").limits[-1] is connections
    assert isinstance(shop.enter("alpha", "large"), Permit)


async def test_what_is_still_in_use_somewhere_is_not_forgotten(shop: Shop) -> None:
    runtime = shop.live(POLICY)
    stay = choice(runtime)._addresses.enter(shop.clock.now())
    shop.live(ONE)
    shop.clock.advance(700.0)
    assert not any(isinstance(core, Site) and core.in_use for core in shop.kept.expire(shop.clock.now()))
    stay.end()
    shop.clock.advance(700.0)
    assert {Site, Openings} <= {type(core) for core in shop.kept.expire(shop.clock.now())}


async def test_without_breakers_all_addresses_are_used_and_nothing_gates(shop: Shop) -> None:
    runtime = shop.live(POLICY.replace("{consecutive: 2, probes: 1}", "off"))
    assert [enter(shop, runtime) for _ in range(4)] == ["127.0.0.1", "127.0.0.2"] * 2


async def test_a_breaker_of_the_whole_provider_is_each_addresss_own(shop: Shop) -> None:
    runtime = shop.live(POLICY.replace("probes: 1", "probes: 1, scope: provider"))
    shop.trip(breaker(shop, A, "*"))
    assert [enter(shop, runtime, model) for model in ("large", "small")] == ["127.0.0.2"] * 2
