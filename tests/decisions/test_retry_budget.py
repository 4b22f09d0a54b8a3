"""The retry budget: 10 retries in any 10 s, else a part of all calls (rule 7)."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.retry import RetryBudget

NOW = 1000.0
SECONDS = 10.0


def granted(budget: RetryBudget, now: float, asked: int) -> int:
    return sum(budget.take(now) for _ in range(asked))


def test_a_quiet_instance_has_ten_retries_in_ten_seconds() -> None:
    budget = RetryBudget(0.2)
    budget.called(NOW)
    assert granted(budget, NOW, 50) == 10
    assert granted(budget, NOW + 5.0, 50) == 0
    assert granted(budget, NOW + 10.0, 50) == 10


def test_a_busy_instance_has_a_part_of_its_calls() -> None:
    budget = RetryBudget(0.2)
    for _ in range(1000):
        budget.called(NOW)
    assert granted(budget, NOW, 500) == 200


def test_a_changed_ratio_acts_on_what_was_counted() -> None:
    budget = RetryBudget(0.2)
    for _ in range(1000):
        budget.called(NOW)
    granted(budget, NOW, 200)
    budget.reconfigure(0.3)
    assert granted(budget, NOW, 500) == 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """After `gap` seconds: so many first calls, and so many of them that ask for a retry."""

    gap: float
    calls: int
    asked: int


BURSTS = st.lists(
    st.builds(
        Burst,
        # Steps of the window end at whole seconds: also just before, at and after them.
        gap=st.one_of(st.floats(0, 4), st.sampled_from([0.0, 0.999999, 1.0, 9.999999, 10.0])),
        calls=st.integers(0, 60),
        asked=st.integers(0, 15),
    ),
    max_size=60,
)


@given(bursts=BURSTS, ratio=st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_no_ten_seconds_have_more_retries_than_the_floor_or_the_part_of_their_calls(
    bursts: list[Burst], ratio: float
) -> None:
    budget = RetryBudget(ratio)
    now = NOW
    calls: list[float] = []
    retries: list[float] = []
    for burst in bursts:
        now += burst.gap
        for _ in range(burst.calls):
            budget.called(now)
            calls.append(now)
        for _ in range(burst.asked):
            recent = sum(now - SECONDS < at for at in retries)
            granted = budget.take(now)
            if granted:
                retries.append(now)
                assert recent + 1 <= max(10, ratio * sum(now - SECONDS <= at for at in calls))
            else:
                assert recent >= 10, "the floor was not granted"
                # The window is a second short of ten at worst.
                assert recent + 1 > ratio * sum(now - SECONDS + 1.0 < at for at in calls)
