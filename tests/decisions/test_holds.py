"""How long permits are held: what is typical, what is the mean, and what is too old or too little to tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.holds import FEWEST_HOLDS, MOST_HOLDS, OLDEST_SECONDS, Holds
from tests.decisions.waiting_room import NOW

SECONDS = st.floats(0.001, 600.0)


def holds(*seconds: float, size: int = 1) -> Holds:
    made = Holds()
    for hold in seconds:
        made.add(hold, NOW, size=size)
    return made


def test_below_ten_holds_nothing_is_typical() -> None:
    assert holds(*[3.0] * (FEWEST_HOLDS - 1)).typical(NOW, size=1) is None
    assert holds(*[3.0] * FEWEST_HOLDS).typical(NOW, size=1) == 3.0


def test_a_few_long_streams_do_not_make_short_answers_look_long() -> None:
    mixed = holds(*[0.2] * 8, *[300.0] * 7)
    assert mixed.typical(NOW, size=1) == 0.2
    assert mixed.mean(NOW) == pytest.approx((8 * 0.2 + 7 * 300.0) / 15)


def test_a_provider_that_has_become_faster_is_believed_after_half_the_holds() -> None:
    made = holds(*[60.0] * MOST_HOLDS)
    for _ in range(MOST_HOLDS // 2):
        assert made.typical(NOW, size=1) == 60.0
        made.add(0.5, NOW, size=1)
    assert made.typical(NOW, size=1) == 0.5


def test_holds_of_ten_minutes_ago_are_forgotten() -> None:
    made = holds(*[60.0] * MOST_HOLDS)
    assert made.typical(NOW + OLDEST_SECONDS - 0.1, size=1) == 60.0
    assert not made.stale(NOW + OLDEST_SECONDS - 0.1)
    assert made.typical(NOW + OLDEST_SECONDS, size=1) is None
    assert made.mean(NOW + OLDEST_SECONDS) == 0.0
    assert made.stale(NOW + OLDEST_SECONDS)
    assert Holds().stale(NOW)


def test_holds_under_another_limit_say_nothing_of_this_one() -> None:
    made = holds(*[60.0] * MOST_HOLDS, size=2)
    assert made.typical(NOW, size=3) is None
    made.add(1.0, NOW, size=3)
    assert (made.typical(NOW, size=3), made.mean(NOW)) == (None, 1.0)
    assert repr(made) == "<Holds 1 under 3>"


@given(st.lists(SECONDS, min_size=FEWEST_HOLDS, max_size=MOST_HOLDS))
def test_half_of_what_is_typical_is_never_more_than_the_mean_whatever_the_mix(seconds: list[float]) -> None:
    made = holds(*seconds)
    typical = made.typical(NOW, size=1)
    assert typical in seconds
    assert typical / 2 <= made.mean(NOW) * (1 + 1e-9)
