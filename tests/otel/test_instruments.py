"""The table: its rows, what was counted, and what is read when somebody looks."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence

import pytest

from otel import attributes as a
from otel.instruments import Instruments, Kind, table
from otel.series import Distribution, Number
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


def test_the_bound_holds_for_gauges_that_are_read() -> None:
    instruments = Instruments(a.GENAI_1_41, max_series=3)
    readings = [Reading(a.HTTP_ACTIVE, n, (("route", str(n)),)) for n in range(10)]
    ((_, series),) = instruments.collect(readings)
    assert len(series) == 3


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


def test_what_somebody_else_counts_is_a_counter_as_it_is_read() -> None:
    where = ((a.PROVIDER, "alpha"), (a.SERVER_ADDRESS, "api.example"), (a.SERVER_PORT, "443"))
    reading = Reading(a.CONNECTION_DIALS, 7, (*where, ("result", "ok")))
    ((row, series),) = Instruments(a.GENAI_1_41).collect([reading])
    assert (row.kind, _pairs(series)) == (Kind.COUNTER, [(("alpha", "api.example", "443", "ok"), 7)])


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
