"""Telemetry as a whole: a real collector, a dead one, one that hangs, and none."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from otel import attributes as a
from otel.setup import Telemetry, build_telemetry
from proxy.observer import Reading
from proxy.trace_context import Sampler
from tests.otel.ended import ARRIVED_NS, TRACE_ID, a_trace, an_attempt, an_exchange
from tests.otel.sink import attributes, collector, dead_collector, hanging_collector

QUIET = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}


def telemetry_for(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> Telemetry:
    """Telemetry that exports to `url`; the exporters read the real environment."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SERVICE_NAME": "under-test", **more}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return build_telemetry(env, wall_ns=time.time_ns)


@pytest.fixture
def no_thread_stays() -> Iterator[None]:
    """Fails when an export thread outlives its test."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("no_thread_stays")
@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_a_round_trip(monkeypatch: pytest.MonkeyPatch, compression: str) -> None:
    with collector() as sink:
        telemetry = telemetry_for(monkeypatch, sink.url, OTEL_EXPORTER_OTLP_COMPRESSION=compression)
        telemetry.watch(lambda: [Reading(a.FLEET_SIZE, 10)])
        telemetry.watch(lambda: [Reading(a.HTTP_ACTIVE, 2, (("route", "chat"),))])
        telemetry.start()
        telemetry.observer.ended(an_exchange(an_attempt(1), an_attempt(2), trace=a_trace()))
        telemetry.observer.ended(an_exchange(an_attempt(), trace=a_trace(sampled=False)))
        await telemetry.shutdown(20)

        by_id = {span.span_id.hex(): span for span in sink.spans()}
        assert set(by_id) == {f"{0xA1:016x}", f"{0xA2:016x}", f"{0x51:016x}"}
        assert {span.trace_id.hex() for span in by_id.values()} == {f"{TRACE_ID:032x}"}
        server, second = by_id[f"{0x51:016x}"], by_id[f"{0xA2:016x}"]
        assert server.parent_span_id.hex() == "00f067aa0ba902b7"
        assert server.trace_state == "vendor=1"
        assert (server.start_time_unix_nano, server.end_time_unix_nano) == (
            ARRIVED_NS,
            ARRIVED_NS + 625_000_000,
        )
        assert second.parent_span_id == server.span_id
        assert attributes(second.attributes)["http.request.resend_count"] == 1
        assert sink.resource()["service.name"] == "under-test"

        metrics = sink.metrics()
        (requests,) = metrics[a.REQUESTS].sum.data_points
        assert requests.as_int == 2
        assert metrics[a.FLEET_SIZE].gauge.data_points[0].as_int == 10
        assert attributes(metrics[a.HTTP_ACTIVE].gauge.data_points[0].attributes) == {"sponson.route": "chat"}


async def test_metrics_arrive_at_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as sink:
        telemetry = telemetry_for(monkeypatch, sink.url, OTEL_METRIC_EXPORT_INTERVAL="20", OTEL_TRACES_EXPORTER="none")
        telemetry.observer.ended(an_exchange())
        telemetry.start()
        async with asyncio.timeout(20):
            while len(sink.bodies["/v1/metrics"]) < 2:
                await asyncio.sleep(0.01)
        await telemetry.shutdown(20)
        assert a.REQUESTS in sink.metrics()


@pytest.mark.usefixtures("no_thread_stays")
async def test_a_dead_collector_costs_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"OTEL_METRIC_EXPORT_INTERVAL": "20", "OTEL_BSP_SCHEDULE_DELAY": "20"}
    telemetry = telemetry_for(monkeypatch, dead_collector(), **more)
    telemetry.start()
    telemetry.observer.ended(an_exchange(an_attempt(), trace=a_trace()))
    async with asyncio.timeout(20):
        while not caplog.records:
            await asyncio.sleep(0.01)
    began = time.monotonic()
    await telemetry.shutdown(10)
    assert time.monotonic() - began < 8
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


@pytest.mark.usefixtures("no_thread_stays")
async def test_a_collector_that_hangs_cannot_hold_the_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    with hanging_collector() as url:
        telemetry = telemetry_for(monkeypatch, url, OTEL_EXPORTER_OTLP_TIMEOUT="4")
        telemetry.start()
        telemetry.observer.ended(an_exchange(an_attempt(), trace=a_trace()))
        began = time.monotonic()
        await telemetry.shutdown(0.2)
        assert time.monotonic() - began < 3
    await telemetry.shutdown(20)


async def test_without_exporters_it_still_counts() -> None:
    telemetry = build_telemetry(QUIET, wall_ns=time.time_ns)
    before = set(threading.enumerate())
    telemetry.start()
    telemetry.watch(lambda: [Reading(a.FLEET_SIZE, 10)])
    telemetry.observer.ended(an_exchange(an_attempt(), trace=a_trace()))
    content_type, body = telemetry.prometheus()
    assert content_type.startswith("text/plain")
    assert b"\nsponson_fleet_size 10.0\n" in body
    assert b"\nsponson_requests_total{" in body
    assert set(threading.enumerate()) == before
    await telemetry.shutdown(1)


def test_the_sampler_is_the_environments() -> None:
    env = {
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_TRACES_SAMPLER": "traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.5",
    }
    telemetry = build_telemetry(env, wall_ns=time.time_ns)
    assert telemetry.sampler == Sampler(ratio=0.5, follow_parent=False)
    asyncio.run(telemetry.shutdown(10))


async def test_the_console_exporters(capsys: pytest.CaptureFixture[str]) -> None:
    env = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    telemetry = build_telemetry(env, wall_ns=time.time_ns)
    telemetry.start()
    telemetry.observer.ended(an_exchange(an_attempt(), trace=a_trace()))
    await telemetry.shutdown(20)
    printed = capsys.readouterr().out
    assert '"name": "POST chat"' in printed
    assert f'"{a.REQUESTS}"' in printed


def test_a_mistake_stops_the_start() -> None:
    with pytest.raises(ValueError, match="OTEL_TRACES_EXPORTER"):
        build_telemetry({"OTEL_TRACES_EXPORTER": "jaeger"}, wall_ns=time.time_ns)
