"""Apportioning: parts add up to the whole, and follow the weights."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.apportioning import apportioned, shared_out, shares
from proxy.exchange import Usage

WEIGHTS = st.lists(st.integers(0, 10_000), min_size=1, max_size=40)


@given(st.integers(0, 10**9), WEIGHTS)
def test_parts_add_up_and_are_off_by_less_than_one(whole: int, weights: list[int]) -> None:
    parts = shares(whole, weights)
    assert sum(parts) == whole
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        exact = whole * weight / total if total else whole / len(weights)
        assert abs(part - exact) < 1 + 1e-6


def test_the_largest_remainders_get_what_is_over() -> None:
    assert shares(10, [1, 1, 1]) == [4, 3, 3]
    assert shares(7, [10, 29, 1]) == [2, 5, 0]
    assert shares(5, [0, 0]) == [3, 2]


def test_a_total_stays_the_sum_of_its_fellows() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    parts = apportioned(usage, given=[1, 1, 1], made=[3, 1, 1])
    assert [part["completion_tokens"] for part in parts] == [3, 1, 1]
    assert [part["prompt_tokens"] for part in parts] == [4, 3, 3]
    assert [part["total_tokens"] for part in parts] == [7, 4, 4]


def test_a_total_that_is_no_sum_is_shared_out_by_itself() -> None:
    parts = apportioned({"prompt_tokens": 4, "total_tokens": 9}, given=[1, 2], made=[0, 0])
    assert [part["total_tokens"] for part in parts] == [3, 6]


@given(st.integers(0, 10**6), st.integers(0, 10**6), WEIGHTS)
def test_every_number_in_it_adds_up(given_: int, made: int, weights: list[int]) -> None:
    usage = {
        "prompt_tokens": given_,
        "completion_tokens": made,
        "total_tokens": given_ + made,
        "prompt_tokens_details": {"cached_tokens": given_ // 2},
        "completion_tokens_details": {"reasoning_tokens": made // 3},
    }
    parts = apportioned(usage, given=weights, made=weights[::-1])
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert sum(part[name] for part in parts) == usage[name]
    assert sum(part["prompt_tokens_details"]["cached_tokens"] for part in parts) == given_ // 2
    assert sum(part["completion_tokens_details"]["reasoning_tokens"] for part in parts) == made // 3


def test_what_is_no_count_is_the_same_in_every_part() -> None:
    usage = {"unit": "tokens", "nothing": None, "flag": True, "debt": -3, "cost": 3.0}
    first, second = apportioned(usage, given=[1, 2], made=[1, 1])
    assert first == {"unit": "tokens", "nothing": None, "flag": True, "debt": -3, "cost": 1.0}
    assert second["cost"] == 2.0
    assert apportioned(None, given=[1, 2], made=[1, 1]) == [None, None]


def test_an_odd_total_is_left_as_it_is() -> None:
    parts = apportioned({"prompt_tokens": "4", "total_tokens": 4}, given=[1, 1], made=[0, 0])
    assert [part["total_tokens"] for part in parts] == [2, 2]


@given(st.integers(0, 10**6), st.integers(0, 10**6), WEIGHTS)
def test_what_was_measured_is_shared_out_alike(given_: int, made: int, weights: list[int]) -> None:
    parts = shared_out(Usage(given_, made, given_ // 2, estimated=True), given=weights, made=weights)
    assert all(part is not None and part.estimated and part.cached_input <= part.input for part in parts)
    assert sum(part.input for part in parts if part) == given_
    assert sum(part.output for part in parts if part) == made


def test_nothing_measured_is_nothing_for_each() -> None:
    assert shared_out(None, given=[1, 2], made=[0, 0]) == [None, None]
