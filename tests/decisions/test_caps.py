"""Caps of one tenant: taken together or not at all, given back once, never refilled by a change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.caps import Caps, Grant
from proxy.outcome import Outcome, Reason

NOW = 1000.0


def caps(*, rps: float | None = None, concurrency: int | None = None, tpm: float | None = None) -> Caps:
    """Caps that have been there for long, so that their buckets are full."""
    made = Caps()
    made.reconfigure(rps=rps, concurrency=concurrency, tpm=tpm, now=NOW - 100)
    if made.refusal(0.0, NOW - 100) is None:
        made.take(0.0, NOW - 100).give_back(0.0, NOW - 100)
        made.hold_seconds = 0.0
    return made


def go(one: Caps, tokens: float = 0.0, now: float = NOW) -> Grant | Outcome:
    """Asks, and takes when it may."""
    return one.refusal(tokens, now) or one.take(tokens, now)


def going(one: Caps, count: int, tokens: float = 0.0, now: float = NOW) -> list[Grant]:
    """How many of so many requests at once may go."""
    return [grant for grant in (go(one, tokens, now) for _ in range(count)) if isinstance(grant, Grant)]


def refused(one: Caps, tokens: float = 0.0, now: float = NOW) -> Outcome:
    """The refusal of a request that may not go."""
    outcome = go(one, tokens, now)
    assert isinstance(outcome, Outcome)
    assert outcome.reason is Reason.TENANT_LIMIT
    return outcome


def test_without_caps_everything_goes() -> None:
    assert len(going(caps(), 1000, tokens=1e9)) == 1000


def test_a_rate_lets_one_second_of_it_go_at_once_and_tells_when_the_next_may() -> None:
    one = caps(rps=4)
    assert len(going(one, 10)) == 4
    assert refused(one).retry_after == pytest.approx(0.25)
    assert len(going(one, 10, now=NOW + 0.5)) == 2


def test_a_slow_rate_still_lets_one_request_go() -> None:
    one = caps(rps=0.05)
    assert len(going(one, 3)) == 1
    outcome = refused(one)
    assert outcome.retry_after == pytest.approx(20.0)
    assert "rps: 0.05" in outcome.detail


def test_a_new_tenant_begins_with_one_request() -> None:
    one = Caps()
    one.reconfigure(rps=10, concurrency=None, tpm=None, now=NOW)
    assert len(going(one, 10)) == 1


def test_as_many_are_in_flight_as_the_cap_says_until_their_last_byte() -> None:
    one = caps(concurrency=2)
    first, _ = going(one, 5)
    outcome = refused(one)
    assert (outcome.retry_after, "concurrency: 2" in outcome.detail) == (0.0, True)
    first.give_back(0.0, NOW + 8)
    assert len(going(one, 5, now=NOW + 8)) == 1
    # Two places, each held for eight seconds: one comes free every four.
    assert refused(one, now=NOW + 8).retry_after == pytest.approx(4.0)


def test_tokens_are_reserved_and_settled_by_what_was_used() -> None:
    one = caps(tpm=6000)
    (grant,) = going(one, 3, tokens=80)
    outcome = refused(one, tokens=80)
    assert outcome.retry_after == pytest.approx(0.6)
    assert "tpm: 6000" in outcome.detail
    grant.give_back(10.0, NOW)
    assert len(going(one, 3, tokens=80)) == 1


def test_what_was_used_beyond_the_reservation_is_owed() -> None:
    one = caps(tpm=6000)
    (grant,) = going(one, 1, tokens=50)
    grant.give_back(350.0, NOW)
    assert refused(one, tokens=50).retry_after == pytest.approx(3.0)


def test_a_request_larger_than_a_second_goes_when_nothing_is_used_and_one_larger_than_a_minute_never() -> None:
    one = caps(tpm=6000)
    assert len(going(one, 2, tokens=5000)) == 1
    outcome = refused(caps(tpm=6000), tokens=6001)
    assert outcome.retry_after is None
    assert "whole minute" in outcome.detail


@pytest.mark.parametrize("none", [{"rps": 0}, {"concurrency": 0}, {"tpm": 0}])
def test_zero_lets_nothing_go_and_names_no_time(none: dict[str, int]) -> None:
    outcome = refused(caps(**none))
    assert outcome.retry_after is None
    assert f"{next(iter(none))}: 0" in outcome.detail


def test_the_cap_that_is_longest_in_coming_is_named() -> None:
    one = caps(rps=10, concurrency=1, tpm=600)
    going(one, 1, tokens=10)
    outcome = refused(one, tokens=10)
    assert outcome.retry_after == pytest.approx(1.0)
    assert "tpm: 600" in outcome.detail


def test_who_lacks_one_cap_takes_nothing_of_the_others() -> None:
    one = caps(rps=4, concurrency=1, tpm=6000)
    (grant,) = going(one, 4, tokens=20)
    before = one.levels(NOW)
    assert len(going(one, 50, tokens=20)) == 0
    assert one.levels(NOW) == before == (3.0, 80.0)
    grant.give_back(20.0, NOW)
    assert len(going(one, 50, tokens=20)) == 1


def test_a_grant_is_given_back_once() -> None:
    one = caps(concurrency=3, tpm=6000)
    first, _ = going(one, 2, tokens=40)
    first.give_back(0.0, NOW)
    first.give_back(0.0, NOW)
    assert one.in_flight == 1
    assert one.levels(NOW)[1] == 60.0


def test_what_passes_by_is_in_flight_and_takes_nothing_of_a_rate() -> None:
    one = caps(rps=4, concurrency=1, tpm=6000)
    by = one.pass_by(NOW)
    assert (one.in_flight, one.levels(NOW)) == (1, (4.0, 100.0))
    by.give_back(500.0, NOW)
    assert (one.in_flight, one.levels(NOW)) == (0, (4.0, 100.0))


CHANGES: list[Callable[[Caps], None]] = [
    lambda one: one.reconfigure(rps=4, concurrency=2, tpm=6000, now=NOW),
    lambda one: one.reconfigure(rps=400, concurrency=2, tpm=600000, now=NOW),
    lambda one: one.reconfigure(rps=None, concurrency=None, tpm=None, now=NOW),
]


@given(st.lists(st.sampled_from(CHANGES), max_size=8))
def test_no_change_of_the_caps_refills_anything(changes: list[Callable[[Caps], None]]) -> None:
    one = caps(rps=4, concurrency=2, tpm=6000)
    (grant, _) = going(one, 2, tokens=30)
    for change in [*changes, CHANGES[0]]:
        change(one)
    requests, tokens = one.levels(NOW)
    assert requests is not None
    assert tokens is not None
    assert (one.in_flight, requests, tokens) == (2, 2.0, 40.0)
    assert isinstance(go(one, 30), Outcome)
    grant.give_back(0.0, NOW)
    assert one.levels(NOW)[1] == 70.0


def test_a_tenant_is_whole_when_nothing_is_out_and_nothing_is_owed() -> None:
    one = caps(rps=2, tpm=600)
    assert one.whole(NOW)
    (grant,) = going(one, 1, tokens=60)
    assert not one.whole(NOW)
    grant.give_back(60.0, NOW)
    assert not one.whole(NOW + 1)
    assert one.whole(NOW + 6)
    assert caps(rps=0, tpm=0).whole(NOW)
    assert caps().whole(NOW)


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.floats(0, 300), st.one_of(st.just(-1.0), st.floats(0, 400)), st.integers(0, 5)),
        max_size=40,
    )
)
def test_no_order_of_calls_gets_more_than_the_caps(steps: list[tuple[float, float, float, int]]) -> None:
    one, now, out = caps(rps=3, concurrency=4, tpm=6000), NOW, list[Grant]()
    begun = 0
    for pause, tokens, used, which in steps:
        now += pause
        grant = go(one, tokens, now)
        if isinstance(grant, Grant):
            begun += 1
            out.append(grant)
        if out and used >= 0:
            out.pop(which % len(out)).give_back(used, now)
        assert one.in_flight == len(out) <= 4
        assert begun <= 3 + 3 * (now - NOW) + 1e-6
    for grant in out:
        grant.give_back(0.0, now)
    assert one.in_flight == 0
