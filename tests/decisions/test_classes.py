"""Classes: who may choose a call's priority, and in which direction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.classes import class_of

NAMES = st.sampled_from(["P0", "P1", "P2"])


@pytest.mark.parametrize(
    ("said", "route", "tenant", "may_raise", "expected"),
    [
        (None, "P1", None, False, "P1"),
        (None, "P1", "P2", False, "P2"),
        (None, "P2", "P0", False, "P0"),
        ("P2", "P1", None, False, "P2"),
        ("P0", "P1", None, False, "P1"),
        ("P0", "P1", None, True, "P0"),
        ("P1", "P2", None, False, "P2"),
        ("P1", "P2", None, True, "P1"),
        ("P2", "P1", "P0", False, "P2"),
        ("P0", "P1", "P1", True, "P1"),
        ("P0", "P0", "P2", True, "P2"),
        ("P1", "P1", "P0", True, "P1"),
    ],
)
def test_a_caller_may_lower_its_class_and_raise_it_only_where_nobody_set_one(
    said: str | None, route: str, tenant: str | None, may_raise: bool, expected: str
) -> None:
    assert class_of(said, route=route, tenant=tenant, may_raise=may_raise) == expected


@pytest.mark.parametrize("said", ["", "p0", "P3", "P00", "0", "high", "P0, P2"])
@pytest.mark.parametrize("tenant", [None, "P2"])
def test_a_word_that_is_no_class_says_nothing(said: str, tenant: str | None) -> None:
    assert class_of(said, route="P1", tenant=tenant, may_raise=True) == (tenant or "P1")


@given(said=st.none() | NAMES, route=NAMES, tenant=st.none() | NAMES)
def test_without_leave_nobody_gets_above_what_was_granted(said: str | None, route: str, tenant: str | None) -> None:
    assert class_of(said, route=route, tenant=tenant, may_raise=False) >= (tenant or route)
