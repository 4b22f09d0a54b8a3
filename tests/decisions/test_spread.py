"""Spread: every equal is asked once, the one with most left first; ties take turns, by weight where it is given."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.spread import Spread, soonest
from proxy.outcome import Outcome, OutcomeKind, Reason, refused

PARTS = st.lists(st.one_of(st.just(0.0), st.floats(0.0, 1.0)), min_size=1, max_size=6)
WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def firsts(spread: Spread, parts: list[float], calls: int) -> list[int]:
    return [spread.order(parts)[0] for _ in range(calls)]


@given(st.lists(PARTS, min_size=1, max_size=20), st.booleans())
def test_every_equal_stands_in_the_order_once_and_who_cannot_go_stands_last(
    calls: list[list[float]], by_weight: bool
) -> None:
    spread = Spread([1.0] * 6, by_weight=by_weight)
    for parts in calls:
        padded = [*parts, *[0.0] * (6 - len(parts))]
        order = spread.order(padded)
        assert sorted(order) == list(range(6))
        able = [padded[index] > 0 for index in order]
        assert able == sorted(able, reverse=True)


@given(st.lists(PARTS, min_size=1, max_size=20))
def test_by_what_is_left_the_largest_part_goes_first_and_the_others_follow_by_theirs(calls: list[list[float]]) -> None:
    spread = Spread([1.0] * 6)
    for parts in calls:
        padded = [*parts, *[0.0] * (6 - len(parts))]
        standing = [padded[index] for index in spread.order(padded)]
        assert standing == sorted(standing, reverse=True)


@given(WEIGHTS, st.booleans(), st.integers(1, 4))
def test_of_alike_equals_each_gets_its_weight_of_the_calls_exactly(
    weights: list[int], by_weight: bool, rounds: int
) -> None:
    spread = Spread([float(weight) for weight in weights], by_weight=by_weight)
    counts = Counter(firsts(spread, [1.0] * len(weights), sum(weights) * rounds))
    assert [counts[index] for index in range(len(weights))] == [weight * rounds for weight in weights]


def test_a_heavy_equal_is_not_asked_in_a_row_more_often_than_its_weight_needs() -> None:
    assert firsts(Spread([5.0, 1.0, 1.0], by_weight=True), [1.0] * 3, 7) == [0, 0, 1, 0, 2, 0, 0]


def test_by_weight_it_does_not_matter_how_much_is_left_but_that_something_is() -> None:
    spread = Spread([1.0, 1.0], by_weight=True)
    assert firsts(spread, [0.01, 1.0], 4) == [0, 1, 0, 1]
    assert firsts(spread, [0.0, 1.0], 4) == [1, 1, 1, 1]


def test_one_that_could_not_go_for_long_gets_no_more_than_its_part_when_it_returns() -> None:
    spread = Spread([1.0, 1.0])
    firsts(spread, [0.0, 1.0], 100)
    counts = Counter(firsts(spread, [1.0, 1.0], 10))
    assert counts == {0: 5, 1: 5}


def test_equals_of_different_size_carry_load_in_proportion() -> None:
    spread = Spread([1.0, 1.0])
    used, sizes = [0, 0], [10, 100]
    for _ in range(55):
        used[spread.order([1 - taken / size for taken, size in zip(used, sizes, strict=True)])[0]] += 1
    assert used == [5, 50]


@pytest.mark.parametrize(
    ("told", "other", "seconds"),
    [(30.0, 5.0, 5.0), (5.0, 30.0, 5.0), (None, 5.0, None), (5.0, None, 5.0)],
)
def test_of_equals_that_refuse_the_first_to_return_counts(
    told: float | None, other: float | None, seconds: float | None
) -> None:
    outcome = refused(Reason.KEYS_RESTING, retry_after=told)
    soonest(outcome, refused(Reason.QUEUE_FULL, retry_after=other))
    assert outcome.retry_after == seconds


def test_what_a_provider_said_of_its_own_return_stays_its_word() -> None:
    outcome = Outcome(OutcomeKind.RATE_LIMITED, status=429, retry_after=30.0)
    soonest(outcome, refused(Reason.KEYS_RESTING, retry_after=1.0))
    assert outcome.retry_after == 30.0


def test_it_says_in_a_debugger_by_what_it_spreads() -> None:
    assert repr(Spread([1.0, 2.0], by_weight=True)) == "<Spread by weight, (1.0, 2.0)>"
    assert repr(Spread([1.0])) == "<Spread by what is left, (1.0,)>"
