"""The observer that makes rare events of the process visible as spans: breakers, keys, policies.

Each is an INTERNAL span of no length, in a trace of its own: it belongs to no request. They are not sampled, because
they are rare and each one matters; without any sampling there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, assert_never

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from otel import attributes as a
from proxy.observer import BreakerChanged, KeyChanged, PolicyLoaded, PolicyRejected, ProcessEvent

if TYPE_CHECKING:
    from proxy.exchange import Exchange

Value = str | bool | int | float

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)


class Moments:
    """Hands one span an event to the processors; `wall_ns` gives nanoseconds since the epoch."""

    __slots__ = ("_ids", "_processors", "_resource", "_scope", "_wall_ns")

    def __init__(
        self,
        processors: Sequence[SpanProcessor],
        *,
        resource: Resource,
        wall_ns: Callable[[], int],
        version: str = "",
    ) -> None:
        self._processors = tuple(processors)
        self._resource = resource
        self._scope = InstrumentationScope("sponson", version)
        self._wall_ns = wall_ns
        self._ids = RandomIdGenerator()

    def ended(self, exchange: Exchange) -> None:
        """Ignores it: requests have spans of their own."""

    def happened(self, event: ProcessEvent) -> None:
        """Builds and hands over the event's span."""
        name, failed, attributes = _told(event)
        now = self._wall_ns()
        span = ReadableSpan(
            name,
            context=SpanContext(self._ids.generate_trace_id(), self._ids.generate_span_id(), False, _SAMPLED),
            resource=self._resource,
            attributes={key: value for key, value in attributes.items() if value not in ("", 0.0)},
            kind=SpanKind.INTERNAL,
            status=_ERROR if failed else _UNSET,
            start_time=now,
            end_time=now,
            instrumentation_scope=self._scope,
        )
        for processor in self._processors:
            processor.on_end(span)


def _told(event: ProcessEvent) -> tuple[str, bool, dict[str, Value]]:
    """Returns the span's name, whether it tells of a failure, and its attributes."""
    match event:
        case BreakerChanged():
            return (
                f"breaker {event.new}",
                event.new == "open",
                {
                    a.PROVIDER: a.clean(event.provider),
                    a.MODEL: a.clean(event.model),
                    a.WHY: event.why,
                    a.SECONDS: event.open_seconds,
                },
            )
        case KeyChanged():
            told: dict[str, Value] = {a.PROVIDER: a.clean(event.provider), a.KEY_ID: a.clean(event.key_id)}
            return f"key {event.state}", event.state == "parked", {**told, a.SECONDS: event.seconds}
        case PolicyLoaded():
            return "policy loaded", False, {a.REVISION: event.revision, a.SECONDS: event.seconds}
        case PolicyRejected():
            problems = a.clean("\n".join(event.problems))
            return "policy rejected", True, {a.PROBLEMS: problems}
        case _:
            assert_never(event)
