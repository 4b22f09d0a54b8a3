"""What a span tells of a request's events, and the other requests that it links to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from opentelemetry.sdk.trace import Event
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Link, SpanContext

from otel import attributes as a
from proxy.observer import ExchangeEvent, FellBack, Merged, Observed, Refused, Retried, Shared, Split, Waited

Value = str | bool | int | float

MOST_LINKS: Final = 128
"""Links of one span, as OpenTelemetry's own default has it; of more, the last ones stay."""


def span_event(event: ExchangeEvent, wall_ns: int) -> Event:
    """Returns what a span tells of an event, at nanoseconds since the epoch."""
    name, found = _told(event)
    return Event(name, {key: value for key, value in found.items() if value != ""}, wall_ns)


def links_of(events: Iterable[tuple[float, ExchangeEvent]]) -> Sequence[Link]:
    """Returns links to the requests whose call this one shares, or that shared its call.

    Whether those are sampled is not known here: a link may lead to a span that nobody has built. How many were left
    out is told with the span.
    """
    found: list[Link] = []
    for _, event in events:
        match event:
            case Shared(how=how, link=(trace_id, span_id)):
                found.append(_link(trace_id, span_id, {a.RESULT: str(how)}))
            case Merged(carries=carries, links=links):
                found.extend(_link(*link, {a.CARRIES: not carries}) for link in links)
    return BoundedList.from_seq(MOST_LINKS, found) if found else ()


def _link(trace_id: int, span_id: int, attributes: dict[str, Value]) -> Link:
    return Link(SpanContext(trace_id, span_id, False), attributes)


def _told(event: ExchangeEvent) -> tuple[str, dict[str, Value]]:
    match event:
        case Waited():
            return a.EVENT_WAITED, {
                a.PROVIDER: event.provider,
                a.SECONDS: event.seconds,
                a.LACKING: event.lacking,
            }
        case Refused():
            return a.EVENT_REFUSED, {
                a.PROVIDER: event.provider,
                a.TIER: event.tier,
                a.REASON: str(event.reason),
            }
        case Observed():
            return a.EVENT_OBSERVED, {
                a.PROVIDER: event.provider,
                a.TIER: event.tier,
                a.REASON: str(event.would),
            }
        case Retried():
            return a.EVENT_RETRIED, {
                a.PROVIDER: event.provider,
                a.TIER: event.tier,
                a.OUTCOME: str(event.after),
                a.SECONDS: event.delay,
                a.OTHER_KEY: event.other_key,
            }
        case FellBack():
            return a.EVENT_FELL_BACK, {
                a.FROM_TIER: event.from_tier,
                a.TO_TIER: event.to_tier,
                a.OUTCOME: str(event.after),
                a.REASON: str(event.reason or ""),
            }
        case _:
            return _told_of_saving(event)


def _told_of_saving(event: Shared | Merged | Split) -> tuple[str, dict[str, Value]]:
    match event:
        case Shared():
            return a.EVENT_SHARED, {a.RESULT: str(event.how)}
        case Merged():
            return a.EVENT_MERGED, {a.CALLERS: event.callers, a.INPUTS: event.inputs, a.CARRIES: event.carries}
        case Split():
            return a.EVENT_SPLIT, {a.CALLERS: event.callers, a.OUTCOME: str(event.after)}
        case _:
            assert_never(event)
