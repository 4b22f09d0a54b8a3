"""The end of a drain that is used up: everybody is told, nobody takes what came for the whole, telemetry is flushed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration.caller import Answer
from tests.integration.drains import BEGUN, ORDERS, WITHOUT_CALL, Case, policy
from tests.integration.harness import Lab
from tests.integration.unreachable import full_listener
from tests.otel.sink import Sink, attributes, collector

BRIEF = {"backing off", "held back"}
"""Phases that last a second or two at most."""

STUCK = {phase: enter for phase, enter in {**WITHOUT_CALL, **BEGUN}.items() if phase not in BRIEF}

TOLD = (503, "shutting_down", True)
ENDS = {
    "idle": (0, None, False),
    "between requests": (0, None, False),
    "head half in": (0, None, False),
    "body half in": TOLD,
    "upload half in": TOLD,
    "queued": TOLD,
    "connecting": TOLD,
    "before the head": TOLD,
    "mid-stream": (200, None, False),
    "unread": (200, None, False),
}


def end(answer: Answer) -> tuple[int, str | None, bool]:
    """What a caller learns: the status, why the proxy says so, whether it is the whole."""
    return answer.status, answer.reason, answer.complete


@asynccontextmanager
async def everywhere(order: str, url: str) -> AsyncIterator[tuple[Lab, dict[str, Case]]]:
    """A caller in every phase at the same time, none of which ends by itself; telemetry goes to `url`."""
    env = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": url}
    flags = [*ORDERS[order], "--drain", "4s"]
    async with AsyncExitStack() as stack:
        hole = stack.enter_context(full_listener())
        lab = await stack.enter_async_context(Lab(policy(hole, connect="60s"), flags=flags, env=env))
        cases = {}
        for phase, enter in STUCK.items():
            cases[phase] = Case(lab=lab, wire=await stack.enter_async_context(lab.wire()))
            await enter(cases[phase])
        yield lab, cases


@pytest.mark.parametrize("order", ORDERS)
async def test_what_outlasts_the_drain_is_told_or_shown_a_break(order: str) -> None:
    with collector() as sink:
        async with everywhere(order, sink.url) as (lab, cases):
            lab.proxy.signal(signal.SIGTERM)
            assert await lab.proxy.exited(within=10) == 0
            cases["unread"].resume()
            answers = {phase: await case.answer() for phase, case in cases.items()}
            assert {phase: end(answer) for phase, answer in answers.items()} == ENDS
            assert b'"shutting_down"' in answers["mid-stream"].body
            assert b"[DONE]" not in answers["mid-stream"].body
            assert "Traceback" not in lab.proxy.log()
            ids = [line["request_id"] for line in lab.proxy.request_lines()]
            assert len(set(ids)) == len(ids) == calls(cases)
        check_flushed(sink, calls(cases))


@pytest.mark.parametrize("phase", sorted(BRIEF))
async def test_who_has_seen_nothing_yet_is_told_even_of_an_answer_that_has_begun(phase: str) -> None:
    with full_listener() as hole:
        async with Lab(policy(hole, base="900ms"), flags=["--drain", "0s"]) as lab, lab.wire() as wire:
            case = Case(lab=lab, wire=wire)
            await BEGUN[phase](case)
            lab.proxy.signal(signal.SIGTERM)
            assert end(await case.answer()) == TOLD
            assert await lab.proxy.exited(within=10) == 0


def calls(cases: dict[str, Case]) -> int:
    """How many requests the proxy has taken: two where one waits for another, or one went before."""
    return len([phase for phase in cases if phase in BEGUN]) + len({"queued", "between requests"} & set(cases))


def check_flushed(sink: Sink, count: int) -> None:
    """Every request has its span, and the last metrics know of no permit that is out and no call under way."""
    assert len([span for span in sink.spans() if span.kind == Span.SPAN_KIND_SERVER]) == count
    metrics = sink.metrics()
    assert set(values(metrics["sponson.permits.used"])) == {0}
    assert set(values(metrics["http.server.active_requests"])) == {0}
    ended = metrics["sponson.requests"].sum.data_points
    drained = [point.as_int for point in ended if attributes(point.attributes)["sponson.outcome"] == "drained"]
    assert sum(drained) == count - 1


def values(metric: Metric) -> list[float]:
    """The readings of a gauge, or of a sum that goes up and down."""
    points = metric.gauge.data_points or metric.sum.data_points
    return [point.as_int if point.HasField("as_int") else point.as_double for point in points]
