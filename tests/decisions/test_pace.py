"""The pace of a target: its percentile is true within a bucket, it forgets, and its limit keeps to its bounds."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.pace import (
    BOUNDS,
    FEWEST_CALLS,
    LEAST_SECONDS,
    MOST_DOUBLINGS,
    WINDOW_CALLS,
    WINDOW_SECONDS,
    Pace,
    PacedLimits,
)
from proxy.exchange import Attempt
from proxy.outcome import OutcomeKind
from tests.fakes import LIMITS

NOW = 10_000.0
FIXED = LIMITS.answer
BUCKET = BOUNDS[1] / BOUNDS[0]
SECONDS = st.floats(min_value=LEAST_SECONDS, max_value=BOUNDS[-1])
SAMPLES = st.lists(SECONDS, min_size=FEWEST_CALLS, max_size=WINDOW_CALLS)


def a_pace(samples: Iterable[float], *, now: float = NOW) -> Pace:
    pace = Pace()
    for seconds in samples:
        pace.answered(seconds, now)
    return pace


def known(pace: Pace, now: float = NOW) -> float:
    p95 = pace.p95(now)
    assert p95 is not None
    return p95


@given(SAMPLES)
def test_the_percentile_is_never_too_low_and_at_most_one_bucket_too_high(samples: list[float]) -> None:
    true = sorted(samples)[-(-len(samples) * 95 // 100) - 1]
    assert true <= known(a_pace(samples)) <= true * BUCKET * (1 + 1e-9)


@given(SAMPLES, st.integers(0, 10**6), st.floats(1.0, 1000.0))
def test_a_slower_call_never_lowers_the_percentile(samples: list[float], which: int, times: float) -> None:
    slower = list(samples)
    slower[which % len(samples)] *= times
    assert known(a_pace(slower)) >= known(a_pace(samples))


@given(
    st.lists(st.tuples(st.booleans(), SECONDS), max_size=200),
    st.floats(1.0, 5.0),
    st.floats(0.0, 30.0),
    st.floats(30.0, 600.0),
)
def test_a_limit_lies_between_plus_and_the_fixed_one(
    ends: list[tuple[bool, float]], factor: float, plus: float, most: float
) -> None:
    pace = Pace()
    for cut, seconds in ends:
        (pace.cut if cut else pace.answered)(seconds, NOW)
        assert plus <= pace.limit(NOW, factor=factor, plus=plus, most=most) <= most


@given(SAMPLES, st.floats(1.0, 3.0), st.floats(0.0, 9.0))
def test_the_limit_is_the_percentile_times_the_factor_and_more(
    samples: list[float], factor: float, plus: float
) -> None:
    pace = a_pace(samples)
    assert pace.limit(NOW, factor=factor, plus=plus, most=1e9) == known(pace) * factor + plus


def test_the_fixed_limit_holds_until_enough_calls_are_known() -> None:
    pace = a_pace([0.1] * (FEWEST_CALLS - 1))
    assert pace.p95(NOW) is None
    assert pace.limit(NOW, factor=1.5, plus=5.0, most=FIXED) == FIXED
    pace.answered(0.1, NOW)
    assert pace.limit(NOW, factor=1.5, plus=5.0, most=FIXED) == pytest.approx(5.15, rel=0.01)


@given(SAMPLES, st.floats(0.0, WINDOW_SECONDS))
def test_everything_is_forgotten_after_two_windows(samples: list[float], later: float) -> None:
    pace = a_pace(samples)
    assert pace.calls(NOW + 2 * WINDOW_SECONDS + later) == 0


@given(st.integers(FEWEST_CALLS, WINDOW_CALLS), st.floats(0.0, WINDOW_SECONDS * 0.99))
def test_nothing_is_forgotten_within_a_window(count: int, later: float) -> None:
    pace = a_pace([1.0] * count)
    assert pace.calls(NOW + later) == count


@given(st.lists(SECONDS, max_size=1000), SECONDS)
def test_a_busy_target_forgets_by_calls(before: list[float], after: float) -> None:
    pace = a_pace(before)
    for _ in range(2 * WINDOW_CALLS + 1):
        pace.answered(after, NOW)
    assert known(pace) == known(a_pace([after] * FEWEST_CALLS))


@given(st.lists(st.tuples(st.booleans(), SECONDS, st.floats(0.0, 1000.0)), max_size=1500))
def test_memory_never_grows(calls: list[tuple[bool, float, float]]) -> None:
    pace, now = Pace(), NOW
    for cut, seconds, later in calls:
        now += later
        (pace.cut if cut else pace.answered)(seconds, now)
        assert pace.calls(now) <= 2 * WINDOW_CALLS
    assert len(pace._counts) == len(pace._earlier) == len(BOUNDS) + 1


def test_cuts_double_the_limit_until_an_answer_is_as_quick_as_usual() -> None:
    pace = a_pace([1.0] * 400)

    def limit() -> float:
        return pace.limit(NOW, factor=1.5, plus=5.0, most=FIXED)

    once, seen = limit(), []
    for _ in range(4):
        pace.cut(once, NOW)
        seen.append(limit() / once)
    assert seen == [2.0, 4.0, 4.0, 4.0]
    assert seen[-1] == 2.0**MOST_DOUBLINGS
    pace.answered(10.0, NOW)
    assert limit() == 4.0 * once, "it needed the longer limit, so the next one may need it too"
    pace.answered(1.0, NOW)
    assert limit() == once


@given(SECONDS)
def test_a_cut_call_counts_as_longer_than_its_limit(limit: float) -> None:
    pace = Pace()
    for _ in range(FEWEST_CALLS):
        pace.cut(limit, NOW)
    assert known(pace) > limit or known(pace) == BOUNDS[-1]


def test_quick_failures_teach_nothing() -> None:
    pace = a_pace([2.0] * 100)
    paced = PacedLimits(LIMITS, pace, factor=1.5, plus=5.0)
    before = paced.limits(NOW)
    for _ in range(400):
        attempt = an_attempt(paced, head_after=0.001, status=503)
        paced.learn(attempt, NOW)
        attempt = an_attempt(paced, kind=OutcomeKind.DISCONNECTED)
        paced.learn(attempt, NOW)
    assert paced.limits(NOW) is before


def test_an_attempt_teaches_by_its_head_and_by_its_cut() -> None:
    pace = Pace()
    paced = PacedLimits(LIMITS, pace, factor=1.5, plus=5.0)
    assert paced.limits(NOW) is LIMITS
    for _ in range(FEWEST_CALLS):
        paced.learn(an_attempt(paced, head_after=2.0, status=200), NOW)
    p95 = known(pace)
    assert 2.0 <= p95 <= 2.0 * BUCKET
    limits = paced.limits(NOW)
    assert limits.answer == p95 * 1.5 + 5.0
    assert (limits.connect, limits.first_byte, limits.idle, limits.stream) == (5.0, 30.0, 30.0, 3600.0)
    paced.learn(an_attempt(paced, kind=OutcomeKind.ANSWER_TIMEOUT), NOW)
    assert paced.limits(NOW).answer == 2 * limits.answer


def test_limits_are_built_only_when_they_change() -> None:
    paced = PacedLimits(LIMITS, a_pace([1.0] * 100), factor=1.5, plus=5.0)
    assert paced.limits(NOW) is paced.limits(NOW)


def an_attempt(
    paced: PacedLimits, *, head_after: float = 0.0, status: int = 0, kind: OutcomeKind = OutcomeKind.OK
) -> Attempt:
    attempt = Attempt(number=1, tier=1, provider="alpha", model="m1", limits=paced.limits(NOW))
    attempt.connected_at, attempt.kind, attempt.status = NOW, kind, status
    if head_after:
        attempt.head_at = NOW + head_after
    return attempt
