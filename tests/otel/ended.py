"""Exchanges that have ended, as an observer meets them."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from proxy.exchange import Attempt, Exchange, Facts, PhaseLimits, Reply, Usage
from proxy.fields import fields_of
from proxy.outcome import OutcomeKind
from proxy.request import Request
from proxy.trace_context import TraceContext

T = TypeVar("T")

LIMITS = PhaseLimits(connect=5, first_byte=8, answer=60, idle=30, stream=3600)
ARRIVED_NS = 1_790_000_000_000_000_000
ARRIVED_AT = 1000.0
TRACE_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736


def an_attempt(number: int = 1, **changes: Any) -> Attempt:
    """A good call of half a second that began 100 ms after arrival; `changes` are its attributes."""
    attempt = Attempt(number=number, tier=1, provider="alpha", model="alpha-chat", limits=LIMITS)
    attempt.key_id, attempt.address, attempt.span_id = "a1", ("api.alpha.example", 443), 0xA0 + number
    attempt.started_at, attempt.head_at = ARRIVED_AT + 0.1, ARRIVED_AT + 0.3
    attempt.first_content_at, attempt.ended_at = ARRIVED_AT + 0.35, ARRIVED_AT + 0.6
    attempt.status, attempt.kind, attempt.usage = 200, OutcomeKind.OK, Usage(100, 20, 40)
    return _changed(attempt, changes)


def an_exchange(
    *attempts: Attempt, method: str = "POST", target: str = "/v1/chat/completions", **changes: Any
) -> Exchange:
    """An unsampled chat that took 625 ms and went well; `changes` are attributes of its facts."""
    facts = Facts(request_id="req-1", arrived_at=ARRIVED_AT, arrived_ns=ARRIVED_NS)
    facts.route, facts.model, facts.requested_model, facts.operation = "chat", "alpha-chat", "gpt-x", "chat"
    facts.provider, facts.tier, facts.status, facts.kind = "alpha", 1, 200, OutcomeKind.OK
    facts.first_byte_at, facts.ended_at = ARRIVED_AT + 0.35, ARRIVED_AT + 0.625
    facts.attempts = list(attempts)
    facts.usage = attempts[-1].usage if attempts else None
    facts.trace = a_trace(sampled=False)
    request = Request(method, target, fields_of(()))
    return Exchange(request, cast("Reply", None), _changed(facts, changes))


def a_trace(*, sampled: bool = True, parent: int = 0xF067AA0BA902B7, trace_id: int = TRACE_ID) -> TraceContext:
    """A trace that a caller began, unless `parent` is 0."""
    return TraceContext(
        trace_id=trace_id,
        span_id=0x51,
        parent_span_id=parent,
        sampled=sampled,
        tracestate="vendor=1" if parent else "",
        remote=bool(parent),
    )


def _changed(thing: T, changes: dict[str, Any]) -> T:
    for name, value in changes.items():
        setattr(thing, name, value)
    return thing
