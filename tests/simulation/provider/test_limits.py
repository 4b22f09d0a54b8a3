"""Rate limits over time, without sockets: all of them or none, keys apart, a greedy caller gets what is granted."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider.limits import Axis, Limits, LimitSettings, Rates, Refusal

NOW = 1000.0


NONE = Rates()


def limits(*, account: Rates = NONE, key: Rates = NONE, window: float = 60.0) -> Limits:
    return Limits(LimitSettings(account=account, key=key, window=window), NOW)


def remaining(some: Limits, key: str, now: float = NOW) -> dict[Axis, int]:
    return {each.axis: each.remaining for each in some.standing(key, now)}


def refused(some: Limits, key: str, tokens: float, now: float = NOW) -> Refusal:
    refusal = some.arrive(key, tokens, now)
    assert refusal is not None
    return refusal


def test_without_limits_everything_is_let_in() -> None:
    some = limits()
    assert [some.arrive("k", 1e9, NOW) for _ in range(100)] == [None] * 100
    assert some.standing("k", NOW) == []


def test_each_key_has_its_own_limits_under_those_of_the_account() -> None:
    some = limits(key=Rates(rpm=2), account=Rates(rpm=3))
    assert [some.arrive(key, 0, NOW) for key in "aab"] == [None] * 3
    by_key, by_account = refused(some, "a", 0), refused(some, "b", 0)
    assert (by_key.per_minute, by_key.wait_seconds) == (2, 30)
    assert (by_account.per_minute, by_account.wait_seconds) == (3, 20)


def test_a_refused_call_counts_in_no_limit() -> None:
    some = limits(key=Rates(rpm=10, tpm=100))
    assert some.arrive("a", 60, NOW) is None
    refusal = refused(some, "a", 60)
    assert (refusal.axis, refusal.left, refusal.requested, refusal.wait_seconds) == (Axis.TOKENS, 40, 60, 12)
    assert remaining(some, "a") == {Axis.REQUESTS: 9, Axis.TOKENS: 40}


def test_the_tightest_limit_is_told() -> None:
    some = limits(key=Rates(tpm=100), account=Rates(tpm=150))
    assert some.arrive("a", 90, NOW) is None
    assert remaining(some, "a") == {Axis.TOKENS: 10}
    assert remaining(some, "b") == {Axis.TOKENS: 60}


def test_what_is_produced_counts_even_beyond_the_limit() -> None:
    some = limits(key=Rates(tpm=60))
    some.use("a", 90, NOW)
    assert remaining(some, "a") == {Axis.TOKENS: 0}
    assert refused(some, "a", 10).wait_seconds == 40


def test_a_call_larger_than_a_limit_never_fits() -> None:
    assert refused(limits(account=Rates(tpm=60)), "a", 61).wait_seconds == inf


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 100), st.floats(0, 5)), max_size=100),
    st.sampled_from([1.0, 10.0, 60.0]),
)
def test_the_wait_that_is_told_is_true(calls: list[tuple[str, int, float]], window: float) -> None:
    some = limits(key=Rates(rpm=60, tpm=6000), account=Rates(rpm=120, tpm=9000), window=window)
    now = NOW
    for key, tokens, later in calls:
        now += later
        refusal = some.arrive(key, tokens, now)
        if refusal is None:
            continue
        if refusal.wait_seconds > 0.01:
            assert some.arrive(key, tokens, now + refusal.wait_seconds - 0.01) is not None
        now += refusal.wait_seconds + 1e-6
        assert some.arrive(key, tokens, now) is None


@pytest.mark.parametrize("window", [1.0, 60.0])
def test_a_greedy_caller_gets_what_ten_minutes_grant(window: float) -> None:
    some, now, counted = limits(account=Rates(tpm=60_000), window=window), NOW, 0
    while now < NOW + 600:
        refusal = some.arrive("a", 70, now)
        if refusal is None:
            counted += 70
        else:
            now += refusal.wait_seconds + 1e-6
    assert 0.99 * 600_000 <= counted <= 600_000 + 1000 * window + 70
