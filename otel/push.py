"""The table of instruments as OTLP metrics, from a daemon thread of its own.

Cumulative temporality. An export that fails is dropped: the next one carries the same counts. The event loop
only reads the gauges, when the thread asks it to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel.attributes import INTEGERS
from otel.instruments import Collected, Instruments, Kind
from otel.series import Distribution, Number
from proxy.observer import Reading


class Translation:
    """The table as the SDK's data; times are nanoseconds since the epoch."""

    def __init__(self, instruments: Instruments, *, resource: Resource, version: str, since_ns: int) -> None:
        self._instruments = instruments
        self._resource = resource
        self._scope = InstrumentationScope("sponson", version)
        self._since_ns = since_ns

    def data(self, readings: Iterable[Reading], *, now_ns: int) -> MetricsData:
        """Returns all counts as they are now."""
        metrics = [self._metric(collected, now_ns) for collected in self._instruments.collect(readings)]
        scope = ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        return MetricsData([ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")])

    def _metric(self, collected: Collected, now_ns: int) -> Metric:
        row, series = collected
        data: Sum | Gauge | Histogram
        if row.kind is Kind.HISTOGRAM:
            distributions = cast("Sequence[Distribution]", series)
            data = Histogram(
                [self._distribution(row.labels, one, now_ns) for one in distributions],
                AggregationTemporality.CUMULATIVE,
            )
        else:
            points = [
                NumberDataPoint(_attributes(row.labels, one.labels), self._since_ns, now_ns, one.value)
                for one in cast("Sequence[Number]", series)
            ]
            cumulative = AggregationTemporality.CUMULATIVE
            data = Sum(points, cumulative, is_monotonic=True) if row.kind is Kind.COUNTER else Gauge(points)
        return Metric(name=row.name, description=row.description, unit=row.unit, data=data)

    def _distribution(self, names: tuple[str, ...], one: Distribution, now_ns: int) -> HistogramDataPoint:
        counts = list(one.counts)
        unknown = cast("float", None)  # optional on the wire, though not in the SDK's annotation
        return HistogramDataPoint(
            attributes=_attributes(names, one.labels),
            start_time_unix_nano=self._since_ns,
            time_unix_nano=now_ns,
            count=sum(counts),
            sum=one.sum,
            bucket_counts=counts,
            explicit_bounds=one.bounds,
            min=unknown,
            max=unknown,
        )


class MetricsPush:
    """Exports at every interval, and once more when it is closed.

    `readings` gives the gauges; it is called in the thread and must bound its own wait.
    """

    def __init__(
        self,
        exporters: Sequence[MetricExporter],
        translation: Translation,
        *,
        readings: Callable[[], Iterable[Reading]],
        interval_seconds: float,
        wall_ns: Callable[[], int],
    ) -> None:
        self._exporters = tuple(exporters)
        self._translation = translation
        self._readings = readings
        self._interval_seconds = interval_seconds
        self._wall_ns = wall_ns
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sponson-metrics", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Exports for the last time and returns when that has ended; blocks, so call it in a thread."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for exporter in self._exporters:
            exporter.shutdown()

    def _run(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(self._interval_seconds)
            data = self._translation.data(self._readings(), now_ns=self._wall_ns())
            for exporter in self._exporters:
                exporter.export(data)


def _attributes(names: tuple[str, ...], values: tuple[str, ...]) -> dict[str, str | int]:
    """Returns the labels that have a value; numbers where the convention says number."""
    pairs = zip(names, values, strict=True)
    return {name: int(v) if name in INTEGERS and v.isdecimal() else v for name, v in pairs if v}
