"""What an attempt has used is settled once, by that attempt alone, and whatever happens its permit comes back."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.counting import CountSettings
from proxy.decisions.estimates import Estimates
from proxy.dialects.demand import Demand
from proxy.dialects.lookup import operation_of
from proxy.exchange import Attempt, Exchange, Usage
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.stages.admission import AdmissionStage, Terms
from proxy.stages.metering import Meter
from tests.decisions.waiting_room import NOW, a_bucket, a_line, a_room
from tests.fakes import Ask, FakeClock, answered, make_exchange, settle, with_attempt
from tests.stages.world import WAITS

USED = Usage(input=20, output=30)


class Broken(Estimates):
    """Estimates with a bug."""

    def learn(self, demand: Demand | None, attempt: Attempt, *, stream: bool) -> None:
        raise RuntimeError("a bug")


class Metered:
    """An admission stage over full buckets of tokens and requests."""

    def __init__(self, estimates: Estimates | None = None) -> None:
        self.clock = FakeClock(NOW + 60.0)
        self.admission = Admission()
        self.tokens, self.requests = a_bucket(60_000.0), a_bucket(600.0)
        self.line = a_line(a_room(), requests=(self.requests,), tokens=(self.tokens,))
        meter = Meter(estimates or Estimates(), CountSettings(), fields={}, reserves=True)
        terms = Terms(meter=meter, settles=True)
        self.stage = AdmissionStage(self.admission, self.line, limits=WAITS, clock=self.clock, terms=terms)
        self.exchange = make_exchange(Ask(body=b'{"model":"m1"}'))
        self.exchange.operation = operation_of("/v1/chat/completions")
        self.exchange.document = {"model": "m1", "max_tokens": 100}

    @property
    def cost(self) -> tuple[float, float]:
        """Requests and tokens that are taken."""
        return tuple(round(b.capacity - b.level(self.clock.now()), 6) for b in (self.requests, self.tokens))  # type: ignore[return-value]

    def is_whole(self) -> bool:
        """Whether every permit is back."""
        return not self.admission.out and self.line.room.running == 0


async def answers(exchange: Exchange) -> Outcome:
    attempt = with_attempt(exchange)
    attempt.sent_bytes, attempt.head_at, attempt.status = 10, 1.0, 200
    attempt.kind, attempt.usage = OutcomeKind.OK, USED
    return answered()


async def refuses(exchange: Exchange) -> Outcome:
    return refused(Reason.BREAKER_OPEN)


async def test_an_answer_costs_what_it_reports() -> None:
    metered = Metered()
    await metered.stage(metered.exchange, answers)
    assert metered.cost == (1.0, 50.0)
    assert metered.is_whole()


async def test_what_is_refused_below_is_not_charged_for_the_attempt_before_it() -> None:
    metered = Metered()
    await metered.stage(metered.exchange, answers)
    await metered.stage(metered.exchange, refuses)
    assert metered.cost == (1.0, 50.0)
    assert metered.is_whole()


async def test_who_leaves_before_anything_was_sent_has_used_nothing() -> None:
    metered = Metered()

    async def dials(exchange: Exchange) -> Outcome:
        with_attempt(exchange).kind = OutcomeKind.CLIENT_LEFT
        await asyncio.sleep(3600)
        return answered()

    task = asyncio.ensure_future(metered.stage(metered.exchange, dials))
    await settle()
    assert metered.cost[0] == 1.0
    task.cancel()
    await settle()
    assert metered.cost == (0.0, 0.0)
    assert metered.is_whole()


async def test_a_bug_in_settling_costs_what_was_reserved_and_leaks_no_permit() -> None:
    metered = Metered(Broken())
    with pytest.raises(RuntimeError, match="a bug"):
        await metered.stage(metered.exchange, answers)
    assert metered.cost[0] == 1.0
    assert metered.cost[1] > 100.0
    assert metered.is_whole()
