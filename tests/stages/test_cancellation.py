"""The cancellation matrix: whatever a request waits for when it is cancelled, everything that it held comes back.

Every scenario is run once to count where it suspends, then once for each of these points: cancelled while it waits
there, and cancelled after that for which it waited was handed to it. Cleanup that awaits would show as another point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind
from tests.fakes import Ask, FakeReply, make_exchange, settle
from tests.stages.interrupted import NEVER, Interrupted
from tests.stages.scenarios import SCENARIOS, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a scenario, after everybody has gone."""

    stage: Stage
    work: Interrupted
    victim: asyncio.Task[Outcome]
    bystander: asyncio.Task[Outcome]
    exchange: Exchange


async def run(make: Callable[[], Stage], *, at: int, handed_over: bool, cause: CancelCause) -> Run:
    """Runs a scenario with a bystander behind the victim, and cancels the victim at its await number `at`."""
    stage = make()
    exchange = make_exchange(stage.ask, now=stage.world.clock.now())

    def left() -> None:
        exchange.cancel_cause = cause

    work = Interrupted(stage.call(exchange), at=at, handed_over=handed_over, before=left)  # type: ignore[arg-type]

    async def victim() -> Outcome:
        return await work

    tasks = [asyncio.create_task(victim())]
    await settle()
    behind = make_exchange(stage.behind, now=stage.world.clock.now())
    tasks.append(asyncio.create_task(stage.call(behind)))  # type: ignore[arg-type]
    await stage.run(*tasks)
    while stage.blockers or stage.events:
        stage.poke()
    await settle()
    return Run(stage=stage, work=work, victim=tasks[0], bystander=tasks[1], exchange=exchange)


def check_given_back(ran: Run) -> None:
    """Nobody holds anything any more, and nothing is left that would wake up."""
    world = ran.stage.world
    assert world.admission.waiting == 0
    assert world.keyed.flights == {}
    assert world.bodies.held == 0
    for provider in world.providers:
        assert provider.places.used == 0
        assert (provider.room.waiting, provider.room.bytes) == (0, 0)
        assert all(ticket.ended for ticket in provider.breaker.tickets)
        assert provider.breaker.statistics(world.clock.now()).probes_running == 0
    for tenant in world.tenants.latest() if world.tenants is not None else ():
        assert tenant.caps.in_flight == 0
        assert tenant.caps.levels(world.clock.now())[1] == 1000.0
    assert world.clock.next_due is None
    assert ran.exchange.credential is None
    assert ran.exchange.progress is None


def check_settled(ran: Run) -> None:
    """Of every quota exactly that is gone which calls that reached their provider have used."""
    world = ran.stage.world
    facts = {exchange.facts.request_id: exchange.facts for exchange in world.observer.exchanges}
    for provider in world.providers:
        if provider.quota is None:
            continue
        back = [permit for permit in world.admission.back if permit.line is provider.line]
        assert len(set(back)) == len(back), "a permit came back twice"
        sent = [a for one in facts.values() for a in one.attempts if a.provider == provider.name and a.sent_bytes]
        blocked = [permit for permit in back if permit in ran.stage.blocked]
        requests, tokens = provider.quota.gone(world.clock.now())
        assert requests == pytest.approx(len(sent) + len(blocked))
        assert tokens == pytest.approx(sum(permit._spent for permit in back), abs=1e-6)
        assert (tokens > 1e-6) is bool(sent)


def check_told(ran: Run, cause: CancelCause) -> None:
    """The observer was told once, with the right cause, and every attempt's record is closed."""
    kind = OutcomeKind.DRAINED if cause is CancelCause.DRAIN else OutcomeKind.CLIENT_LEFT
    facts, reply = ran.exchange.facts, ran.exchange.reply
    assert isinstance(reply, FakeReply)
    assert ran.stage.world.observer.exchanges.count(ran.exchange) == 1
    assert facts.kind is kind
    assert facts.ended_at >= facts.arrived_at
    assert all(attempt.ended_at >= attempt.started_at > 0 for attempt in facts.attempts)
    assert all(attempt.kind is not None for attempt in facts.attempts)
    cut = [attempt.kind for attempt in facts.attempts if attempt.kind in (kind, OutcomeKind.BUG)]
    assert cut in ([], [kind])
    if cause is CancelCause.CLIENT_LEFT:
        assert not reply.end, "nobody is there to be answered"
    elif reply.status == 200:
        assert reply.end == "aborted", "a client must see that its answer is not whole"
    else:
        assert (reply.status, reply.header(b"x-sponson-reason")) == (503, b"shutting_down")


def check_breaker_not_blamed(ran: Run, trips: dict[str, int]) -> None:
    """Who leaves early says nothing about the provider."""
    for provider in ran.stage.world.providers:
        said = [a.kind for a in ran.exchange.facts.attempts if a.provider == provider.name]
        failures = said.count(OutcomeKind.UPSTREAM_ERROR) + trips[provider.name]
        assert provider.breaker.statistics(ran.stage.world.clock.now()).failures <= failures


async def check_next_one_passes(ran: Run) -> None:
    """After all that, and the time of an open breaker, a new request gets through to the first tier."""
    ran.stage.world.clock.advance(60.0)
    ran.stage.world.tick()
    exchange = make_exchange(Ask(request_id="latecomer"), now=ran.stage.world.clock.now())
    task: asyncio.Task[Outcome] = asyncio.create_task(ran.stage.call(exchange))  # type: ignore[arg-type]
    await ran.stage.run(task)
    assert task.result().kind is OutcomeKind.OK
    assert exchange.facts.provider == "alpha"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_undisturbed_every_scenario_ends_well_and_suspends_where_it_should(scenario: Callable[[], Stage]) -> None:
    ran = await run(scenario, at=NEVER, handed_over=False, cause=CancelCause.CLIENT_LEFT)
    assert ran.work.suspended == SCENARIOS[scenario]
    assert ran.victim.result().kind in (OutcomeKind.OK, OutcomeKind.ANSWERED)
    assert isinstance(ran.exchange.reply, FakeReply)
    assert ran.exchange.reply.end == "finished"
    check_given_back(ran)
    check_settled(ran)
    await check_next_one_passes(ran)


@pytest.mark.parametrize("cause", [CancelCause.CLIENT_LEFT, CancelCause.DRAIN])
@pytest.mark.parametrize("handed_over", [False, True], ids=["waiting", "handed_over"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_cancelled_at_every_await_everything_comes_back(
    scenario: Callable[[], Stage], handed_over: bool, cause: CancelCause
) -> None:
    for at in range(1, SCENARIOS[scenario] + 1):
        ran = await run(scenario, at=at, handed_over=handed_over, cause=cause)
        trips = {
            p.name: p.breaker.settings.consecutive if p.breaker.generation else 0 for p in ran.stage.world.providers
        }
        assert ran.work.cancelled, f"await {at} was never reached"
        assert ran.victim.cancelled(), f"the cancellation at await {at} was swallowed"
        assert ran.work.suspended == at, f"cleanup after await {at} awaits"
        assert ran.bystander.result().kind in (OutcomeKind.OK, OutcomeKind.REFUSED)
        check_given_back(ran)
        check_settled(ran)
        check_told(ran, cause)
        check_breaker_not_blamed(ran, trips)
        await check_next_one_passes(ran)
