"""Metrics by OTLP: what is said, and when."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource

from otel import attributes as a
from otel.metrics import Metrics
from otel.push import MetricsPush, Translation
from proxy.observer import Reading
from tests.otel.ended import an_attempt, an_exchange
from tests.otel.sink import attributes


class Kept(MetricExporter):
    """Keeps what is exported; `fails` says so of every export."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.exports: list[MetricsData] = []
        self.exported = threading.Event()
        self.closed = False
        self._result = MetricExportResult.FAILURE if fails else MetricExportResult.SUCCESS

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        self.exports.append(metrics_data)
        self.exported.set()
        return self._result

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        self.closed = True


def a_translation(metrics: Metrics) -> Translation:
    return Translation(metrics.instruments, resource=Resource({}), version="1", since_ns=1000)


def a_push(exporter: MetricExporter, *, seconds: float) -> MetricsPush:
    metrics = Metrics(a.GENAI_1_41, wall_ns=lambda: 0)
    metrics.ended(an_exchange())

    def readings() -> Iterable[Reading]:
        return (Reading(a.FLEET_SIZE, 3),)

    return MetricsPush(
        [exporter],
        a_translation(metrics),
        readings=readings,
        interval_seconds=seconds,
        wall_ns=lambda: 2000,
    )


def test_counts_on_the_wire() -> None:
    metrics = Metrics(a.GENAI_1_41, wall_ns=lambda: 0)
    for _ in range(2):
        metrics.ended(an_exchange(an_attempt()))
    data = a_translation(metrics).data([Reading(a.KEYS, 4, (("state", "usable"),))], now_ns=2000)
    (scope,) = encode_metrics(data).resource_metrics[0].scope_metrics
    found = {metric.name: metric for metric in scope.metrics}

    requests = found[a.REQUESTS]
    assert requests.unit == "{request}"
    assert requests.sum.is_monotonic
    assert requests.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = requests.sum.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (2, 1000, 2000)
    # Labels without a value are absent, not empty.
    assert attributes(point.attributes) == {
        "sponson.route": "chat",
        "sponson.class": "P1",
        "sponson.model": "alpha-chat",
        "sponson.outcome": "ok",
    }

    duration = found[a.HTTP_DURATION].histogram
    assert duration.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
    (histogram,) = duration.data_points
    assert (histogram.count, histogram.sum, sum(histogram.bucket_counts)) == (2, 1.25, 2)
    assert len(histogram.bucket_counts) == len(histogram.explicit_bounds) + 1
    assert attributes(histogram.attributes)["http.response.status_code"] == 200
    assert not histogram.HasField("min")

    (gauge,) = found[a.KEYS].gauge.data_points
    assert gauge.as_int == 4


def test_it_exports_at_every_interval_and_once_more_at_the_end() -> None:
    exporter = Kept()
    push = a_push(exporter, seconds=0.01)
    push.start()
    assert exporter.exported.wait(10)
    push.close()
    assert len(exporter.exports) >= 2
    assert exporter.closed


def test_it_exports_at_the_end_without_waiting_for_the_interval() -> None:
    exporter = Kept()
    push = a_push(exporter, seconds=3600)
    push.start()
    push.close()
    (export,) = exporter.exports
    names = {metric.name for metric in export.resource_metrics[0].scope_metrics[0].metrics}
    assert {a.REQUESTS, a.FLEET_SIZE} <= names


def test_a_failed_export_is_dropped_and_the_next_one_comes() -> None:
    exporter = Kept(fails=True)
    push = a_push(exporter, seconds=0.01)
    push.start()
    assert exporter.exported.wait(10)
    exporter.exported.clear()
    assert exporter.exported.wait(10)
    push.close()


def test_it_can_be_closed_without_having_been_started() -> None:
    exporter = Kept()
    a_push(exporter, seconds=3600).close()
    assert exporter.closed
    assert exporter.exports == []
