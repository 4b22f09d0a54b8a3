"""Series: the bound of a family, and which bucket a value counts in."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel.series import Distribution, Family, Number


def test_series_beyond_the_bound_share_one_that_is_labelled_other() -> None:
    family = Family(1, Number, 3)
    for n in range(10):
        family.at(f"result-{n}").value += 1
    assert [(series.labels, series.value) for series in family.series] == [
        (("result-0",), 1),
        (("result-1",), 1),
        (("result-2",), 1),
        (("other",), 7),
    ]
    family.at("result-1").value += 1
    assert family.series[1].value == 2


def test_other_has_as_many_labels_as_the_rest() -> None:
    family = Family(2, partial(Distribution, (1.0,)), 1)
    family.at("a", "b").record(0.5)
    family.at("c", "d").record(0.5)
    assert [series.labels for series in family.series] == [("a", "b"), ("other", "other")]


def test_labels_can_be_encoded() -> None:
    assert Family(1, Number, 3).at("a\udcff").labels == ("a?",)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 99.0])))
def test_a_value_counts_in_the_first_bucket_that_holds_it(values: list[float]) -> None:
    distribution = Distribution((1.0, 2.0), ())
    for value in values:
        distribution.record(value)
    assert distribution.sum == pytest.approx(sum(values))
    low = sum(value <= 1.0 for value in values)
    middle = sum(1.0 < value <= 2.0 for value in values)
    assert distribution.counts == [low, middle, len(values) - low - middle]
