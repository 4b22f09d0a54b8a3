"""The adaptive limit keeps its bounds, shrinks once a latency, grows when used, and settles at what is taken."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.decisions.adaptive import FIRST_LATENCY_SECONDS, AdaptiveLimit, AdaptiveSettings

NOW = 10_000.0
USUAL = AdaptiveSettings()
LATENCY = FIRST_LATENCY_SECONDS


def a_limit(share: int, settings: AdaptiveSettings = USUAL) -> AdaptiveLimit:
    limit = AdaptiveLimit(settings)
    limit.reconfigure(settings, share)
    return limit


def answer(limit: AdaptiveLimit, count: int, now: float, *, in_use: int | None = None) -> None:
    for _ in range(count):
        limit.succeeded(LATENCY, limit.size if in_use is None else in_use, now)


def test_it_is_the_share_until_the_provider_refuses() -> None:
    limit = a_limit(20)
    answer(limit, 100, NOW)
    assert (limit.size, limit.lowered) == (20, False)
    limit.reconfigure(USUAL, 30)
    assert limit.size == 30


def test_a_refusal_multiplies_it_down_once_per_typical_latency() -> None:
    limit = a_limit(100)
    assert limit.refused(NOW)
    assert not any(limit.refused(NOW + LATENCY * part) for part in (0.0, 0.1, 0.5, 0.99))
    assert limit.size == 80
    assert limit.refused(NOW + LATENCY)
    assert limit.size == 64


def test_a_latency_is_the_median_of_the_latest_answers() -> None:
    limit = a_limit(100)
    for seconds in (300.0, 4.0, 4.0, 4.0, 600.0, 4.0, 4.0):
        limit.succeeded(seconds, 1, NOW)
    assert limit.typical_seconds == 4.0
    assert limit.refused(NOW)
    assert not limit.refused(NOW + 3.9)
    assert limit.refused(NOW + 4.0)


@given(st.integers(1, 10), st.floats(0.01, 1.0))
def test_a_small_limit_loses_one_place_at_least_and_never_its_minimum(share: int, decrease: float) -> None:
    limit = a_limit(share, AdaptiveSettings(decrease=decrease))
    seen = [limit.size]
    for number in range(12):
        limit.refused(NOW + number * LATENCY)
        seen.append(limit.size)
    assert all(after <= max(before - 1, 1) for before, after in pairwise(seen))
    assert min(seen) == seen[-1] == 1


def test_answers_add_a_place_per_size() -> None:
    limit = a_limit(100)
    limit.refused(NOW)
    answer(limit, 79, NOW + 2)
    assert limit.size == 80
    answer(limit, 1, NOW + 2)
    assert limit.size == 81


def test_answers_add_nothing_where_the_limit_was_not_really_used() -> None:
    limit = a_limit(100)
    limit.refused(NOW)
    answer(limit, 1000, NOW + 2, in_use=63)
    assert limit.size == 80
    answer(limit, 80, NOW + 2, in_use=64)
    assert limit.size == 81


def test_calls_that_began_before_a_refusal_add_nothing() -> None:
    limit = a_limit(10)
    limit.refused(NOW)
    answer(limit, 100, NOW + LATENCY / 2)
    assert limit.size == 8


def test_the_step_onto_the_size_that_was_refused_waits_twice_as_long_each_time() -> None:
    limit, now, waits = a_limit(10), NOW, []
    limit.reconfigure(AdaptiveSettings(decrease=0.9), 10)
    for _ in range(7):
        limit.refused(now)
        now += 2 * LATENCY
        count = 0
        while limit.size < 10:
            answer(limit, 1, now)
            count += 1
        waits.append(count)
    assert waits == [9, 16, 32, 64, 128, 128, 128]


def test_a_step_that_is_not_refused_again_ends_the_waiting() -> None:
    limit = a_limit(20)
    limit.refused(NOW)
    limit.refused(NOW + LATENCY)
    assert limit.size == 12
    answer(limit, sum(range(12, 20)), NOW + 3 * LATENCY)
    assert limit.size == 20


def test_after_an_outage_it_grows_back_without_waiting() -> None:
    limit = a_limit(10)
    for second in range(60):
        limit.refused(NOW + second)
    assert limit.size == 1
    answer(limit, sum(range(1, 10)), NOW + 100)
    assert limit.size == 10


def test_a_reload_keeps_the_position() -> None:
    limit = a_limit(100)
    limit.refused(NOW)
    for _ in range(1000):
        limit.reconfigure(USUAL, 100)
    assert limit.size == 80
    limit.reconfigure(USUAL, 10)
    assert limit.size == 10
    answer(limit, 1000, NOW + 2)
    limit.reconfigure(USUAL, 100)
    assert limit.size == 80
    limit.reconfigure(AdaptiveSettings(min=90), 100)
    assert limit.size == 90
    limit.reconfigure(USUAL, 0)
    assert limit.size == 0


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("refused"), st.floats(0.0, 3.0)),
        st.tuples(st.just("answered"), st.floats(0.0, 3.0)),
        st.tuples(st.just("share"), st.integers(0, 30)),
    ),
    max_size=300,
)


@given(EVENTS, st.integers(1, 5), st.floats(0.1, 1.0))
def test_it_lies_between_its_minimum_and_the_share_and_tells_each_change(
    events: list[tuple[str, float]], least: int, decrease: float
) -> None:
    chosen = AdaptiveSettings(decrease=decrease, min=least)
    limit, share, now = a_limit(20, chosen), 20, NOW
    for kind, value in events:
        before, changed = limit.size, True
        if kind == "share":
            share = int(value)
            limit.reconfigure(chosen, share)
        else:
            now += value
            changed = limit.refused(now) if kind == "refused" else limit.succeeded(value, before, now)
            assert changed == (limit.size != before)
            assert limit.size <= before + 1
        assert min(least, share) <= limit.size <= share


class Model:
    """A provider that takes so many calls at once, and callers who always have more; virtual time.

    Whoever is refused comes again after a second.
    """

    def __init__(self, limit: AdaptiveLimit, *, callers: int, seed: int) -> None:
        self.limit = limit
        self.refused_at: list[int] = []
        self.sizes: list[tuple[int, int]] = []
        self._idle = callers
        self._rng = random.Random(seed)
        self._running = self._accepted = self._calls = 0
        self._ends: list[tuple[float, int, str, float, int]] = []

    def run(self, takes: Callable[[int], int], calls: int) -> None:
        """Goes on until so many calls were made; `takes` is how many the provider takes at once, by their number."""
        now = 0.0
        while self._calls < calls:
            while self._running < self.limit.size and self._idle:
                self._begin(now, takes(self._calls))
            now, _, kind, seconds, in_use = heapq.heappop(self._ends)
            self._end(now, kind, seconds, in_use)
            self.sizes.append((self._calls, self.limit.size))

    def _begin(self, now: float, takes: int) -> None:
        self._calls += 1
        self._running += 1
        self._idle -= 1
        if self._accepted >= takes:
            self.refused_at.append(self._calls)
            return self._later(now + 0.005, "refused")
        self._accepted += 1
        seconds = self._rng.lognormvariate(0.0, 0.5)
        return self._later(now + seconds, "answered", seconds)

    def _later(self, when: float, kind: str, seconds: float = 0.0) -> None:
        heapq.heappush(self._ends, (when, self._calls + len(self._ends), kind, seconds, self._running))

    def _end(self, now: float, kind: str, seconds: float, in_use: int) -> None:
        if kind == "back":
            self._idle += 1
            return
        self._running -= 1
        if kind == "refused":
            self.limit.refused(now)
            self._later(now + 1.0, "back")
        else:
            self._accepted -= 1
            self._idle += 1
            self.limit.succeeded(seconds, in_use, now)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 10_000))
def test_it_settles_at_what_the_provider_takes_and_is_hardly_ever_refused(takes: int, more: int, seed: int) -> None:
    model = Model(a_limit(takes + more), callers=2 * takes + 2, seed=seed)
    model.run(lambda call: takes, 3000)
    late = [size for call, size in model.sizes if call > 1500]
    assert min(late) >= 0.7 * takes
    assert max(late) <= takes + 1, "one more, for as long as a refusal takes"
    assert sum(call > 1500 for call in model.refused_at) <= 0.02 * 1500
    assert sum(size > takes for size in late) <= 0.03 * len(late)


@pytest.mark.parametrize("seed", range(3))
def test_it_follows_a_provider_that_takes_more_again(seed: int) -> None:
    model = Model(a_limit(50), callers=60, seed=seed)
    model.run(lambda call: 3 if call < 2500 else 20, 6000)
    assert max(size for call, size in model.sizes if 2000 < call <= 2500) <= 4
    assert min(size for call, size in model.sizes if call > 4500) >= 14
