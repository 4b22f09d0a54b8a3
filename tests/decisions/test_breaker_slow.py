"""Slow calls, counted while they run, and calls that somebody gave up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict, verdict_of
from proxy.outcome import Outcome, OutcomeKind
from tests.decisions.target import CLOSED, GOOD, KEY, LEFT, K, Target


def test_a_hung_provider_opens_it_while_its_calls_still_run() -> None:
    target = Target()
    tickets = [target.start(stream=True) for _ in range(20)]
    target.passes(19.9)
    assert target.state is CLOSED
    target.passes(0.1)
    assert target.whys == ["slow"]
    assert not any(ticket.ended for ticket in tickets)


def test_a_slow_call_is_seen_at_the_next_use_where_no_ticker_runs() -> None:
    target = Target(BreakerSettings(min_calls=2))
    tickets = [target.start(stream=True) for _ in range(2)]
    target.now += 25.0
    tickets[0].first_content(target.now)
    assert target.whys == ["slow"]


def test_slow_is_two_thirds_of_the_first_byte_limit_unless_the_policy_says_it() -> None:
    default, told = Target(first_byte=9.0), Target(BreakerSettings(slow_after=2.0), first_byte=9.0)
    for target, limit in ((default, 6.0), (told, 2.0)):
        target.start(stream=True)
        target.passes(limit - 0.25)
        assert target.breaker.statistics(target.now).slow == 0
        target.passes(0.25)
        assert target.breaker.statistics(target.now).slow == 1


def test_a_slow_call_counts_once_however_it_ends() -> None:
    target = Target(BreakerSettings(slow_ratio=1.0))
    slow = [target.start(stream=True) for _ in range(3)]
    target.passes(20.0)
    slow[0].first_content(target.now)
    slow[0].end(Verdict.SUCCESS, target.now)
    slow[1].end(Verdict.FAILURE, target.now)
    slow[2].end(Verdict.NEUTRAL, target.now)
    facts = target.breaker.statistics(target.now)
    assert (facts.calls, facts.slow, facts.failures) == (3, 3, 1)


def test_a_slow_call_that_fails_after_the_window_has_forgotten_it_is_a_failure_of_now() -> None:
    target = Target(BreakerSettings(window_seconds=5.0))
    ticket = target.start(stream=True)
    target.passes(20.0)
    target.passes(6.0)
    ticket.end(Verdict.FAILURE, target.now)
    facts = target.breaker.statistics(target.now)
    assert (facts.calls, facts.failures, facts.slow) == (1, 1, 0)


@pytest.mark.parametrize("before", [lambda t, now: t.first_content(now), lambda t, now: t.end(Verdict.SUCCESS, now)])
def test_a_call_with_content_or_an_end_in_time_is_not_slow(before: Callable[[Ticket, float], None]) -> None:
    target = Target()
    ticket = target.start(stream=True)
    target.passes(19.0)
    before(ticket, target.now)
    target.passes(100.0)
    assert target.breaker.statistics(target.now).slow == 0


def test_answers_in_one_piece_are_never_slow() -> None:
    target = Target()
    ticket = target.start(stream=False)
    target.passes(500.0)
    ticket.end(verdict_of(LEFT), target.now)
    facts = target.breaker.statistics(target.now)
    assert (facts.slow, facts.failures) == (0, 0)


def test_time_in_the_queue_is_not_slowness() -> None:
    target = Target()
    ticket = target.breaker.acquire(target.now, stream=True)
    assert ticket is not None
    target.passes(100.0)
    ticket.on_wire(target.now)
    target.passes(19.9)
    assert target.breaker.statistics(target.now).slow == 0


def test_calls_that_slow_down_below_the_ratio_keep_it_closed() -> None:
    target = Target()
    target.call(GOOD, 20)
    for _ in range(80):
        target.start(stream=True)
    target.passes(20.0)
    assert target.state is CLOSED


@pytest.mark.parametrize("kind", [K.CLIENT_LEFT, K.TOTAL_TIMEOUT, K.DRAINED])
def test_leaving_before_slow_is_neutral_and_after_it_a_failure(kind: OutcomeKind) -> None:
    target = Target()
    early, late = target.start(stream=True), target.start(stream=True)
    target.passes(19.0)
    early.end(verdict_of(Outcome(kind)), target.now)
    assert target.breaker.statistics(target.now).failures == 0
    target.passes(1.0)
    late.end(verdict_of(Outcome(kind)), target.now)
    assert target.breaker.statistics(target.now).failures == 1


def test_leaving_an_answer_that_has_begun_is_neutral_however_late() -> None:
    target = Target()
    ticket = target.start(stream=True)
    ticket.first_content(target.now)
    target.passes(100.0)
    ticket.end(verdict_of(LEFT), target.now)
    assert target.breaker.statistics(target.now).failures == 0


def test_a_rejected_key_is_neutral_however_late_its_answer_came() -> None:
    target = Target()
    ticket = target.start(stream=True)
    target.passes(25.0)
    ticket.end(verdict_of(KEY), target.now)
    assert target.breaker.statistics(target.now).failures == 0
