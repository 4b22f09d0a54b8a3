"""Apportionment: the parts sum exactly and are never rounded up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.shares import FleetSettings, apportion, share_of

LIMITS = st.integers(0, 5000)
SIZES = st.integers(1, 60)
KEYS = st.text(max_size=12)


@given(total=LIMITS, size=SIZES, key=KEYS)
def test_the_parts_sum_exactly_and_none_is_above_its_ceiling(total: int, size: int, key: str) -> None:
    parts = apportion(total, size=size, key=key)
    assert len(parts) == size
    assert sum(parts) == total
    assert set(parts) <= {total // size, -(-total // size)}


@given(limit=LIMITS, size=SIZES, key=KEYS)
def test_instances_that_know_their_index_share_the_limit_exactly(limit: int, size: int, key: str) -> None:
    shares = [share_of(limit, FleetSettings(size=size, index=index), key=key) for index in range(size)]
    assert sum(shares) == limit


@given(limit=LIMITS, size=SIZES, key=KEYS)
def test_without_an_index_every_instance_takes_the_floor(limit: int, size: int, key: str) -> None:
    assert share_of(limit, FleetSettings(size=size), key=key) == limit // size


@given(limit=LIMITS, size=SIZES, beyond=st.integers(0, 5), key=KEYS)
def test_an_instance_that_the_policy_does_not_count_takes_the_floor(
    limit: int, size: int, beyond: int, key: str
) -> None:
    """A fleet that grew faster than its policy: nobody takes a remaining unit twice."""
    assert share_of(limit, FleetSettings(size=size, index=size + beyond), key=key) == limit // size


def test_the_reference_case() -> None:
    assert [share_of(100, FleetSettings(size=10, index=i), key="alpha") for i in range(10)] == [10] * 10


def test_few_units_for_many_instances_are_not_rounded_up() -> None:
    assert sum(apportion(10, size=30, key="alpha")) == 10
    assert share_of(10, FleetSettings(size=30), key="alpha") == 0


def test_different_limits_do_not_favour_the_same_instance() -> None:
    lucky = {apportion(1, size=10, key=f"limit-{number}").index(1) for number in range(200)}
    assert len(lucky) == 10


def test_the_division_is_the_same_on_every_instance_and_at_every_time() -> None:
    assert apportion(7, size=5, key="alpha/gpt") == apportion(7, size=5, key="alpha/gpt")
    # Pinned: an instance of an older version divides in the same way during a roll-out.
    assert apportion(3, size=5, key="alpha") == [1, 1, 0, 0, 1]


def test_a_fleet_without_instances_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        apportion(5, size=0, key="alpha")
