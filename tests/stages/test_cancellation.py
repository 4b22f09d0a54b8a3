"""The cancellation matrix: whatever a request waits for when it is cancelled, everything that it held comes back.

Every scenario is run once to count where it suspends, then once for each of these points: cancelled while it waits
there, and cancelled after that for which it waited was handed to it. Cleanup that awaits would show as another point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from proxy.decisions.queues import Ask as AdmissionAsk
from proxy.decisions.queues import Permit
from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stage import CallNext
from tests.fakes import Ask, FakeReply, FakeUpload, answered, make_exchange, settle
from tests.stages.interrupted import NEVER, Interrupted
from tests.stages.world import WAITS, Provider, World, failed

VICTIM = "victim"
MOST_POKES = 200
GATES_OF_A_STREAM = 4


class Wire:
    """A provider's end: suspends where a real call does, until the test lets it go on.

    The victim's calls end as `results` say, in their order; all other calls are answered.
    """

    def __init__(self, stage: Stage, *results: Outcome) -> None:
        self._stage = stage
        self._results = list(results)

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Dials, waits for the head, relays two pieces."""
        clock, progress = self._stage.world.clock, exchange.progress
        assert progress is not None
        scripted = self._results if exchange.facts.request_id == VICTIM else []
        result = scripted.pop(0) if scripted else answered()
        await self._stage.gate()
        progress.on_wire(clock.now())
        await self._stage.gate()
        if result.kind is not OutcomeKind.OK:
            return result
        exchange.reply.start(200, b"OK", (), length=None)
        progress.first_content(clock.now())
        for _ in range(GATES_OF_A_STREAM - 2):
            await self._stage.gate()
            exchange.reply.write(b"data: x\n\n")
        exchange.reply.finish()
        return result


class Stage:
    """One scenario's world and what holds the victim up in it."""

    def __init__(self, *, alpha_keys: str = "") -> None:
        self.world = World(alpha_keys=alpha_keys)
        self.ask = Ask(request_id=VICTIM, stream=True, body=b'{"model":"m1","stream":true}')
        self.call: CallNext = self.world.call(Wire(self))
        self.blockers: list[Permit] = []
        self.events: list[Callable[[], None]] = []
        self._gates: list[asyncio.Future[None]] = []

    async def gate(self) -> None:
        """Suspends until a poke."""
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        await gate

    def block(self, provider: Provider) -> None:
        """Takes the provider's permit."""
        permit = self.world.admission.enter(provider.line, AdmissionAsk(limits=WAITS), self.world.clock.now())
        assert isinstance(permit, Permit)
        self.blockers.append(permit)

    def poke(self) -> None:
        """Lets happen what is due: what the scenario says, an answer, a permit given back, or time passing."""
        world = self.world
        self._gates = [gate for gate in self._gates if not gate.done()]
        if self.events:
            self.events.pop(0)()
        elif self._gates:
            self._gates.pop(0).set_result(None)
        elif self.blockers:
            self.blockers.pop(0).release(world.clock.now())
        else:
            due = world.clock.next_due
            world.clock.advance(1.0 if due is None else max(due - world.clock.now(), 0.0))
            world.tick()

    async def run(self, *tasks: asyncio.Task[Outcome]) -> None:
        """Pokes until the tasks have ended."""
        await settle()
        for _ in range(MOST_POKES):
            if all(task.done() for task in tasks):
                return
            self.poke()
            await settle()
        pytest.fail("somebody waits for ever")


def straight() -> Stage:
    return Stage()


def queued() -> Stage:
    stage = Stage()
    stage.block(stage.world.alpha)
    return stage


def waiting_for_a_key() -> Stage:
    stage = Stage(alpha_keys="a1")
    ring = stage.world.alpha.ring
    assert ring is not None
    key, limited = ring.keys[0], Outcome(OutcomeKind.RATE_LIMITED, retry_after=5.0)
    ring.judge(key, limited, stage.world.clock.now(), used=key.credential)
    return stage


def backing_off() -> Stage:
    stage = Stage()
    stage.call = stage.world.call(Wire(stage, failed(500)))
    return stage


def choosing_another_key() -> Stage:
    stage = Stage(alpha_keys="a1 a2")
    stage.call = stage.world.call(Wire(stage, failed(429)))
    return stage


def falling_back() -> Stage:
    stage = Stage()
    stage.call = stage.world.call(Wire(stage, failed(500), failed(503)), Wire(stage))
    return stage


def probing() -> Stage:
    stage = Stage()
    stage.world.alpha.trip()
    stage.world.clock.advance(6.0)
    return stage


def probing_from_the_queue() -> Stage:
    stage = probing()
    stage.block(stage.world.alpha)
    return stage


def released_by_an_opening_breaker() -> Stage:
    stage = Stage()
    stage.call = stage.world.call(Wire(stage), Wire(stage))
    stage.block(stage.world.alpha)
    stage.block(stage.world.beta)
    stage.events = [stage.world.alpha.trip]
    return stage


def uploading() -> Stage:
    stage = Stage()
    arrived = asyncio.Event()
    upload = FakeUpload([b'{"model":', b'"m1","stream":true}'], gate=arrived)
    stage.ask = Ask(request_id=VICTIM, stream=True, upload=upload)
    stage.events = [arrived.set]
    return stage


def answered_by_the_policy() -> Stage:
    stage = Stage()
    failures = [failed(500), failed(503)]
    stage.call = stage.world.call(Wire(stage, *failures), Wire(stage, *failures), answer=True)
    return stage


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
    behind = make_exchange(Ask(request_id="bystander"), now=stage.world.clock.now())
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
    for provider in world.providers:
        assert provider.places.used == 0
        assert (provider.room.waiting, provider.room.bytes) == (0, 0)
        assert all(ticket.ended for ticket in provider.breaker.tickets)
        assert provider.breaker.statistics(world.clock.now()).probes_running == 0
    assert world.clock.next_due is None
    assert ran.exchange.credential is None
    assert ran.exchange.progress is None


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


SCENARIOS = {
    straight: GATES_OF_A_STREAM,
    queued: GATES_OF_A_STREAM + 1,
    waiting_for_a_key: GATES_OF_A_STREAM + 1,
    backing_off: GATES_OF_A_STREAM + 3,
    choosing_another_key: GATES_OF_A_STREAM + 3,
    falling_back: GATES_OF_A_STREAM + 5,
    probing: GATES_OF_A_STREAM,
    probing_from_the_queue: GATES_OF_A_STREAM + 1,
    released_by_an_opening_breaker: GATES_OF_A_STREAM + 2,
    uploading: GATES_OF_A_STREAM + 2,
    answered_by_the_policy: 7,
}
"""Each with the number of awaits at which it must be possible to leave."""


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_undisturbed_every_scenario_ends_well_and_suspends_where_it_should(scenario: Callable[[], Stage]) -> None:
    ran = await run(scenario, at=NEVER, handed_over=False, cause=CancelCause.CLIENT_LEFT)
    assert ran.work.suspended == SCENARIOS[scenario]
    assert ran.victim.result().kind in (OutcomeKind.OK, OutcomeKind.ANSWERED)
    assert isinstance(ran.exchange.reply, FakeReply)
    assert ran.exchange.reply.end == "finished"
    check_given_back(ran)
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
        check_told(ran, cause)
        check_breaker_not_blamed(ran, trips)
        await check_next_one_passes(ran)
