"""OpenTelemetry over the wire: the caller's trace goes on, metrics arrive, a dead collector costs nothing."""

from __future__ import annotations

import asyncio
import signal
import statistics
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, in_turn, says
from tests.otel.sink import Sink, attributes, collector, dead_collector, hanging_collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}, "beta": {}},
    "routes": [route("tiers", "alpha", "beta", retry={"attempts": 2, "base": "1ms"})],
}


def exporting(url: str) -> dict[str, str]:
    """Returns the environment of a proxy that exports there."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_SERVICE_NAME": "under-test",
    }


async def spans(sink: Sink, count: int) -> list[Span]:
    """Waits for so many spans of requests."""
    async with asyncio.timeout(5):
        while len(found := of_requests(sink)) < count:
            await asyncio.sleep(0.02)
    return found


def of_requests(sink: Sink) -> list[Span]:
    return [span for span in sink.spans() if span.kind != Span.SPAN_KIND_INTERNAL]


async def test_spans_carry_the_callers_trace_and_metrics_arrive() -> None:
    with collector() as sink:
        async with Lab(POLICY, env=exporting(sink.url)) as lab:
            lab["alpha"].script, lab["beta"].script = answers(503), says("hi")
            answer = await lab.chat("tiers", headers=[("traceparent", f"00-{TRACE}-{PARENT}-01")])
            assert answer.attempts == 3
            found = await spans(sink, 4)
            check_tree(found, lab)
            assert sink.resource()["service.name"] == "under-test"
            assert (await lab.proxy.line_of(answer))["trace_id"] == TRACE
            unsampled = await lab.chat("tiers", headers=[("traceparent", f"00-{TRACE}-{PARENT}-00")])
            assert unsampled.status == 200
            async with asyncio.timeout(5):
                while not sink.bodies["/v1/metrics"] or "sponson.requests" not in sink.metrics():
                    await asyncio.sleep(0.05)
            assert {"sponson.attempts", "http.server.request.duration"} <= set(sink.metrics())
        assert len(of_requests(sink)) == 4
        loaded = [span for span in sink.spans() if span.kind == Span.SPAN_KIND_INTERNAL]
        assert [span.name for span in loaded] == ["policy loaded"]


def check_tree(found: list[Span], lab: Lab) -> None:
    """One server span under the caller's, one client span under it for each attempt, ids as the providers saw them."""
    assert {span.trace_id.hex() for span in found} == {TRACE}
    (server,) = (span for span in found if span.kind == Span.SPAN_KIND_SERVER)
    clients = sorted(
        (span for span in found if span.kind == Span.SPAN_KIND_CLIENT), key=lambda span: span.start_time_unix_nano
    )
    assert server.parent_span_id.hex() == PARENT
    assert [span.parent_span_id for span in clients] == [server.span_id] * 3
    told = [
        (request.header("traceparent") or "").split("-") for name in ("alpha", "beta") for request in lab[name].seen
    ]
    assert [span.span_id.hex() for span in clients] == [parts[2] for parts in told]
    assert {parts[1] for parts in told} == {TRACE}
    assert {parts[3] for parts in told} == {"01"}
    facts = [attributes(span.attributes) for span in clients]
    assert [fact.get("http.request.resend_count") for fact in facts] == [None, 1, 2]
    assert [fact["sponson.provider"] for fact in facts] == ["alpha", "alpha", "beta"]
    assert [fact["http.response.status_code"] for fact in facts] == [503, 503, 200]
    assert [fact["server.port"] for fact in facts] == [lab["alpha"].port] * 2 + [lab["beta"].port]
    assert facts[2]["gen_ai.usage.input_tokens"] == 5
    assert server.start_time_unix_nano <= clients[0].start_time_unix_nano
    assert clients[-1].end_time_unix_nano <= server.end_time_unix_nano


async def test_sampler_of_the_environment_decides() -> None:
    with collector() as sink:
        env = {**exporting(sink.url), "OTEL_TRACES_SAMPLER": "always_off"}
        async with Lab(POLICY, env=env) as lab:
            lab["alpha"].script = says("hi")
            assert (await lab.chat("tiers")).status == 200
            assert (lab["alpha"].only.header("traceparent") or "").endswith("-00")
        assert sink.spans() == []


async def latency(lab: Lab) -> float:
    """Returns the median time of a call in seconds."""
    lab["alpha"].script = in_turn(says("hi"))
    return statistics.median([(await lab.call("/alpha/v1/chat/completions", CHAT)).seconds for _ in range(60)])


@pytest.mark.parametrize("kind", ["dead", "hanging", "refusing"])
async def test_collector_that_does_not_answer_costs_nothing(kind: str) -> None:
    with hanging_collector() as hanging, collector(503) as refusing:
        url = {"dead": dead_collector(), "hanging": hanging, "refusing": refusing.url}[kind]
        small = {"OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "32"}
        async with Lab(POLICY, env={**exporting(url), **small}) as lab:
            # An export that a call waited for would take seconds.
            assert await latency(lab) < 1.0
            await asyncio.sleep(0.3)
            assert await latency(lab) < 1.0
            assert 120 <= await lost(lab) <= 241  # one is of the policy
            lab.proxy.signal(signal.SIGTERM)
            assert await lab.proxy.exited(within=8) == 0
            assert "Traceback" not in lab.proxy.log()


async def lost(lab: Lab) -> float:
    """Returns how many spans have been lost."""
    lines = (await lab.proxy.get("/metrics")).body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("sponson_spans_lost_total"))
