"""When a breaker opens, and how long it stays open; `test_breaker_model.py` has all interleavings."""

from __future__ import annotations

import pytest

from proxy.decisions.breaker import Breaker, BreakerChange, BreakerSettings
from proxy.decisions.cooldown import LONGEST_EXTENSION_SECONDS
from proxy.decisions.verdict import Verdict
from proxy.outcome import Outcome
from tests.decisions.target import (
    CLOSED,
    FAILED,
    GOOD,
    HALF_OPEN,
    KEY,
    LEFT,
    LIMITED,
    LOCAL,
    OPEN,
    OTHER_4XX,
    K,
    Target,
)

FAILURES = [
    *(Outcome(kind) for kind in (K.UNREACHABLE, K.DISCONNECTED, K.BAD_ANSWER)),
    *(Outcome(kind) for kind in (K.CONNECT_TIMEOUT, K.FIRST_BYTE_TIMEOUT, K.ANSWER_TIMEOUT, K.IDLE_TIMEOUT)),
    *(Outcome(K.UPSTREAM_ERROR, status=status) for status in (500, 502, 503, 504, 529, 408)),
    Outcome(K.STREAM_BROKEN, status=200, committed=True),
    Outcome(K.ERROR_IN_ANSWER, status=200),
]


@pytest.mark.parametrize("outcome", FAILURES, ids=repr)
def test_each_kind_of_failure_opens_it(outcome: Outcome) -> None:
    target = Target()
    target.call(outcome, 10)
    assert target.state is OPEN
    assert target.whys == ["consecutive"]
    assert target.refuses()


@pytest.mark.parametrize("outcome", [LIMITED, KEY, OTHER_4XX, LEFT, LOCAL, Outcome(K.BUG)], ids=repr)
def test_nothing_else_ever_opens_it(outcome: Outcome) -> None:
    target = Target()
    target.call(outcome, 300)
    assert target.state is CLOSED
    assert target.breaker.statistics(target.now).calls == 0


@pytest.mark.parametrize("outcome", [LIMITED, KEY, LEFT, LOCAL], ids=repr)
def test_what_is_neutral_does_not_break_a_row_of_failures(outcome: Outcome) -> None:
    target = Target()
    target.call(FAILED, 9)
    target.call(outcome)
    assert target.state is CLOSED
    target.call(FAILED)
    assert target.state is OPEN


@pytest.mark.parametrize("outcome", [GOOD, OTHER_4XX], ids=repr)
def test_a_sign_of_life_breaks_a_row_of_failures(outcome: Outcome) -> None:
    target = Target()
    target.call(FAILED, 9)
    target.call(outcome)
    target.call(FAILED, 9)
    assert target.state is CLOSED


def test_consecutive_can_be_switched_off() -> None:
    target = Target(BreakerSettings(consecutive=0, failure_ratio=1.0))
    target.call(FAILED, 500)
    assert target.state is CLOSED


def test_above_the_ratio_it_opens_and_at_the_ratio_it_does_not() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.call(GOOD, 60)
    target.call(FAILED, 40)
    assert target.state is CLOSED
    target.call(FAILED)
    assert target.whys == ["failure_ratio"]


def test_too_few_calls_make_no_ratio() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.call(FAILED, 19)
    assert target.state is CLOSED
    target.call(FAILED)
    assert target.state is OPEN


def test_the_call_that_completes_the_window_may_be_a_good_one() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.call(FAILED, 19)
    target.call(GOOD)
    assert target.whys == ["failure_ratio"]


def test_other_4xx_stand_outside_the_ratio() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.call(OTHER_4XX, 200)
    target.call(FAILED, 20)
    assert target.state is OPEN


def test_old_results_leave_the_window() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.call(FAILED, 19)
    target.passes(60.5)
    target.call(FAILED, 19)
    assert target.state is CLOSED


def test_only_the_last_calls_count() -> None:
    target = Target(BreakerSettings(consecutive=0, window_calls=20))
    target.call(GOOD, 1000)
    target.call(FAILED, 8)
    assert target.state is CLOSED
    target.call(FAILED)
    assert target.state is OPEN


def test_the_window_is_emptied_on_closing() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.half_open()
    target.call(GOOD, 3)
    assert target.state is CLOSED
    facts = target.breaker.statistics(target.now)
    assert (facts.calls, facts.failures, facts.slow, facts.consecutive) == (0, 0, 0, 0)


def test_open_answers_at_once_with_the_time_that_is_left() -> None:
    target = Target()
    target.call(FAILED, 10)
    assert target.breaker.retry_after(target.now) == 30.0
    target.passes(10.0)
    assert target.refuses()
    assert target.breaker.retry_after(target.now) == 20.0


def test_closed_names_no_time() -> None:
    target = Target()
    assert target.breaker.retry_after(target.now) == 0.0


def test_it_stays_open_longer_each_time_up_to_the_cap_and_n_falls_with_health() -> None:
    target = Target(BreakerSettings(open_first=10.0, open_cap=40.0))
    target.half_open()
    for _ in range(3):
        target.call(FAILED)
        target.passes(target.breaker.retry_after(target.now))
    target.call(GOOD, 3)
    target.passes(80.0)
    target.call(FAILED, 10)
    opened = [change.open_seconds for change in target.changes if change.new is OPEN]
    assert opened == [10.0, 20.0, 40.0, 40.0, 20.0]


def test_jitter_adds_a_fifth_at_most() -> None:
    changes: list[BreakerChange] = []
    breaker = Breaker(BreakerSettings(), first_byte=30.0, jitter=lambda: 1.0, on_change=changes.append)
    for _ in range(10):
        ticket = breaker.acquire(1000.0, stream=False)
        assert ticket is not None
        ticket.end(Verdict.FAILURE, 1000.0)
    assert changes[0].open_seconds == pytest.approx(36.0)


@pytest.mark.parametrize(
    ("told", "seconds"), [(None, 30.0), (5.0, 30.0), (120.0, 120.0), (86400.0, LONGEST_EXTENSION_SECONDS)]
)
def test_a_longer_retry_after_extends_it(told: float | None, seconds: float) -> None:
    target = Target()
    target.call(Outcome(K.UPSTREAM_ERROR, status=503, retry_after=told), 10)
    assert target.breaker.retry_after(target.now) == seconds


def test_a_retry_after_that_an_earlier_failure_of_the_row_told_extends_it_too() -> None:
    target = Target()
    target.call(Outcome(K.UPSTREAM_ERROR, status=503, retry_after=120.0))
    target.passes(20.0)
    target.call(FAILED, 9)
    assert target.breaker.retry_after(target.now) == 100.0


def test_what_was_told_before_a_sign_of_life_extends_nothing() -> None:
    target = Target()
    target.call(Outcome(K.UPSTREAM_ERROR, status=503, retry_after=120.0))
    target.call(GOOD)
    target.call(FAILED, 10)
    assert target.breaker.retry_after(target.now) == 30.0


def test_late_results_of_an_older_generation_change_nothing() -> None:
    target = Target()
    old = [target.start(stream=True) for _ in range(50)]
    target.half_open()
    before = target.breaker.statistics(target.now)
    for index, ticket in enumerate(old):
        ticket.end((Verdict.SUCCESS, Verdict.FAILURE, Verdict.REJECTED)[index % 3], target.now)
    assert target.breaker.statistics(target.now) == before


def test_probes_of_a_half_open_that_failed_say_nothing_in_the_next() -> None:
    target = Target(BreakerSettings(probes=2))
    target.half_open()
    first, second = target.start(), target.start()
    first.end(Verdict.FAILURE, target.now)
    target.passes(target.breaker.retry_after(target.now))
    second.end(Verdict.SUCCESS, target.now)
    target.call(GOOD)
    assert target.state is HALF_OPEN


def test_a_reload_changes_the_rules_and_keeps_state_and_results() -> None:
    target = Target(BreakerSettings(consecutive=0))
    target.call(FAILED, 15)
    target.breaker.reconfigure(BreakerSettings(consecutive=0, min_calls=16), first_byte=30.0)
    target.call(FAILED)
    assert target.state is OPEN
    target.breaker.reconfigure(BreakerSettings(open_first=1.0, open_cap=2.0), first_byte=30.0)
    assert target.breaker.retry_after(target.now) == 30.0


def test_fewer_probes_than_have_succeeded_already_close_it() -> None:
    target = Target(BreakerSettings(probes=3))
    target.half_open()
    target.call(GOOD, 2)
    target.breaker.reconfigure(BreakerSettings(probes=2), first_byte=30.0)
    assert target.state is CLOSED


def test_who_is_told_can_be_replaced() -> None:
    target = Target()
    told: list[str] = []
    target.breaker.rewire(lambda change: told.append(f"{change.old} -> {change.new}"))
    target.call(FAILED, 10)
    target.passes(30.0)
    assert told == ["closed -> open", "open -> half_open"]
    assert target.changes == []
    assert "half_open generation 2" in repr(target.breaker)
