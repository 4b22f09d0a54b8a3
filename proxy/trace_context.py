"""W3C trace context and the sampling decision, taken before any span object exists.

Pure: randomness comes in as an argument. Sources: W3C Trace Context (level 1) and OpenTelemetry's
`TraceIdRatioBased` and `ParentBased` samplers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_TRACEPARENT: Final = re.compile(r"\s*([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\s*\Z")
_RATIO_BITS: Final = 0xFFFFFFFFFFFFFFFF
_RATIO_ALL: Final = float(1 << 64)


class TraceContext:
    """Where a request stands in its trace: the ids of our server span and of the caller's span."""

    __slots__ = ("parent_span_id", "remote", "sampled", "span_id", "trace_id", "tracestate")

    def __init__(
        self,
        *,
        trace_id: int,
        span_id: int,
        parent_span_id: int,
        sampled: bool,
        tracestate: str,
        remote: bool,
    ) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent_span_id = parent_span_id
        self.sampled = sampled
        self.tracestate = tracestate
        self.remote = remote


def link_to(trace: TraceContext | None) -> tuple[int, int] | None:
    """Returns what leads to a request's span from another one: trace id and span id; None where it is not known."""
    return (trace.trace_id, trace.span_id) if trace is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Which requests are traced: a ratio of new traces, and whether a caller's own decision is followed."""

    ratio: float = 1.0
    follow_parent: bool = True

    def decide(self, trace_id: int, *, parent_sampled: bool | None) -> bool:
        """Returns True when the trace is recorded; `parent_sampled` is None for a new trace."""
        if parent_sampled is not None and self.follow_parent:
            return parent_sampled
        return (trace_id & _RATIO_BITS) < self.ratio * _RATIO_ALL


def parse_traceparent(value: str) -> tuple[int, int, bool] | None:
    """Returns (trace id, span id, sampled), or None when the header is not one."""
    match = _TRACEPARENT.match(value)
    if match is None:
        return None
    version, trace, span, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    return trace_id, span_id, bool(int(flags, 16) & 1)


def new_trace(sampler: Sampler, bits: Callable[[int], int]) -> TraceContext:
    """Begins a trace; `bits(n)` gives n random bits."""
    trace_id = bits(128) or 1
    return TraceContext(
        trace_id=trace_id,
        span_id=bits(64) or 1,
        parent_span_id=0,
        sampled=sampler.decide(trace_id, parent_sampled=None),
        tracestate="",
        remote=False,
    )


def join_trace(
    traceparent: str | None, tracestate: str, *, sampler: Sampler, bits: Callable[[int], int]
) -> TraceContext:
    """Continues the caller's trace, or begins one; `bits(n)` gives n random bits.

    `tracestate` holds all of the caller's fields of that name, joined with commas.
    """
    parent = parse_traceparent(traceparent) if traceparent is not None else None
    if parent is None:
        return new_trace(sampler, bits)
    trace_id, span_id, sampled = parent
    return TraceContext(
        trace_id=trace_id,
        span_id=bits(64) or 1,
        parent_span_id=span_id,
        sampled=sampler.decide(trace_id, parent_sampled=sampled),
        tracestate=tracestate,
        remote=True,
    )


def traceparent_of(trace_id: int, span_id: int, *, sampled: bool) -> str:
    """Formats the header that an attempt carries."""
    return f"00-{trace_id:032x}-{span_id:016x}-{'01' if sampled else '00'}"
