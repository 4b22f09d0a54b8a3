"""A limit that follows its target strangles none: providers that become slow, creep, hang and come back."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.decisions.breaker import Breaker, BreakerSettings
from proxy.decisions.pace import WINDOW_CALLS, WINDOW_SECONDS, Pace
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

NOW = 10_000.0
FIXED = 600.0


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
