"""A probe that waits for a permit: its lease has no deadline of its own, and ends with its wait, however that ends."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.breaker import BreakerState
from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask as AdmissionAsk
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason
from proxy.stage import CallNext, Stage, compose
from proxy.stages.admission import AdmissionStage
from proxy.stages.breaker import BreakerStage
from tests.fakes import Ask, answered, make_exchange, settle
from tests.stages.world import BREAKER, FIRST_BYTE, WAITS, World


class Bench:
    """A half-open target with one probe, whose only permit is held by a call from before the opening."""

    def __init__(self) -> None:
        self.world = World(share=1)
        self.clock, self.admission, self.alpha = self.world.clock, self.world.admission, self.world.alpha
        self.breaker = self.alpha.breaker
        stages: list[Stage] = [
            BreakerStage(self.breaker, clock=self.clock),
            AdmissionStage(self.admission, self.alpha.line, limits=WAITS, clock=self.clock),
        ]
        self.call: CallNext = compose(stages, self.wire)
        self.answer = asyncio.Event()
        held = self.admission.enter(self.alpha.line, AdmissionAsk(limits=WAITS), self.clock.now())
        assert isinstance(held, Permit)
        self.held = held
        self.alpha.trip()

    def state(self) -> BreakerState:
        return self.breaker.state

    async def wire(self, exchange: Exchange) -> Outcome:
        """Starts, and answers when the test says so."""
        assert exchange.progress is not None
        exchange.progress.on_wire(self.clock.now())
        await self.answer.wait()
        return answered()

    async def begin(self) -> asyncio.Task[Outcome]:
        """Starts a call and lets it run as far as it can."""
        task = asyncio.ensure_future(self.call(make_exchange(Ask(stream=True))))
        await settle()
        return task

    async def passes(self, seconds: float) -> None:
        """What the process does by the clock."""
        self.clock.advance(seconds)
        self.world.tick()
        await settle()

    async def waiting_probe(self) -> asyncio.Task[Outcome]:
        """The lease is out, and waits."""
        await self.passes(BREAKER.open_first)
        probe = await self.begin()
        assert (self.state(), self.admission.waiting) == (BreakerState.HALF_OPEN, 1)
        return probe


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_it_blocks_half_open_no_longer_than_it_may_wait(bench: Bench) -> None:
    probe = await bench.waiting_probe()
    await bench.passes(WAITS.queue - 0.25)
    assert (await bench.begin()).result().reason is Reason.BREAKER_OPEN
    await bench.passes(0.25)
    assert probe.result().reason is Reason.QUEUE_TIMEOUT
    assert bench.state() is BreakerState.HALF_OPEN
    following = await bench.begin()
    bench.held.release(bench.clock.now())
    bench.answer.set()
    await settle()
    assert following.result().status == 200
    assert bench.state() is BreakerState.CLOSED


async def test_its_deadline_runs_from_the_wire(bench: Bench) -> None:
    probe = await bench.waiting_probe()
    await bench.passes(WAITS.queue - 0.25)
    bench.held.release(bench.clock.now())
    await settle()
    await bench.passes(FIRST_BYTE - 0.25)
    assert bench.state() is BreakerState.HALF_OPEN
    await bench.passes(0.25)
    assert bench.state() is BreakerState.OPEN
    bench.answer.set()
    await settle()
    assert probe.result().status == 200
    assert bench.state() is BreakerState.OPEN


async def test_a_caller_that_leaves_gives_the_lease_back_without_a_verdict(bench: Bench) -> None:
    for _ in range(10):
        probe = await (bench.waiting_probe() if bench.state() is not BreakerState.HALF_OPEN else bench.begin())
        assert bench.admission.waiting == 1
        probe.cancel()
        await settle()
        assert bench.breaker.statistics(bench.clock.now()).probes_running == 0
    assert bench.state() is BreakerState.HALF_OPEN


async def test_a_caller_that_leaves_with_a_permit_in_its_hand_gives_both_back(bench: Bench) -> None:
    probe = await bench.waiting_probe()
    bench.held.release(bench.clock.now())
    probe.cancel()
    await settle()
    assert probe.cancelled()
    assert bench.breaker.statistics(bench.clock.now()).probes_running == 0
    assert (bench.state(), bench.alpha.places.used) == (BreakerState.HALF_OPEN, 0)


async def test_a_call_from_before_the_opening_that_was_handed_a_permit_is_refused_when_it_opens() -> None:
    bench = Bench()
    await bench.passes(BREAKER.open_first)
    bench.held.release(bench.clock.now())
    bench.answer.set()
    await bench.begin()
    assert bench.state() is BreakerState.CLOSED
    bench.answer.clear()
    running, waiting = await bench.begin(), await bench.begin()
    bench.answer.set()
    await asyncio.sleep(0)
    for _ in range(10):  # until the permit is on its way from the one to the other
        if bench.alpha.line.handed:
            break
        await asyncio.sleep(0)
    assert bench.alpha.line.handed
    bench.alpha.trip()
    await settle()
    assert running.result().status == 200
    assert waiting.result().reason is Reason.BREAKER_OPEN
    assert bench.alpha.places.used == 0
