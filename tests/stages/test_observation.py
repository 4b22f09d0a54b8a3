"""Observation: whatever happens, the observer is told once, and who still listens gets an answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.ports import Rescue
from proxy.stages.observation import ObservationStage
from tests.fakes import FakeClock, answered, make_exchange, settle
from tests.scripted import ManualObserver, ScriptedTerminal


class Rescuer:
    """Keeps what it is asked to rescue."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def __call__(self, exchange: Exchange, outcome: Outcome) -> None:
        """Keeps the outcome."""
        self.outcomes.append(outcome)


def built(rescuer: Rescue, clock: FakeClock | None = None) -> tuple[ObservationStage, ManualObserver]:
    observer = ManualObserver()
    return ObservationStage(observer, rescue=rescuer, clock=clock or FakeClock()), observer


async def test_facts_are_closed_before_the_observer_looks() -> None:
    clock, rescuer = FakeClock(), Rescuer()
    stage, observer = built(rescuer, clock)
    outcome = refused(Reason.QUEUE_FULL, detail="full")

    async def call(exchange: Exchange) -> Outcome:
        clock.advance(2.0)
        return outcome

    exchange = make_exchange()
    assert await stage(exchange, call) is outcome
    facts = exchange.facts
    assert observer.exchanges == [exchange]
    assert (facts.kind, facts.reason, facts.detail) == (OutcomeKind.REFUSED, Reason.QUEUE_FULL, "full")
    assert facts.ended_at == 1002.0
    assert rescuer.outcomes == [outcome]


async def test_a_reason_that_rescue_finds_is_observed() -> None:
    def rescue(exchange: Exchange, outcome: Outcome) -> None:
        outcome.reason = Reason.UPSTREAM_UNREACHABLE

    stage, _ = built(rescue)
    exchange = make_exchange()
    await stage(exchange, ScriptedTerminal(Outcome(OutcomeKind.DISCONNECTED)))
    assert exchange.facts.reason is Reason.UPSTREAM_UNREACHABLE


async def test_a_bug_is_logged_with_the_request_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    rescuer = Rescuer()
    stage, observer = built(rescuer)
    exchange = make_exchange()
    with caplog.at_level(logging.ERROR, "sponson.pipeline"):
        outcome = await stage(exchange, ScriptedTerminal(LookupError("oops")))
    assert outcome.kind is OutcomeKind.BUG
    assert rescuer.outcomes == [outcome]
    assert observer.exchanges == [exchange]
    assert "r1" in caplog.text
    assert "oops" in caplog.text


@pytest.mark.parametrize(
    ("cause", "kind", "answers"),
    [
        (CancelCause.CLIENT_LEFT, OutcomeKind.CLIENT_LEFT, False),
        (CancelCause.STALLED, OutcomeKind.CLIENT_LEFT, False),
        (CancelCause.DRAIN, OutcomeKind.DRAINED, True),
    ],
)
async def test_a_cancellation_is_observed_goes_on_and_is_answered_where_somebody_listens(
    cause: CancelCause, kind: OutcomeKind, answers: bool
) -> None:
    rescuer = Rescuer()
    stage, observer = built(rescuer)
    exchange = make_exchange()

    async def hang(exchange: Exchange) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    task = asyncio.ensure_future(stage(exchange, hang))
    await settle()
    exchange.cancel_cause = cause
    task.cancel()
    await settle()
    assert task.cancelled()
    assert observer.exchanges == [exchange]
    assert exchange.facts.kind is kind
    assert [outcome.kind for outcome in rescuer.outcomes] == [kind] * answers


async def test_a_rescue_that_fails_does_not_hide_the_exchange() -> None:
    def rescue(exchange: Exchange, outcome: Outcome) -> None:
        raise LookupError

    stage, observer = built(rescue)
    exchange = make_exchange()
    with pytest.raises(LookupError):
        await stage(exchange, ScriptedTerminal(refused(Reason.QUEUE_FULL)))
    assert observer.exchanges == [exchange]
    assert exchange.facts.ended_at


async def test_bodies_are_let_go_before_anybody_is_told() -> None:
    stage, observer = built(Rescuer())
    exchange = make_exchange()
    exchange.payload, exchange.request.body, exchange.document = b"x" * 1000, b"x" * 1000, {"model": "m"}
    await stage(exchange, ScriptedTerminal(answered()))
    assert observer.exchanges == [exchange]
    assert [exchange.payload, exchange.request.body, exchange.document] == [None] * 3


def test_a_request_that_never_enters_is_answered_and_observed_too() -> None:
    rescuer = Rescuer()
    stage, observer = built(rescuer)
    exchange, outcome = make_exchange(), refused(Reason.SHUTTING_DOWN)
    stage.refuse(exchange, outcome)
    assert rescuer.outcomes == [outcome]
    assert observer.exchanges == [exchange]
