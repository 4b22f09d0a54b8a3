"""The pace of a target: its percentile is true within a bucket, it forgets, and no limit strangles its provider."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.decisions.breaker import Breaker, BreakerSettings
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
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict
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


class Line:
    """A target under an even load, in virtual time, whose limit follows its pace; perhaps behind a breaker.

    A call that begins at `now` would take `seconds(now)`. `cuts` has an entry for every call, in the order of ends;
    `last_loss` is when the last call was cut or refused.
    """

    def __init__(
        self,
        *,
        per_second: float,
        factor: float = 1.5,
        plus: float = 5.0,
        most: float = FIXED,
        breaker: Breaker | None = None,
    ) -> None:
        self._pause = 1 / per_second
        self._rule = {"factor": factor, "plus": plus, "most": most}
        self._breaker = breaker
        self._running: list[tuple[float, int, float, float, Ticket | None]] = []
        self.pace = Pace()
        self.now = self.last_loss = NOW
        self.cuts: list[bool] = []
        self.limits: list[float] = []

    def run(self, calls: int, seconds: Callable[[float], float]) -> Line:
        """Makes so many calls and waits for the last of them."""
        self.cuts, self.limits = [], []
        for number in range(calls):
            self.now += self._pause
            self._end_until(self.now)
            ticket = self._breaker.acquire(self.now, stream=False) if self._breaker is not None else None
            if self._breaker is not None and ticket is None:
                self.last_loss = self.now
                continue
            if ticket is not None:
                ticket.on_wire(self.now)
            limit = self.pace.limit(self.now, **self._rule)
            self.limits.append(limit)
            true = seconds(self.now)
            heapq.heappush(self._running, (self.now + min(true, limit), number, true, limit, ticket))
        self._end_until(inf)
        return self

    def _end_until(self, now: float) -> None:
        while self._running and self._running[0][0] <= now:
            at, _, true, limit, ticket = heapq.heappop(self._running)
            self.now = max(self.now, at)
            cut = true > limit
            self.cuts.append(cut)
            if cut:
                self.pace.cut(limit, at)
                self.last_loss = at
            else:
                self.pace.answered(true, at)
            if ticket is not None:
                ticket.end(Verdict.FAILURE if cut else Verdict.SUCCESS, at)


@settings(max_examples=25)
@given(
    st.sampled_from([0.2, 1.0, 10.0]),
    st.floats(1.0, 3.0),
    st.floats(0.0, 10.0),
    st.floats(0.05, 2.0),
    st.floats(2.0, 50.0),
)
def test_a_provider_that_has_become_slow_is_soon_let_finish_again(
    per_second: float, factor: float, plus: float, usual: float, times: float
) -> None:
    """Whatever factor and pace: what a limit of better days cuts is what was in flight and a part of what it knows."""
    line = Line(per_second=per_second, factor=factor, plus=plus)
    line.run(1100, lambda now: usual)
    slow = usual * times
    lost = sum(line.run(1200, lambda now: slow).cuts)
    assert lost <= 0.15 * 2 * WINDOW_CALLS + per_second * slow
    assert not any(line.run(200, lambda now: slow).cuts)


@pytest.mark.parametrize("per_second", [1.0, 10.0])
@pytest.mark.parametrize(
    ("slow", "healed_after"),
    [(5.0, 0.0), (10.0, 70.0), (25.0, 100.0), (100.0, 2 * WINDOW_SECONDS)],
)
def test_a_breaker_before_it_is_not_kept_open_by_the_limit(per_second: float, slow: float, healed_after: float) -> None:
    """The usual breaker, and a provider that takes 1 s and then `slow` for every answer."""
    breaker = Breaker(BreakerSettings(), first_byte=FIXED, jitter=lambda: 0.5)
    line = Line(per_second=per_second, breaker=breaker)
    line.run(int(600 * per_second), lambda now: 1.0)
    began = line.now
    line.run(int(900 * per_second), lambda now: slow)
    assert line.last_loss <= began + healed_after


def test_a_provider_that_creeps_upwards_is_never_cut() -> None:
    line = Line(per_second=5.0)
    line.run(1000, lambda now: 1.0)
    began = line.now
    assert not any(line.run(20_000, lambda now: 1.0 + (now - began) * 0.01).cuts)


@pytest.mark.parametrize(("factor", "plus"), [(1.0, 0.0), (1.5, 5.0)])
def test_a_long_tail_loses_no_more_than_the_percentile_says(factor: float, plus: float) -> None:
    chance = random.Random(7)
    line = Line(per_second=3.0, factor=factor, plus=plus)
    line.run(3000, lambda now: chance.lognormvariate(0.5, 1.0))
    assert sum(line.run(20_000, lambda now: chance.lognormvariate(0.5, 1.0)).cuts) < 0.05 * 20_000


def test_while_a_provider_hangs_the_limit_stays_bounded_and_comes_back_with_it() -> None:
    line = Line(per_second=2.0, most=60.0)
    line.run(1000, lambda now: 1.0)
    usual = line.limits[-1]
    line.run(2000, lambda now: 1e9)
    assert all(line.cuts)
    assert max(line.limits) <= 60.0
    line.run(2000, lambda now: 1.0)
    assert line.limits[-1] == usual


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
