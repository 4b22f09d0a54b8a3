"""What a key has left: ceilings and a part, whatever order heads arrive in."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.left import FORGOTTEN_AFTER_SECONDS, TOGETHER_SECONDS, Left
from proxy.dialects.rate_limits import RateLimits

NOW = 1000.0


def rates(
    *,
    requests: tuple[int | None, int | None] = (None, None),
    tokens: tuple[int | None, int | None] = (None, None),
    reset: float | None = None,
) -> RateLimits:
    """What a head says: remaining and limit of each."""
    said = RateLimits()
    said.on_requests(requests[1], requests[0], reset)
    said.on_tokens(tokens[1], tokens[0], reset)
    return said


def test_nobody_has_said_anything() -> None:
    left = Left()
    assert (left.part(NOW), left.requests(NOW), left.tokens(NOW)) == (1.0, None, None)
    assert not left.learn(RateLimits(), NOW)
    assert left.part(NOW) == 1.0


def test_the_smallest_part_of_requests_and_tokens_counts() -> None:
    left = Left()
    assert left.learn(rates(requests=(90, 100), tokens=(250, 1000)), NOW)
    assert (left.part(NOW), left.requests(NOW), left.tokens(NOW)) == (0.25, 90.0, 250.0)


@pytest.mark.parametrize("reset", [10.0, 600.0, None])
def test_what_is_left_grows_back_evenly_until_the_reset(reset: float | None) -> None:
    left = Left()
    left.learn(rates(tokens=(200, 1000), reset=reset), NOW)
    span = FORGOTTEN_AFTER_SECONDS if reset is None else reset
    assert left.part(NOW + span / 2) == pytest.approx(0.6)
    assert left.tokens(NOW + span / 2) == pytest.approx(600.0)
    assert left.part(NOW + span) == 1.0
    assert left.tokens(NOW + span) is None


def test_a_ceiling_without_a_limit_stands_for_a_minute() -> None:
    left = Left()
    left.learn(rates(requests=(7, None)), NOW)
    assert [left.requests(NOW + after) for after in (0.0, 59.0, 60.0)] == [7.0, 7.0, None]
    assert left.part(NOW) == 1.0


def test_more_than_the_whole_does_not_shrink() -> None:
    left = Left()
    left.learn(rates(requests=(12, 10)), NOW)
    assert [left.requests(NOW + after) for after in (0.0, 30.0)] == [12.0, 12.0]
    assert left.part(NOW) == 1.0


def test_instances_share_what_is_left_and_see_the_same_part() -> None:
    left = Left()
    left.learn(rates(requests=(10, 100), tokens=(1000, 2000), reset=10.0), NOW, instances=4)
    assert (left.part(NOW), left.requests(NOW), left.tokens(NOW)) == (0.1, 2.5, 250.0)
    assert left.tokens(NOW + 5.0) == pytest.approx(375.0)


def test_a_later_calls_word_replaces_an_earlier_one() -> None:
    left = Left()
    left.learn(rates(requests=(3, 100)), NOW, sent_at=NOW)
    assert left.learn(rates(requests=(95, 100)), NOW + 2.0, sent_at=NOW + 1.5)
    assert (left.requests(NOW + 2.0), left.part(NOW + 2.0)) == (95.0, 0.95)


@pytest.mark.parametrize("old", [2, 90])
def test_the_head_of_a_call_that_went_out_earlier_changes_nothing(old: int) -> None:
    """A slow answer brings what was so when its call came in: neither a raise nor a fall is still true."""
    left = Left()
    left.learn(rates(requests=(50, 100)), NOW + 21.0, sent_at=NOW + 20.0)
    assert not left.learn(rates(requests=(old, 100)), NOW + 22.0, sent_at=NOW)
    assert left.requests(NOW + 21.0) == 50.0


@given(st.permutations(range(20)), st.lists(st.floats(0.0, TOGETHER_SECONDS), min_size=20, max_size=20))
def test_of_calls_that_went_out_together_the_lowest_word_counts(order: list[int], dates: list[float]) -> None:
    """Calls may come in at the provider in another order than they went out, and their heads in a third one."""
    left = Left()
    for remaining, sent in zip(order, dates, strict=True):
        left.learn(rates(requests=(remaining, 20), reset=1e9), NOW + 2.0, sent_at=NOW + sent)
    assert left.requests(NOW + 2.0) == 0.0
    assert left.part(NOW + 2.0) == 0.0


def test_a_lower_word_of_a_slightly_earlier_call_does_not_let_the_next_one_raise() -> None:
    left = Left()
    left.learn(rates(requests=(50, 100), reset=1e9), NOW + 2.0, sent_at=NOW + 0.9)
    assert left.learn(rates(requests=(10, 100), reset=1e9), NOW + 2.0, sent_at=NOW)
    assert not left.learn(rates(requests=(60, 100), reset=1e9), NOW + 2.0, sent_at=NOW + 1.8)
    assert left.requests(NOW + 2.0) == pytest.approx(10.0)


def test_a_window_that_has_begun_anew_is_seen_within_a_second() -> None:
    left = Left()
    for second in range(10):
        left.learn(rates(requests=(10 - second, 10), reset=60.0), NOW + second)
    assert left.requests(NOW + 9.0) == 1.0
    left.learn(rates(requests=(9, 10), reset=60.0), NOW + 9.5)
    assert left.requests(NOW + 9.5) == pytest.approx(1.0, abs=0.1)
    left.learn(rates(requests=(9, 10), reset=60.0), NOW + 10.1)
    assert left.requests(NOW + 10.1) == 9.0


def test_after_the_reset_the_first_word_counts_whatever_it_is() -> None:
    left = Left()
    left.learn(rates(requests=(1, 10), reset=0.25), NOW)
    assert left.learn(rates(requests=(9, 10), reset=5.0), NOW + 0.5)
    assert left.requests(NOW + 0.5) == 9.0


def test_a_head_may_speak_of_requests_or_of_tokens_only() -> None:
    left = Left()
    left.learn(rates(requests=(5, 10)), NOW)
    left.learn(rates(tokens=(800, 1000)), NOW + 2.0)
    assert left.tokens(NOW + 2.0) == 800.0
    assert left.requests(NOW + 2.0) == pytest.approx(5.0, abs=0.2)


WORDS = st.tuples(
    st.floats(0.0, 5.0),  # seconds since the head before
    st.floats(0.0, 30.0),  # how long its call took
    st.integers(0, 100),
    st.none() | st.floats(0.001, 100.0),
)


@given(st.lists(WORDS, max_size=30))
def test_a_head_never_raises_what_a_younger_one_has_lowered(
    heads: list[tuple[float, float, int, float | None]],
) -> None:
    left = Left()
    youngest = float("-inf")
    times = accumulate((gap for gap, *_ in heads), initial=NOW)
    for now, (_, took, remaining, reset) in zip(times, heads, strict=False):
        before, part_before = left.requests(now), left.part(now)
        left.learn(rates(requests=(remaining, 100), reset=reset), now, sent_at=now - took)
        after = left.requests(now)
        if before is not None and now - took <= youngest:
            assert after is not None
            assert after <= before
            assert left.part(now) <= part_before
        assert 0.0 <= left.part(now) <= 1.0
        assert after is None or 0.0 <= after <= 100.0
        youngest = max(youngest, now - took)


@given(st.integers(0, 100), st.floats(0.001, 1000.0), st.lists(st.floats(0.0, 2000.0), min_size=2).map(sorted))
def test_what_is_left_only_grows_while_nobody_says_more(remaining: int, reset: float, after: list[float]) -> None:
    left = Left()
    left.learn(rates(requests=(remaining, 100), reset=reset), NOW)
    parts = [left.part(NOW + seconds) for seconds in after]
    assert all(earlier <= later + 1e-12 for earlier, later in pairwise(parts))
    assert all(remaining / 100 <= part <= 1.0 for part in parts)


def test_a_clock_that_stands_still_is_no_time() -> None:
    left = Left()
    left.learn(rates(requests=(4, 10)), NOW)
    assert left.requests(NOW - 1.0) == 4.0


def test_it_says_what_it_holds() -> None:
    left = Left()
    left.learn(rates(requests=(4, 10), reset=5.0), NOW)
    assert repr(left) == "<Left 0.4/1 for 5 s, requests 4/10 for 5 s, tokens 0/0 for 0 s>"
