"""The observer that logs: one structured line a request, and one for each rare event of the process.

Owns which facts a line has and at what level it stands. A line is built only when it will be written. No
header, query or body comes here, and of a key only its id.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any, Final, assert_never

from proxy.decisions.callers import NOBODY
from proxy.observer import (
    BreakerChanged,
    CacheUse,
    KeyChanged,
    Merged,
    Observed,
    PolicyLoaded,
    PolicyRejected,
    ProcessEvent,
    Shared,
)
from proxy.outcome import BLAME, Blame, OutcomeKind

if TYPE_CHECKING:
    from proxy.exchange import Attempt, Exchange, Facts

_SUCCESSES: Final = frozenset({OutcomeKind.OK, OutcomeKind.ANSWERED})
_LOW_64: Final = (1 << 64) - 1


DIGEST_CHARACTERS = 12
PARKED_CURE = "the provider rejects it; put another secret into its file, or restart with another variable"


class RequestLog:
    """Writes to the loggers `sponson.request` and `sponson.process`.

    `log_successes` is the ratio of successes that are logged, and may be set at any time; all else always
    is. The choice follows the trace id as sampling does, so that of a traced success there is a line where
    the ratios are equal; without a trace it follows the request id.
    """

    __slots__ = ("_process", "_requests", "log_successes")

    def __init__(self, *, log_successes: float = 1.0) -> None:
        self.log_successes = log_successes
        self._requests = logging.getLogger("sponson.request")
        self._process = logging.getLogger("sponson.process")

    def ended(self, exchange: Exchange) -> None:
        """Writes the request's line, when it is due."""
        facts = exchange.facts
        if self.log_successes < 1.0 and facts.kind in _SUCCESSES and not chosen(facts, self.log_successes):
            return
        level, log = level_of(facts), self._requests
        if log.isEnabledFor(level):
            # Not `log.log`: it walks the stack for a place in the source that says nothing here.
            extra = {"fields": request_fields(exchange.request.method, facts)}
            message = "refresh" if facts.cache and facts.cache is CacheUse.REFRESH else "request"
            log.handle(log.makeRecord(log.name, level, "", 0, message, (), None, extra=extra))

    def happened(self, event: ProcessEvent) -> None:
        """Writes a line about the process."""
        level, message, fields = _told(event)
        self._process.log(level, message, extra={"fields": fields})


def chosen(facts: Facts, ratio: float) -> bool:
    """Returns True for `ratio` of all requests, always the same ones."""
    if facts.trace is not None:
        return (facts.trace.trace_id & _LOW_64) < round(ratio * (1 << 64))
    return zlib.crc32(facts.request_id.encode("utf-8", "replace")) < round(ratio * (1 << 32))


def level_of(facts: Facts) -> int:
    """Returns the level: info for callers, warning for providers and limits, error for our bugs."""
    kind = facts.kind
    if kind is None or kind is OutcomeKind.BUG:
        return logging.ERROR
    if BLAME[kind] in (Blame.NOBODY, Blame.CLIENT):
        return logging.INFO
    if kind is OutcomeKind.REFUSED and 400 <= facts.status < 500 and facts.status != 429:
        return logging.INFO
    return logging.WARNING


def request_fields(method: str, facts: Facts) -> dict[str, Any]:
    """Returns the fields of a request's line; None or "" for what there is not. Times are milliseconds."""
    last: Attempt | None = facts.attempts[-1] if facts.attempts else None
    usage, saved = facts.usage, facts.saved
    trace = facts.trace if facts.trace is not None and facts.trace.sampled else None
    return {
        "request_id": facts.request_id,
        "route": facts.route,
        "method": method,
        "class": facts.klass,
        "tenant": facts.tenant if facts.tenant != NOBODY else None,
        "status": facts.status or None,
        "outcome": facts.kind,
        "reason": facts.reason,
        "detail": facts.detail,
        "provider": facts.provider or (last.provider if last else None),
        "model": last.model if last else facts.model,
        "tier": facts.tier or None,
        "key_id": last.key_id if last else None,
        "attempts": len(facts.attempts),
        "would": _would(facts) if facts.events else None,
        "cache": facts.cache,
        "shared": _shared(facts) if facts.events else None,
        "merged": _merged(facts) if facts.events else None,
        "queued_ms": round(facts.queued_seconds * 1000, 1),
        "first_byte_ms": _milliseconds(facts, facts.first_byte_at),
        "total_ms": _milliseconds(facts, facts.ended_at),
        "input_tokens": usage.input if usage else None,
        "output_tokens": usage.output if usage else None,
        "saved_input_tokens": saved.input if saved else None,
        "saved_output_tokens": saved.output if saved else None,
        "trace_id": f"{trace.trace_id:032x}" if trace else None,
        "span_id": f"{trace.span_id:016x}" if trace else None,
    }


def _would(facts: Facts) -> list[str] | None:
    """Returns what enforcing would have done, each thing once."""
    return list(dict.fromkeys(str(e.would) for _, e in facts.events if isinstance(e, Observed))) or None


def _shared(facts: Facts) -> str | None:
    """Returns how the request got the answer of another one's call; a refresh only names the one that started it."""
    if facts.cache is CacheUse.REFRESH:
        return None
    return next((str(e.how) for _, e in facts.events if isinstance(e, Shared)), None)


def _merged(facts: Facts) -> int | None:
    """Returns how many requests travelled in one call, this one among them."""
    return next((event.callers for _, event in facts.events if isinstance(event, Merged)), None)


def _milliseconds(facts: Facts, at: float) -> float | None:
    return round((at - facts.arrived_at) * 1000, 1) if at else None


def _told(event: ProcessEvent) -> tuple[int, str, dict[str, Any]]:
    match event:
        case BreakerChanged():
            level = logging.WARNING if event.new == "open" else logging.INFO
            return (
                level,
                f"breaker {event.new}",
                {
                    "provider": event.provider,
                    "model": event.model,
                    "was": event.old,
                    "why": event.why,
                    "open_seconds": round(event.open_seconds, 1) or None,
                },
            )
        case KeyChanged():
            level = logging.INFO if event.state == "usable" else logging.WARNING
            seconds = round(event.seconds, 1) or None
            return (
                level,
                f"key {event.state}",
                {
                    "provider": event.provider,
                    "key_id": event.key_id,
                    "seconds": seconds,
                    "cure": PARKED_CURE if event.state == "parked" else None,
                },
            )
        case PolicyLoaded():
            return logging.WARNING if event.warnings else logging.INFO, "policy loaded", _loaded(event)
        case PolicyRejected():
            found = {"digest": event.digest[:DIGEST_CHARACTERS], "problems": list(event.problems)}
            return logging.ERROR, "policy rejected; the last good one stays", found
        case _:
            assert_never(event)


def _loaded(event: PolicyLoaded) -> dict[str, Any]:
    return {
        "revision": event.revision,
        "providers": event.providers,
        "routes": event.routes,
        "digest": event.digest[:DIGEST_CHARACTERS],
        "took_ms": round(event.seconds * 1000, 1),
        "warnings": list(event.warnings) or None,
    }
