"""Which lane a call belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.lanes import LaneSettings, group_of, lane_of

SHORT, LONG = LaneSettings(max_output=100, share=0.3), LaneSettings(max_output=1000, share=0.2)
OUTPUTS = st.lists(st.integers(1, 2000), max_size=5, unique=True).map(sorted)


@pytest.mark.parametrize(
    ("longest", "lane"), [(0, 0), (1, 0), (100, 0), (101, 1), (1000, 1), (1001, 2), (10**7, 2), (None, 2)]
)
def test_a_call_goes_in_the_narrowest_lane_that_takes_its_longest_answer(longest: int | None, lane: int) -> None:
    assert lane_of((SHORT, LONG), longest) == lane


def test_without_lanes_there_is_only_the_rest() -> None:
    assert lane_of((), 1) == 0


@given(OUTPUTS, st.integers(0, 2500))
def test_all_lanes_from_its_own_on_take_the_call_and_none_before(outputs: list[int], longest: int) -> None:
    lanes = [LaneSettings(max_output=output, share=0.1) for output in outputs]
    own = lane_of(lanes, longest)
    assert all(longest > lane.max_output for lane in lanes[:own])
    assert all(longest <= lane.max_output for lane in lanes[own:])


def test_lanes_of_two_routes_and_two_lanes_of_one_are_apart() -> None:
    groups = {group_of(route, lane) for route in ("chat", "other") for lane in (SHORT, LONG)}
    assert len(groups) == 4
    assert group_of("chat", SHORT) == "lane chat/100"
