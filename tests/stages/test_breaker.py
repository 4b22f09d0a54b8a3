"""Breaker: an open one answers before any wait; how a call ended is told once, and leaving early blames nobody."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.breaker import BreakerState
from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.stages.breaker import BreakerStage
from tests.fakes import LIMITS, Ask, FakeClock, answered, make_exchange, settle, with_attempt
from tests.scripted import ScriptedTerminal
from tests.stages.world import BREAKER, WatchedBreaker, failed

LIMIT = BREAKER.consecutive


def built() -> tuple[BreakerStage, WatchedBreaker, FakeClock]:
    clock, breaker = FakeClock(), WatchedBreaker()
    return BreakerStage(breaker, clock=clock), breaker, clock


async def on_wire_then(exchange: Exchange, outcome: Outcome, clock: FakeClock) -> Outcome:
    assert exchange.progress is not None
    exchange.progress.on_wire(clock.now())
    return outcome


async def test_failures_in_a_row_open_it_and_then_nobody_is_called() -> None:
    stage, breaker, clock = built()
    terminal = ScriptedTerminal(failed())
    for _ in range(LIMIT):
        await stage(make_exchange(), terminal)
    assert breaker.state is BreakerState.OPEN
    outcome = await stage(make_exchange(), terminal)
    assert len(terminal.calls) == LIMIT
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.BREAKER_OPEN)
    assert outcome.retry_after == pytest.approx(BREAKER.open_first)
    clock.advance(2.0)
    outcome = await stage(make_exchange(), terminal)
    assert outcome.retry_after == pytest.approx(BREAKER.open_first - 2.0)


async def test_a_success_between_failures_starts_the_count_again() -> None:
    stage, breaker, _ = built()
    for outcome in [failed(), failed(), answered()] * 3:
        await stage(make_exchange(), ScriptedTerminal(outcome))
    assert breaker.state is BreakerState.CLOSED


async def test_what_was_refused_below_is_not_recorded_and_frees_a_probe() -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        await stage(make_exchange(), ScriptedTerminal(failed()))
    clock.advance(6.0)
    for _ in range(10):
        outcome = await stage(make_exchange(), ScriptedTerminal(refused(Reason.QUEUE_FULL)))
        assert outcome.reason is Reason.QUEUE_FULL
    facts = breaker.statistics(clock.now())
    assert (facts.probes_running, facts.state) == (0, BreakerState.HALF_OPEN)
    await stage(make_exchange(), ScriptedTerminal(answered()))
    assert breaker.state is BreakerState.CLOSED


async def test_while_its_probes_run_a_half_open_breaker_refuses_the_others() -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        await stage(make_exchange(), ScriptedTerminal(failed()))
    clock.advance(6.0)
    answer = asyncio.Event()

    async def slowly(exchange: Exchange) -> Outcome:
        await answer.wait()
        return answered()

    probe = asyncio.ensure_future(stage(make_exchange(), slowly))
    await settle()
    other = await stage(make_exchange(), ScriptedTerminal())
    assert other.reason is Reason.BREAKER_OPEN
    assert other.retry_after == pytest.approx(1.0)
    answer.set()
    assert (await probe).kind is OutcomeKind.OK
    assert breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(("waited", "blamed"), [(19.0, False), (21.0, True)])
async def test_who_leaves_a_hung_stream_after_slow_after_counts_as_a_failure(waited: float, blamed: bool) -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        exchange = make_exchange(Ask(stream=True))

        async def hang(exchange: Exchange) -> Outcome:
            await on_wire_then(exchange, answered(), clock)
            await asyncio.Event().wait()
            raise AssertionError

        task = asyncio.ensure_future(stage(exchange, hang))
        await settle()
        clock.advance(waited)
        exchange.cancel_cause = CancelCause.CLIENT_LEFT
        task.cancel()
        await settle()
        assert task.cancelled()
        assert exchange.progress is None
    assert breaker.state is (BreakerState.OPEN if blamed else BreakerState.CLOSED)


@pytest.mark.parametrize(
    ("waited", "upload", "blamed"),
    [(LIMITS.answer * 0.6, False, False), (LIMITS.answer * 0.7, False, True), (LIMITS.answer * 0.7, True, False)],
)
async def test_who_gives_up_an_answer_in_one_piece_after_most_of_its_limit_counts_as_a_failure(
    waited: float, upload: bool, blamed: bool
) -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        exchange = make_exchange(Ask(stream=False))
        exchange.request.upload_taken = upload
        with_attempt(exchange)

        async def times_out(exchange: Exchange) -> Outcome:
            await on_wire_then(exchange, answered(), clock)
            clock.advance(waited)
            return Outcome(OutcomeKind.TOTAL_TIMEOUT)

        await stage(exchange, times_out)
    assert breaker.state is (BreakerState.OPEN if blamed else BreakerState.CLOSED)


async def test_who_gives_up_an_answer_that_has_begun_blames_nobody() -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        exchange = make_exchange(Ask(stream=False))
        with_attempt(exchange)

        async def begins_and_hangs(exchange: Exchange) -> Outcome:
            await on_wire_then(exchange, answered(), clock)
            assert exchange.progress is not None
            exchange.progress.first_content(clock.now())
            clock.advance(LIMITS.answer)
            return Outcome(OutcomeKind.CLIENT_LEFT, status=200)

        await stage(exchange, begins_and_hangs)
    assert breaker.state is BreakerState.CLOSED


async def test_a_caller_that_leaves_the_queue_late_blames_nobody() -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        exchange = make_exchange(Ask(stream=True))
        with_attempt(exchange)

        async def waits(exchange: Exchange) -> Outcome:
            clock.advance(600.0)
            return Outcome(OutcomeKind.CLIENT_LEFT)

        await stage(exchange, waits)
    assert breaker.state is BreakerState.CLOSED


async def test_who_leaves_after_the_last_event_has_had_a_success() -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT - 1):
        await stage(make_exchange(), ScriptedTerminal(failed()))
    exchange = make_exchange(Ask(stream=True))
    exchange.answered = True

    async def cancelled(exchange: Exchange) -> Outcome:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await stage(exchange, cancelled)
    await stage(make_exchange(), ScriptedTerminal(failed()))
    assert breaker.state is BreakerState.CLOSED
    assert breaker.statistics(clock.now()).calls == LIMIT + 1


async def test_who_leaves_after_the_provider_s_error_has_had_a_failure() -> None:
    """SDKs raise at the event, and close."""
    stage, breaker, _ = built()

    async def cancelled(exchange: Exchange) -> Outcome:
        exchange.told_error = True
        raise asyncio.CancelledError

    for _ in range(LIMIT):
        with pytest.raises(asyncio.CancelledError):
            await stage(make_exchange(Ask(stream=True)), cancelled)
    assert breaker.state is BreakerState.OPEN


async def test_a_retry_after_makes_the_open_state_longer() -> None:
    stage, breaker, clock = built()
    for _ in range(LIMIT):
        outcome = failed(503)
        outcome.retry_after = 40.0
        await stage(make_exchange(), ScriptedTerminal(outcome))
    assert breaker.retry_after(clock.now()) == pytest.approx(40.0)


async def test_a_bug_below_ends_the_ticket_and_goes_on() -> None:
    stage, breaker, _ = built()
    exchange = make_exchange()
    with pytest.raises(LookupError):
        await stage(exchange, ScriptedTerminal(LookupError()))
    assert [ticket.ended for ticket in breaker.tickets] == [True]
    assert exchange.progress is None
