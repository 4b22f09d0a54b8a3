"""Attempt: every upstream call leaves a record, however it ends."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.pace import FEWEST_CALLS, Pace, PacedLimits
from proxy.exchange import CancelCause, Credential, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stages.attempt import AttemptStage
from tests.fakes import LIMITS, Ask, FakeClock, FakeUpload, answered, counting_bits, make_exchange, settle
from tests.scripted import ScriptedTerminal


def stage(clock: FakeClock, *, paced: PacedLimits | None = None) -> AttemptStage:
    return AttemptStage(provider="alpha", model="m1", limits=LIMITS, clock=clock, bits=counting_bits, paced=paced)


async def test_the_record_says_who_was_asked_with_which_key_and_under_which_limits() -> None:
    exchange = make_exchange()
    exchange.facts.tier = 2
    exchange.credential = Credential(key_id="a1", header=None)
    await stage(FakeClock())(exchange, ScriptedTerminal(answered()))
    (attempt,) = exchange.facts.attempts
    assert (attempt.number, attempt.tier, attempt.provider, attempt.model) == (1, 2, "alpha", "m1")
    assert attempt.key_id == "a1"
    assert attempt.limits is LIMITS
    assert attempt.span_id


async def test_attempts_are_numbered_over_all_tiers_and_each_has_its_times() -> None:
    clock, exchange = FakeClock(1000.0), make_exchange()

    async def call(exchange: Exchange) -> Outcome:
        clock.advance(1.5)
        return Outcome(OutcomeKind.REFUSED, reason=Reason.QUEUE_FULL)

    for _ in range(2):
        await stage(clock)(exchange, call)
        clock.advance(10.0)
    first, second = exchange.facts.attempts
    assert (first.number, second.number) == (1, 2)
    assert (first.started_at, first.ended_at) == (1000.0, 1001.5)
    assert (second.started_at, second.ended_at) == (1011.5, 1013.0)
    assert (first.kind, first.reason) == (OutcomeKind.REFUSED, Reason.QUEUE_FULL)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (CancelCause.CLIENT_LEFT, OutcomeKind.CLIENT_LEFT),
        (CancelCause.STALLED, OutcomeKind.CLIENT_LEFT),
        (CancelCause.DRAIN, OutcomeKind.DRAINED),
    ],
)
async def test_a_cancelled_attempt_says_who_cancelled_it(cause: CancelCause, kind: OutcomeKind) -> None:
    clock, exchange = FakeClock(), make_exchange()

    async def hang(exchange: Exchange) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(stage(clock)(exchange, hang))
    await settle()
    clock.advance(2.0)
    exchange.cancel_cause = cause
    task.cancel()
    await settle()
    assert task.cancelled()
    (attempt,) = exchange.facts.attempts
    assert attempt.kind is kind
    assert attempt.ended_at == clock.now()


async def test_a_bug_is_no_clients_leaving() -> None:
    exchange = make_exchange()
    with pytest.raises(LookupError):
        await stage(FakeClock())(exchange, ScriptedTerminal(LookupError()))
    (attempt,) = exchange.facts.attempts
    assert attempt.kind is OutcomeKind.BUG
    assert attempt.ended_at


class AfterTwoSeconds:
    """A terminal whose head comes after two seconds, as the transport notes it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def __call__(self, exchange: Exchange) -> Outcome:
        attempt = exchange.attempt
        assert attempt is not None
        attempt.connected_at = self._clock.now()
        self._clock.advance(2.0)
        attempt.head_at, attempt.status = self._clock.now(), 200
        return answered()


def last_limit(exchange: Exchange) -> float:
    assert exchange.attempt is not None
    return exchange.attempt.limits.answer


async def test_the_answer_limit_follows_the_pace_of_the_answers_before() -> None:
    clock = FakeClock()
    paced = PacedLimits(LIMITS, Pace(), factor=2.0, plus=1.0)
    one, terminal = stage(clock, paced=paced), AfterTwoSeconds(clock)
    for _ in range(FEWEST_CALLS):
        await one(exchange := make_exchange(), terminal)
        assert last_limit(exchange) == LIMITS.answer
    await one(exchange := make_exchange(), terminal)
    assert last_limit(exchange) == pytest.approx(5.0, rel=0.2)
    assert last_limit(exchange) >= 5.0


@pytest.mark.parametrize(
    "ask", [Ask(stream=True), Ask(body=None, upload=FakeUpload([b"slowly"]))], ids=["stream", "upload"]
)
async def test_streams_and_uploads_neither_follow_the_pace_nor_set_it(ask: Ask) -> None:
    clock, pace = FakeClock(), Pace()
    one = stage(clock, paced=PacedLimits(LIMITS, pace, factor=2.0, plus=1.0))
    for _ in range(FEWEST_CALLS):
        await one(make_exchange(ask), AfterTwoSeconds(clock))
    assert pace.calls(clock.now()) == 0
    for _ in range(FEWEST_CALLS):
        pace.answered(0.1, clock.now())
    await one(exchange := make_exchange(ask), AfterTwoSeconds(clock))
    assert last_limit(exchange) == LIMITS.answer


async def test_who_leaves_after_the_head_still_shows_how_long_it_took() -> None:
    clock, pace = FakeClock(), Pace()
    one, exchange = stage(clock, paced=PacedLimits(LIMITS, pace, factor=2.0, plus=1.0)), make_exchange()

    async def hang_after_the_head(exchange: Exchange) -> Outcome:
        await AfterTwoSeconds(clock)(exchange)
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(one(exchange, hang_after_the_head))
    await settle()
    task.cancel()
    await settle()
    assert task.cancelled()
    assert pace.calls(clock.now()) == 1
