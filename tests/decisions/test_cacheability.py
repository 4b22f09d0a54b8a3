"""What is kept, for how long, and when it may be given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.cacheability import CacheSettings, Freshness, freshness, keep_seconds, worth_keeping
from proxy.exchange import Facts
from proxy.observer import CacheUse
from proxy.outcome import Outcome, OutcomeKind

SETTINGS = CacheSettings(ttl=10.0, stale_while_revalidate=20.0)


@pytest.mark.parametrize(
    ("age", "how"),
    [
        (0.0, Freshness.FRESH),
        (9.99, Freshness.FRESH),
        (10.0, Freshness.STALE),
        (29.99, Freshness.STALE),
        (30.0, Freshness.OLD),
        (1e9, Freshness.OLD),
    ],
)
def test_age_tells_how_an_answer_may_be_given(age: float, how: Freshness) -> None:
    assert freshness(age, SETTINGS) is how


@pytest.mark.parametrize(("age", "how"), [(9.99, Freshness.FRESH), (10.0, Freshness.OLD)])
def test_without_revalidation_nothing_stale_is_given(age: float, how: Freshness) -> None:
    assert freshness(age, CacheSettings(ttl=10.0)) is how


@pytest.mark.parametrize(("max_age", "seconds"), [(None, 30.0), (0.0, 30.0), (29.0, 30.0), (3600.0, 3600.0)])
def test_answers_are_kept_for_the_longest_use(max_age: float | None, seconds: float) -> None:
    assert keep_seconds(SETTINGS, max_age) == seconds


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_whatever_may_be_given_is_still_kept(ttl: float, stale: float, max_age: float, age: float) -> None:
    settings = CacheSettings(ttl=ttl, stale_while_revalidate=stale)
    if freshness(age, settings) is not Freshness.OLD or age < max_age:
        assert age < keep_seconds(settings, max_age)


def facts(*, tier: int = 1, cache: CacheUse | None = CacheUse.MISS) -> Facts:
    """What was measured of a call."""
    found = Facts(request_id="r1", arrived_at=1.0, arrived_ns=1)
    found.tier, found.cache = tier, cache
    return found


GOOD = Outcome(OutcomeKind.OK, status=200, committed=True)


@pytest.mark.parametrize("cache", [None, CacheUse.MISS, CacheUse.REFRESH])
def test_an_answer_of_the_intended_target_is_worth_keeping(cache: CacheUse | None) -> None:
    assert worth_keeping(GOOD, facts(cache=cache))


@pytest.mark.parametrize("tier", [0, 2, 3])
def test_no_other_tiers_answer_is(tier: int) -> None:
    assert not worth_keeping(GOOD, facts(tier=tier))


@pytest.mark.parametrize("cache", [CacheUse.HIT, CacheUse.STALE])
def test_a_kept_answer_gets_no_younger_by_being_given(cache: CacheUse) -> None:
    assert not worth_keeping(GOOD, facts(cache=cache))


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.OK])
def test_no_failure_is_kept(kind: OutcomeKind) -> None:
    assert not worth_keeping(Outcome(kind, status=200, committed=True), facts())


@pytest.mark.parametrize("status", [0, 201, 202, 204, 206, 301, 304, 404])
def test_no_other_status_is_kept(status: int) -> None:
    assert not worth_keeping(Outcome(OutcomeKind.OK, status=status, committed=True), facts())


def test_what_reached_nobody_is_not_kept() -> None:
    assert not worth_keeping(Outcome(OutcomeKind.OK, status=200), facts())
