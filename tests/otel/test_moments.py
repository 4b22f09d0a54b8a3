"""Rare events of the process as spans."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from otel.moments import Moments
from proxy.observer import BreakerChanged, KeyChanged, PolicyLoaded, PolicyRejected, ProcessEvent
from tests.fakes import make_exchange

OPENED = BreakerChanged(provider="a", model="m", old="closed", new="open", why="consecutive", open_seconds=30.0)
CLOSED = BreakerChanged(provider="a", model="m", old="half_open", new="closed", why="probes_ok")
RESTS = KeyChanged(provider="a", key_id="k", state="resting", seconds=7.0)
PARKED = KeyChanged(provider="a", key_id="k", state="parked")
LOADED = PolicyLoaded(revision=2, digest="d", seconds=0.5)
REJECTED = PolicyRejected(digest="d", problems=("p.yaml:1:1: a: one", "p.yaml:2:1: b: two \udcff"))


class Kept(SpanProcessor):
    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def spans(events: Sequence[ProcessEvent]) -> list[ReadableSpan]:
    kept = Kept()
    moments = Moments([kept], resource=Resource({}), wall_ns=lambda: 1_000)
    for event in events:
        moments.happened(event)
    return kept.spans


@pytest.mark.parametrize(
    ("event", "name", "status", "attributes"),
    [
        (
            OPENED,
            "breaker open",
            StatusCode.ERROR,
            {"sponson.provider": "a", "sponson.model": "m", "sponson.why": "consecutive", "sponson.seconds": 30.0},
        ),
        (
            CLOSED,
            "breaker closed",
            StatusCode.UNSET,
            {"sponson.provider": "a", "sponson.model": "m", "sponson.why": "probes_ok"},
        ),
        (
            RESTS,
            "key resting",
            StatusCode.UNSET,
            {"sponson.provider": "a", "sponson.key_id": "k", "sponson.seconds": 7.0},
        ),
        (PARKED, "key parked", StatusCode.ERROR, {"sponson.provider": "a", "sponson.key_id": "k"}),
        (LOADED, "policy loaded", StatusCode.UNSET, {"sponson.policy.revision": 2, "sponson.seconds": 0.5}),
    ],
)
def test_an_event_is_a_span_of_no_length(
    event: ProcessEvent, name: str, status: StatusCode, attributes: dict[str, object]
) -> None:
    (span,) = spans([event])
    assert (span.name, span.kind, span.status.status_code) == (name, SpanKind.INTERNAL, status)
    assert (span.start_time, span.end_time, span.parent) == (1_000, 1_000, None)
    assert dict(span.attributes or {}) == attributes


def test_a_rejected_policy_tells_every_problem_and_no_surrogate_spoils_the_export() -> None:
    (span,) = spans([REJECTED])
    assert (span.name, span.status.status_code) == ("policy rejected", StatusCode.ERROR)
    problems = (span.attributes or {})["sponson.policy.problems"]
    assert isinstance(problems, str)
    assert problems.encode().startswith(b"p.yaml:1:1: a: one\np.yaml:2:1: b: two ")


def test_each_event_has_a_trace_of_its_own() -> None:
    told = spans([OPENED, CLOSED, LOADED])
    assert len({span.context.trace_id for span in told if span.context is not None}) == 3


def test_requests_are_not_its_matter() -> None:
    kept = Kept()
    Moments([kept], resource=Resource({}), wall_ns=lambda: 1).ended(make_exchange())
    assert kept.spans == []
