"""The observer that builds the spans of a sampled request, once it has ended.

A SERVER span, and under it one CLIENT span for each attempt on the wire, from its start to the last byte of
its answer: the span covers the whole stream, not only the head. The refresh of a kept answer serves nobody: its span
is INTERNAL, in the trace of the request that has started it. Nothing is built for a request that is not sampled.
Headers, queries and bodies never come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from otel import attributes as a
from otel.events import Value, links_of, span_event
from otel.verdicts import attempt_error, request_error
from proxy.observer import CacheUse, ProcessEvent, Shared

if TYPE_CHECKING:
    from proxy.exchange import Attempt, Exchange, Facts
    from proxy.trace_context import TraceContext

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSET: Final = Status(StatusCode.UNSET)
_ERROR: Final = Status(StatusCode.ERROR)
_NO_STATE: Final = TraceState()
_SPAN_IDS: Final = 1 << 64


class Spans:
    """Hands the spans of sampled requests to the processors."""

    __slots__ = ("_processors", "_resource", "_scope")

    def __init__(self, processors: Sequence[SpanProcessor], *, resource: Resource, version: str = "") -> None:
        self._processors = tuple(processors)
        self._resource = resource
        self._scope = InstrumentationScope("sponson", version)

    def ended(self, exchange: Exchange) -> None:
        """Builds and hands over the spans, when the request is sampled."""
        trace = exchange.facts.trace
        if trace is not None and trace.sampled:
            for span in self._build(exchange, trace):
                for processor in self._processors:
                    processor.on_end(span)

    def happened(self, event: ProcessEvent) -> None:
        """Ignores it: what concerns no request has no span."""

    def _build(self, exchange: Exchange, trace: TraceContext) -> Iterator[ReadableSpan]:
        facts, method = exchange.facts, a.method_label(exchange.request.method)
        state = TraceState.from_header([trace.tracestate]) if trace.tracestate else _NO_STATE
        server = _context(trace.trace_id, trace.span_id, state)
        for index, attempt in enumerate(facts.attempts):
            yield self._client(exchange, attempt, index=index, parent=server)
        yield self._own(exchange, trace, method=method, context=server)

    def _own(self, exchange: Exchange, trace: TraceContext, *, method: str, context: SpanContext) -> ReadableSpan:
        facts, parent = exchange.facts, None
        if trace.parent_span_id:
            parent = _context(trace.trace_id, trace.parent_span_id, context.trace_state, remote=trace.remote)
        error, origin = request_error(facts), None
        if facts.cache is CacheUse.REFRESH:
            name, kind, attributes = f"refresh {a.clean(facts.route)}", SpanKind.INTERNAL, _refresh_attributes
            # It replays nothing: this event only tells which request has started it.
            origin = next((event for _, event in facts.events if isinstance(event, Shared)), None)
        else:
            name, kind, attributes = _server_name(method, facts.route), SpanKind.SERVER, _server_attributes
        return ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes(exchange, error),
            events=[span_event(event, _wall(facts, at)) for at, event in facts.events if event is not origin],
            links=links_of(facts.events) if facts.events else (),
            kind=kind,
            status=_ERROR if error else _UNSET,
            start_time=facts.arrived_ns,
            end_time=_wall(facts, facts.ended_at),
            instrumentation_scope=self._scope,
        )

    def _client(self, exchange: Exchange, attempt: Attempt, *, index: int, parent: SpanContext) -> ReadableSpan:
        facts, method = exchange.facts, a.method_label(exchange.request.method)
        operation = a.OPERATIONS.get(facts.operation, "")
        error = attempt_error(attempt)
        # An attempt that drew no id never reached the wire: nobody else can know it by another one.
        span_id = attempt.span_id or (parent.span_id + index + 1) % _SPAN_IDS or 1
        return ReadableSpan(
            f"{operation} {a.clean(attempt.model)}" if operation else _method_name(method),
            context=_context(parent.trace_id, span_id, parent.trace_state),
            parent=parent,
            resource=self._resource,
            attributes=_client_attributes(facts, attempt, method=method, operation=operation)
            | ({a.HTTP_RESEND_COUNT: index} if index else {})
            | ({a.ERROR_TYPE: error} if error else {}),
            kind=SpanKind.CLIENT,
            status=_ERROR if error else _UNSET,
            start_time=_wall(facts, attempt.started_at or facts.arrived_at),
            end_time=_wall(facts, attempt.ended_at or facts.ended_at),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: int, span_id: int, state: TraceState, *, remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, remote, _SAMPLED, state)


def _wall(facts: Facts, at: float) -> int:
    """Returns nanoseconds since the epoch of a monotonic time."""
    return facts.arrived_ns + max(0, int((at - facts.arrived_at) * 1e9))


def _method_name(method: str) -> str:
    return "HTTP" if method == a.OTHER_METHOD else method


def _server_name(method: str, route: str) -> str:
    return f"{_method_name(method)} {a.clean(route)}" if route else _method_name(method)


def _refresh_attributes(exchange: Exchange, error: str) -> dict[str, Value]:
    facts = exchange.facts
    return {a.ROUTE: a.clean(facts.route), **_attributes(facts, error)}


def _server_attributes(exchange: Exchange, error: str) -> dict[str, Value]:
    facts, path = exchange.facts, exchange.request.path
    method = a.method_label(exchange.request.method)
    found = {a.HTTP_METHOD: method, a.URL_SCHEME: "http", **_attributes(facts, error)}
    # The absolute form of a target may carry a password in its authority.
    if path.startswith("/"):
        found[a.URL_PATH] = a.clean(path)
    if facts.route:
        found[a.HTTP_ROUTE] = a.clean(facts.route)
    if facts.status:
        found[a.HTTP_STATUS] = facts.status
    return found


def _attributes(facts: Facts, error: str) -> dict[str, Value]:
    """Returns what a span tells of every request, a caller's or our own."""
    found: dict[str, Value] = {
        a.REQUEST_ID: a.clean(facts.request_id),
        a.CLASS: facts.klass,
        a.TENANT: a.clean(facts.tenant),
        a.OUTCOME: str(facts.kind or "unknown"),
        a.ATTEMPTS: len(facts.attempts),
    }
    optional: tuple[tuple[str, Value], ...] = (
        (a.ERROR_TYPE, error),
        (a.PROVIDER, facts.provider),
        (a.TIER, facts.tier),
        (a.REASON, str(facts.reason or "")),
        (a.REQUESTED_MODEL, a.clean(facts.requested_model)),
        (a.QUEUED, facts.queued_seconds),
        (a.CACHE, str(facts.cache or "")),
    )
    found |= {name: value for name, value in optional if value}
    if facts.saved is not None:
        found |= {a.SAVED_INPUT: facts.saved.input, a.SAVED_OUTPUT: facts.saved.output}
    return found


def _client_attributes(facts: Facts, attempt: Attempt, *, method: str, operation: str) -> dict[str, Value]:
    host, port = attempt.address
    optional: list[tuple[str, Value]] = [
        (a.HTTP_STATUS, attempt.status),
        (a.SERVER_ADDRESS, a.clean(host)),
        (a.SERVER_PORT, port),
        (a.KEY_ID, attempt.key_id),
        (a.REASON, str(attempt.reason or "")),
        (a.REUSED, attempt.reused),
        (a.REDIALS, attempt.redials),
    ]
    if operation:
        optional += _genai_attributes(facts, attempt, operation)
    found: dict[str, Value] = {
        a.HTTP_METHOD: method,
        a.PROVIDER: attempt.provider,
        a.MODEL: a.clean(attempt.model),
        a.TIER: attempt.tier,
        a.ATTEMPT: attempt.number,
        a.OUTCOME: str(attempt.kind or "unknown"),
    }
    return found | {name: value for name, value in optional if value}


def _genai_attributes(facts: Facts, attempt: Attempt, operation: str) -> Iterator[tuple[str, Value]]:
    yield a.GENAI_OPERATION, operation
    yield a.GENAI_PROVIDER, a.genai_provider(attempt.provider, attempt.address[0])
    yield a.GENAI_MODEL, a.clean(attempt.model)
    yield a.GENAI_STREAM, facts.stream
    if facts.stream and attempt.first_content_at and attempt.started_at:
        yield a.GENAI_FIRST_CHUNK, attempt.first_content_at - attempt.started_at
    usage = attempt.usage
    if usage is not None and not usage.estimated:
        yield a.GENAI_INPUT, usage.input
        yield a.GENAI_OUTPUT, usage.output
        yield a.GENAI_CACHED_INPUT, usage.cached_input
