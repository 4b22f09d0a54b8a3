"""The table: its rows, the bound of its series, buckets, and gauges that are read."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel import attributes as a
from otel.instruments import Distribution, Instruments, Kind, Number, table
from proxy.observer import Reading


@pytest.mark.parametrize("genai", [a.GENAI_1_41, a.GENAI_LATEST])
def test_every_row_is_one_instrument(genai: a.GenAiMetrics) -> None:
    rows = table(genai)
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.description
        assert len(set(row.labels)) == len(row.labels)
        assert bool(row.buckets) == (row.kind is Kind.HISTOGRAM)
        assert list(row.buckets) == sorted(set(row.buckets))


def test_series_beyond_the_bound_share_one_that_is_labelled_other() -> None:
    instruments = Instruments(a.GENAI_1_41, max_series=3)
    family = instruments.number(a.POLICY_RELOADS)
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


def test_the_bound_holds_for_gauges_that_are_read() -> None:
    instruments = Instruments(a.GENAI_1_41, max_series=3)
    readings = [Reading(a.HTTP_ACTIVE, n, (("route", str(n)),)) for n in range(10)]
    ((_, series),) = instruments.collect(readings)
    assert len(series) == 3


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 99.0])))
def test_a_value_counts_in_the_first_bucket_that_holds_it(values: list[float]) -> None:
    distribution = Distribution((1.0, 2.0), ())
    for value in values:
        distribution.record(value)
    assert distribution.sum == pytest.approx(sum(values))
    low = sum(value <= 1.0 for value in values)
    middle = sum(1.0 < value <= 2.0 for value in values)
    assert distribution.counts == [low, middle, len(values) - low - middle]


def test_readings_become_series_in_the_order_of_the_table() -> None:
    instruments = Instruments(a.GENAI_1_41)
    readings = [
        Reading(a.PERMITS_USED, 3, (("model", "m"), ("provider", "alpha"), ("limit", "model"))),
        Reading(a.PERMITS_USED, 4, ((a.PROVIDER, "beta"), ("limit", "provider"))),
        Reading(a.FLEET_SIZE, 10),
    ]
    found = {row.name: _pairs(series) for row, series in instruments.collect(readings)}
    assert found == {
        a.PERMITS_USED: [(("alpha", "m", "", "model"), 3), (("beta", "", "", "provider"), 4)],
        a.FLEET_SIZE: [((), 10)],
    }


def test_a_reading_that_the_table_does_not_know_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    instruments = Instruments(a.GENAI_1_41)
    readings = [Reading("sponson.nonsense", 1), Reading(a.FLEET_SIZE, 1, (("colour", "red"),))]
    with caplog.at_level(logging.ERROR):
        assert list(instruments.collect(readings)) == []
        assert list(instruments.collect(readings)) == []
    assert len(caplog.records) == 2


def test_only_what_was_counted_is_collected() -> None:
    instruments = Instruments(a.GENAI_1_41)
    assert list(instruments.collect(())) == []
    instruments.histogram(a.HTTP_DURATION).at("GET", "http", "r", "200", "").record(0.004)
    ((row, series),) = instruments.collect(())
    (only,) = series
    assert isinstance(only, Distribution)
    assert only.counts[bisect_left(row.buckets, 0.004)] == 1


def _pairs(series: Sequence[Number] | Sequence[Distribution]) -> list[tuple[tuple[str, ...], float]]:
    return [(one.labels, one.value) for one in series if isinstance(one, Number)]
