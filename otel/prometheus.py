"""The table of instruments as text for `/metrics`.

Names are translated as OpenTelemetry's exporters do: dots become underscores, the unit goes to the end of the
name, counters end in `_total`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from otel.instruments import Collected, Instrument, Instruments, Kind
from otel.series import Distribution, Number
from proxy.observer import Reading

_UNITS: Final = {"s": "_seconds", "By": "_bytes"}


class Exposition(Collector):
    """Renders the table; `readings` is asked for the gauges each time."""

    def __init__(self, instruments: Instruments, readings: Callable[[], Iterable[Reading]]) -> None:
        self._instruments = instruments
        self._readings = readings
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Names nothing beforehand: the registry need not look for doubles in a table that has none."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yields every instrument that has series."""
        for collected in self._instruments.collect(self._readings()):
            yield _family(collected)

    def render(self) -> tuple[str, bytes]:
        """Returns content type and body, in the text format 0.0.4."""
        return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(self._registry)


def _family(collected: Collected) -> Metric:
    row, series = collected
    name, labels = prometheus_name(row), [label.replace(".", "_") for label in row.labels]
    if row.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, row.description, labels=labels)
        for distribution in cast("Sequence[Distribution]", series):
            counts = accumulate(distribution.counts)
            bounds = [*map(str, distribution.bounds), "+Inf"]
            histogram.add_metric(distribution.labels, list(zip(bounds, counts, strict=True)), distribution.sum)
        return histogram
    kind = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(name, row.description, labels=labels)
    for number in cast("Sequence[Number]", series):
        family.add_metric(number.labels, number.value)
    return family


def prometheus_name(row: Instrument) -> str:
    """Returns the name under which Prometheus knows an instrument, without the `_total` of counters."""
    return row.name.replace(".", "_") + _UNITS.get(row.unit, "")
