"""One rate: never more than it grants, and a wait that is exactly long enough."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.simulation.provider.allowance import Allowance, Refill

NOW = 1000.0
RATES = st.floats(1.0, 1e6)
WINDOWS = st.floats(1.0, 120.0)
USES = st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 1.0)), max_size=100)


def test_a_continuous_one_fills_all_the_time() -> None:
    allowance = Allowance(60, window=60, refill=Refill.CONTINUOUS, now=NOW)
    assert allowance.left(NOW) == 60
    allowance.take(60, NOW)
    assert (allowance.wait(1, NOW), allowance.wait(30, NOW), allowance.full_in(NOW)) == (1, 30, 60)
    assert allowance.left(NOW + 10) == pytest.approx(10)
    assert allowance.left(NOW + 500) == 60


def test_a_window_gives_everything_back_when_it_ends() -> None:
    allowance = Allowance(600, window=1, refill=Refill.WINDOW, now=NOW)
    allowance.take(10, NOW + 0.25)
    assert (allowance.wait(1, NOW + 0.25), allowance.full_in(NOW + 0.25)) == (0.75, 0.75)
    assert allowance.left(NOW + 0.99) == 0
    assert allowance.left(NOW + 1) == 10
    allowance.take(25, NOW + 1.5)
    assert (allowance.left(NOW + 1.9), allowance.left(NOW + 3.2)) == (-15, 10)


def test_what_is_larger_than_the_limit_never_fits() -> None:
    allowance = Allowance(60, window=60, refill=Refill.CONTINUOUS, now=NOW)
    assert (allowance.wait(60, NOW), allowance.wait(60.5, NOW)) == (0, inf)


def test_a_debt_is_waited_for() -> None:
    allowance = Allowance(60, window=60, refill=Refill.CONTINUOUS, now=NOW)
    allowance.take(90, NOW)
    assert allowance.left(NOW) == -30
    assert allowance.wait(1, NOW) == 31


@given(RATES, WINDOWS, st.sampled_from(Refill), USES)
@example(1.0, 1.8534732312571691, Refill.WINDOW, [(0.0, 1.0), (1.8534732312571691, 1.0)])
def test_after_the_wait_it_fits_and_is_never_overdrawn(
    rate: float, window: float, refill: Refill, uses: list[tuple[float, float]]
) -> None:
    allowance, now, used = Allowance(rate, window=window, refill=refill, now=NOW), NOW, 0.0
    for later, part in uses:
        now += later
        amount = part * allowance.size
        wait = allowance.wait(amount, now)
        if wait:
            assert wait <= max(window, 60 / rate) * (1 + 1e-9)
            now += wait + 1e-6
        assert allowance.wait(amount, now) == 0
        allowance.take(amount, now)
        used += amount
        elapsed = now - NOW
        windows = (elapsed + 1e-6) // window + 1 if refill is Refill.WINDOW else elapsed / window + 1
        assert used <= allowance.size * windows * (1 + 1e-6) + 1e-3
