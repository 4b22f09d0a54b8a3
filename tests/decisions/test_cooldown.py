"""How long a breaker stays open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.cooldown import LONGEST_EXTENSION_SECONDS, Cooldown

FIRST = st.floats(0.01, 100)
JITTER = st.floats(0, 1)


def steady(share: float = 0.0) -> Cooldown:
    return Cooldown(lambda: share)


def test_it_doubles_up_to_the_cap() -> None:
    cooldown = steady()
    assert [cooldown.longer(10.0, 60.0) for _ in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]


@given(first=FIRST, factor=st.floats(1, 50), shares=st.lists(JITTER, min_size=1, max_size=20))
def test_it_is_never_below_first_nor_above_cap_and_the_jitter_is_a_fifth_at_most(
    first: float, factor: float, shares: list[float]
) -> None:
    cap = first * factor
    left = iter(shares)
    cooldown = Cooldown(lambda: next(left))
    for n, _ in enumerate(shares):
        seconds = cooldown.longer(first, cap)
        assert first <= seconds <= cap or seconds == cap
        assert min(first * 2.0**n, cap) * 0.999999 <= seconds <= first * 2.0**n * 1.2000001


def test_once_more_takes_the_same_n() -> None:
    cooldown = steady()
    cooldown.longer(10.0, 100.0)
    cooldown.longer(10.0, 100.0)
    assert cooldown.same(10.0, 100.0) == 20.0
    assert cooldown.same(10.0, 100.0) == 20.0
    assert cooldown.longer(10.0, 100.0) == 40.0


def test_n_falls_by_one_for_each_healthy_period_of_twice_the_last_duration() -> None:
    cooldown = steady()
    assert [cooldown.longer(10.0, 1000.0) for _ in range(3)] == [10.0, 20.0, 40.0]
    cooldown.healthy(79.9)
    assert cooldown.longer(10.0, 1000.0) == 80.0
    cooldown.healthy(2 * 160.0)
    assert cooldown.longer(10.0, 1000.0) == 40.0


def test_long_health_begins_anew() -> None:
    cooldown = steady()
    for _ in range(4):
        cooldown.longer(10.0, 1000.0)
    cooldown.healthy(1_000_000.0)
    assert cooldown.longer(10.0, 1000.0) == 10.0


def test_an_hours_outage_is_forgotten_as_fast_as_a_minutes() -> None:
    cooldown = steady()
    for _ in range(100):
        cooldown.longer(30.0, 60.0)
    cooldown.healthy(120.0)
    assert cooldown.longer(30.0, 60.0) == 30.0


def test_health_before_the_first_opening_changes_nothing() -> None:
    cooldown = steady()
    cooldown.healthy(1e9)
    assert cooldown.longer(30.0, 60.0) == 30.0
    assert repr(cooldown) == "<Cooldown last 30.0 s, n 1>"


def test_what_was_told_makes_it_longer_and_the_time_to_forget_it_too() -> None:
    cooldown = steady()
    assert cooldown.longer(10.0, 40.0, told=5.0) == 10.0
    assert cooldown.longer(10.0, 40.0, told=100.0) == 100.0
    cooldown.healthy(199.0)
    assert cooldown.longer(10.0, 40.0) == 40.0
    assert cooldown.same(10.0, 40.0, told=1e9) == LONGEST_EXTENSION_SECONDS


def test_a_reload_that_moves_the_cap_leaves_no_n_above_it() -> None:
    cooldown = steady()
    for _ in range(6):
        cooldown.longer(1.0, 60.0)
    assert cooldown.longer(30.0, 60.0) == 60.0
    cooldown.healthy(120.0)
    assert cooldown.longer(30.0, 60.0) == 30.0
