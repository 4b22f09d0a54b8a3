"""Scenarios of the cancellation matrix: a request, and what holds it up on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask as AdmissionAsk
from proxy.decisions.tenants import TenantSettings
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stage import CallNext
from tests.fakes import Ask, FakeUpload, answered, settle
from tests.stages.world import WAITS, Provider, World, failed

VICTIM = "victim"
MOST_POKES = 200
GATES_OF_A_STREAM = 4
WAKES_OF_A_STREAM = 3
"""How often who reads a recorded one waits for news: its head, its pieces, its end."""
KEYED = (("content-type", "application/json"), ("idempotency-key", "k"))


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
        if self._stage.metered and exchange.attempt is not None:
            exchange.attempt.sent_bytes = len(exchange.payload or b"")
        await self._stage.gate()
        if result.kind is not OutcomeKind.OK:
            return result
        exchange.reply.start(200, b"OK", b"", length=None)
        progress.first_content(clock.now())
        for _ in range(GATES_OF_A_STREAM - 2):
            await self._stage.gate()
            exchange.reply.write(b"data: x\n\n")
        exchange.reply.finish()
        return result


class Stage:
    """One scenario's world and what holds the victim up in it; `behind` asks right after the victim.

    `metered`: providers count what they are sent.
    """

    def __init__(self, *, alpha_keys: str = "") -> None:
        self.world = World(alpha_keys=alpha_keys)
        self.ask = Ask(request_id=VICTIM, stream=True, body=b'{"model":"m1","stream":true}')
        self.call: CallNext = self.world.call(Wire(self))
        self.behind = Ask(request_id="bystander")
        self.blockers: list[Permit] = []
        self.blocked: list[Permit] = []
        self.metered = False
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
        self.blocked.append(permit)

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


def capped() -> Stage:
    stage = Stage()
    stage.world.cap(TenantSettings(rps=2, concurrency=2, tpm=60_000))
    tenant = stage.world.tenants
    assert tenant is not None
    tenant.of("default", stage.world.clock.now()).caps.take(0.0, stage.world.clock.now()).give_back(0.0, 0.0)
    stage.world.clock.advance(60.0)
    stage.call = stage.world.call(Wire(stage))
    stage.block(stage.world.alpha)
    return stage


def metered(*, requests: float = 10.0, tokens: float = 9000.0) -> Stage:
    stage = Stage()
    stage.metered = True
    for provider in stage.world.providers:
        provider.meter(requests=requests, tokens=tokens)
    stage.call = stage.world.call(Wire(stage))
    return stage


def metered_in_the_queue() -> Stage:
    stage = metered()
    stage.block(stage.world.alpha)
    return stage


def waiting_for_requests() -> Stage:
    return metered(requests=0.0)


def waiting_for_tokens() -> Stage:
    return metered(tokens=400.0)


def metered_and_falling_back() -> Stage:
    stage = metered()
    stage.call = stage.world.call(Wire(stage, failed(500), failed(503)), Wire(stage))
    return stage


def metered_and_released_by_an_opening_breaker() -> Stage:
    stage = metered()
    stage.call = stage.world.call(Wire(stage), Wire(stage))
    stage.block(stage.world.alpha)
    stage.events = [stage.world.alpha.trip]
    return stage


def keyed() -> Stage:
    stage = Stage()
    stage.ask = Ask(request_id=VICTIM, stream=True, body=stage.ask.body, headers=KEYED)
    return stage


def keyed_in_the_queue() -> Stage:
    stage = keyed()
    stage.block(stage.world.alpha)
    return stage


def keyed_and_backing_off() -> Stage:
    stage = keyed()
    stage.call = stage.world.call(Wire(stage, failed(500)))
    return stage


def joined_by_another() -> Stage:
    stage = keyed()
    stage.behind = Ask(request_id="bystander", stream=True, body=stage.ask.body, headers=KEYED)
    return stage


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


SCENARIOS = {
    straight: GATES_OF_A_STREAM,
    capped: GATES_OF_A_STREAM + 1,
    metered: GATES_OF_A_STREAM,
    metered_in_the_queue: GATES_OF_A_STREAM + 1,
    waiting_for_requests: GATES_OF_A_STREAM + 1,
    waiting_for_tokens: GATES_OF_A_STREAM + 1,
    metered_and_falling_back: GATES_OF_A_STREAM + 5,
    metered_and_released_by_an_opening_breaker: GATES_OF_A_STREAM + 1,
    keyed: WAKES_OF_A_STREAM,
    keyed_in_the_queue: WAKES_OF_A_STREAM,
    keyed_and_backing_off: WAKES_OF_A_STREAM,
    joined_by_another: WAKES_OF_A_STREAM,
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
