"""Observing: what a share or an open breaker would hold goes at once, counts as in use, and is told."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.breaker import BreakerState
from proxy.decisions.observing import Tally
from proxy.decisions.places import Places
from proxy.exchange import Exchange
from proxy.observer import Observed, Would
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stage import CallNext, compose
from proxy.stages.admission import AdmissionStage, ObservingAdmissionStage
from proxy.stages.breaker import ObservingBreakerStage
from proxy.stages.retry import RetryStage
from tests.fakes import Ask, FakeClock, answered, make_exchange, settle
from tests.scripted import ScriptedTerminal
from tests.stages.world import WAITS, Provider, failed


class Watched:
    """A target with one permit that is only observed, and calls to it that end when they are told to."""

    def __init__(self, *, share: int = 1, keys: str = "") -> None:
        self.clock = FakeClock()
        self.target = Provider("alpha", self.clock, Admission(), share=share, keys=keys)
        self.target.room.observes = True
        self.tally, self.own = Tally(), Tally()
        self.end = asyncio.Event()
        self.outcome = answered()

    @property
    def admission(self) -> AdmissionStage:
        return ObservingAdmissionStage(
            self.target.admission, self.target.line, limits=WAITS, clock=self.clock, tally=self.tally
        )

    @property
    def breaker(self) -> ObservingBreakerStage:
        return ObservingBreakerStage(self.target.breaker, clock=self.clock, tallies=(self.tally, self.own))

    async def hang(self, exchange: Exchange) -> Outcome:
        await self.end.wait()
        return self.outcome

    def call(self, call: CallNext, ask: Ask | None = None) -> tuple[Exchange, asyncio.Future[Outcome]]:
        exchange = make_exchange(ask or Ask())
        exchange.facts.provider, exchange.facts.tier = "alpha", 1
        return exchange, asyncio.ensure_future(call(exchange))


def told(exchange: Exchange) -> list[Would]:
    return [event.would for _, event in exchange.facts.events if isinstance(event, Observed)]


async def test_a_call_above_the_share_goes_at_once_and_counts_as_in_use() -> None:
    watched = Watched(share=1)
    call = compose([watched.admission], watched.hang)
    started = [watched.call(call) for _ in range(3)]
    await settle()
    assert watched.target.places.used == 3
    assert watched.target.admission.waiting == 0
    assert [told(exchange) for exchange, _ in started] == [[], [Would.WAIT], [Would.WAIT]]
    assert watched.tally.counts[Would.WAIT] == 2
    watched.end.set()
    assert [(await future).kind for _, future in started] == [OutcomeKind.OK] * 3
    assert watched.target.places.used == 0


async def test_one_that_leaves_gives_its_place_back() -> None:
    watched = Watched(share=0)
    _, future = watched.call(compose([watched.admission], watched.hang))
    await settle()
    assert watched.target.places.used == 1
    future.cancel()
    await settle()
    assert watched.target.places.used == 0
    assert watched.tally.counts[Would.QUEUE_TIMEOUT] == 1


async def test_how_long_calls_hold_their_places_tells_whether_waiting_would_have_helped() -> None:
    watched = Watched(share=1)
    call = compose([watched.admission], watched.hang)
    _, first = watched.call(call)
    await settle()
    watched.clock.advance(WAITS.queue * 2)
    watched.end.set()
    await first
    watched.end.clear()
    _, second = watched.call(call)
    exchange, third = watched.call(call)
    await settle()
    assert told(exchange) == [Would.QUEUE_TIMEOUT]
    watched.end.set()
    await asyncio.gather(second, third)


async def test_a_key_above_its_share_is_used_and_a_resting_one_is_waited_for() -> None:
    watched = Watched(share=9, keys="a")
    ring = watched.target.ring
    assert ring is not None
    (key,) = ring.keys
    key.places = Places("key a", 1)
    call = compose([watched.admission], watched.hang)
    for _ in range(2):
        watched.call(call)
    await settle()
    assert key.places.used == 2
    assert watched.tally.counts[Would.WAIT] == 1
    key.rests_until = watched.clock.now() + 5.0
    exchange, third = watched.call(call)
    await settle()
    assert watched.target.admission.waiting == 1
    watched.clock.advance(5.0)
    watched.target.admission.tick(watched.clock.now())
    await settle()
    assert key.places.used == 3
    watched.end.set()
    assert (await third).kind is OutcomeKind.OK
    assert exchange.facts.queued_seconds == 5.0


async def test_keys_that_rest_for_too_long_refuse_as_ever() -> None:
    watched = Watched(keys="a")
    ring = watched.target.ring
    assert ring is not None
    ring.keys[0].rests_until = watched.clock.now() + WAITS.quota_wait + 1
    _, future = watched.call(compose([watched.admission], watched.hang))
    assert (await future).reason is Reason.KEYS_RESTING
    assert watched.tally.counts == dict.fromkeys(Would, 0)


async def test_a_breaker_that_opens_refuses_nobody_who_waits_for_a_key() -> None:
    watched = Watched(keys="a")
    ring = watched.target.ring
    assert ring is not None
    ring.keys[0].rests_until = watched.clock.now() + 5.0
    _, future = watched.call(compose([watched.breaker, watched.admission], watched.hang))
    await settle()
    watched.target.trip()
    await settle()
    assert watched.target.admission.waiting == 1
    watched.clock.advance(5.0)
    watched.target.admission.tick(watched.clock.now())
    watched.end.set()
    assert (await future).kind is OutcomeKind.OK


async def test_an_open_breaker_lets_calls_go_and_hears_nothing_of_them() -> None:
    watched = Watched()
    watched.target.trip()
    breaker = watched.target.breaker
    generation = breaker.generation
    call = compose([watched.breaker], ScriptedTerminal(failed(500), answered()))
    for kind in (OutcomeKind.UPSTREAM_ERROR, *[OutcomeKind.OK] * 5):
        exchange, future = watched.call(call)
        assert (await future).kind is kind
        assert told(exchange) == [Would.BREAKER_OPEN]
        assert exchange.progress is None
    assert (breaker.state, breaker.generation) == (BreakerState.OPEN, generation)
    assert watched.tally.counts[Would.BREAKER_OPEN] == watched.own.counts[Would.BREAKER_OPEN] == 6


async def test_what_began_while_it_was_open_neither_opens_nor_closes_it_later() -> None:
    watched = Watched()
    watched.target.trip()
    breaker = watched.target.breaker
    stray = [watched.call(compose([watched.breaker], watched.hang), Ask(stream=True)) for _ in range(20)]
    await settle()
    watched.clock.advance(6.0)
    breaker.tick(watched.clock.now())
    assert breaker.state is BreakerState.HALF_OPEN
    watched.outcome = failed(500)
    watched.end.set()
    await asyncio.gather(*(future for _, future in stray))
    assert breaker.statistics(watched.clock.now()).state is BreakerState.HALF_OPEN
    _, probe = watched.call(compose([watched.breaker], ScriptedTerminal(answered())))
    await probe
    assert breaker.statistics(watched.clock.now()).state is BreakerState.CLOSED


async def test_beside_running_probes_others_go_too() -> None:
    watched = Watched()
    watched.target.trip()
    watched.clock.advance(6.0)
    call = compose([watched.breaker], watched.hang)
    probe, _ = watched.call(call)
    other, _ = watched.call(call)
    await settle()
    assert (told(probe), told(other)) == ([], [Would.BREAKER_OPEN])
    watched.end.set()


async def test_failures_still_open_a_breaker_that_is_observed() -> None:
    watched = Watched()
    call = compose([watched.breaker], ScriptedTerminal(failed(500)))
    for _ in range(watched.target.breaker.settings.consecutive):
        await watched.call(call)[1]
    assert watched.target.breaker.state is BreakerState.OPEN


async def test_a_retry_is_made_though_the_breaker_is_open() -> None:
    watched = Watched()
    watched.target.trip()
    target = watched.target
    retry = RetryStage(
        target.settings, budget=target.budget, breaker=None, ring=None, longest_rest=30.0, clock=watched.clock
    )
    terminal = ScriptedTerminal(failed(500), answered())
    exchange, future = watched.call(compose([retry, watched.breaker, watched.admission], terminal))
    exchange.attempts_left = 2
    await settle()
    watched.clock.advance(2.0)
    assert (await future).kind is OutcomeKind.OK
    assert len(terminal.calls) == 2
    assert told(exchange) == [Would.BREAKER_OPEN] * 2


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_body_that_still_arrives_would_have_waited_only_shortly(streamed: bool) -> None:
    watched = Watched(share=1)
    watched.tally.held(2.0)
    call = compose([watched.admission], watched.hang)
    _, first = watched.call(call)
    exchange = make_exchange()
    exchange.facts.provider = "alpha"
    if streamed:
        exchange.payload = None
    second = asyncio.ensure_future(call(exchange))
    await settle()
    assert told(exchange) == [Would.QUEUE_TIMEOUT if streamed else Would.WAIT]
    watched.end.set()
    await asyncio.gather(first, second)
