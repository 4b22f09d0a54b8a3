"""The observer that counts.

Owns which facts count where. What a request adds to is looked up once for each combination of facts and kept:
the hot path is one dictionary lookup a request and one an attempt, and a few increments. Labels come from
closed sets only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, assert_never

from otel import attributes as a
from otel.instruments import Instruments
from otel.saved import SavedWork
from otel.series import Distribution, Number
from otel.verdicts import attempt_error, request_error
from proxy.observer import (
    BreakerChanged,
    CacheUse,
    FellBack,
    KeyChanged,
    Merged,
    Observed,
    PolicyLoaded,
    PolicyRejected,
    ProcessEvent,
    Refused,
    Retried,
    Shared,
    Split,
    Waited,
    Would,
)
from proxy.outcome import OutcomeKind

if TYPE_CHECKING:
    from proxy.exchange import Attempt, Exchange, Facts, Usage

ENFORCED, OBSERVED_ONLY = "enforce", "observe"
"""Values of `sponson.mode`: refused, or only by the word of `mode: observe`."""
WOULD: Final = "would_"
_KEPT: Final = 4096
"""Combinations of facts that are kept; beyond, all are looked up anew. Real traffic has some hundred."""


class _Tokens:
    """Where the tokens of a call are counted; `per_call` is absent for failed calls."""

    __slots__ = ("cached", "input", "output", "per_call", "totals")

    def __init__(
        self,
        own: tuple[Number, Number, Number],
        per_call: tuple[Distribution, Distribution] | None,
        totals: tuple[Number, Number, Number] | None,
    ) -> None:
        self.input, self.output, self.cached = own
        self.per_call = per_call
        self.totals = totals

    def add(self, usage: Usage) -> None:
        """Counts one usage; a call without tokens counts as a call of zero."""
        self.input.value += usage.input
        self.output.value += usage.output
        self.cached.value += usage.cached_input
        if self.per_call is not None:
            self.per_call[0].record(usage.input)
            self.per_call[1].record(usage.output)
        if self.totals is not None:
            self.totals[0].value += usage.input
            self.totals[1].value += usage.output
            self.totals[2].value += usage.cached_input


class _Call:
    """Where an attempt is counted."""

    __slots__ = ("count", "duration", "estimated", "first_chunk", "reported")

    def __init__(self, count: Number, duration: Distribution | None, first_chunk: Distribution | None) -> None:
        self.count = count
        self.duration = duration
        self.first_chunk = first_chunk
        self.reported: _Tokens | None = None
        self.estimated: _Tokens | None = None


class Metrics:
    """Counts what ended and what happened in `instruments`; `wall_ns` gives nanoseconds since the epoch."""

    __slots__ = ("_calls", "_genai", "_requests", "_saved", "_wall_ns", "instruments")

    def __init__(self, genai: a.GenAiMetrics, *, wall_ns: Callable[[], int]) -> None:
        self.instruments = Instruments(genai)
        self._saved = SavedWork(self.instruments)
        self._genai = genai
        self._wall_ns = wall_ns
        self._requests: dict[tuple[Any, ...], tuple[Number, Distribution]] = {}
        self._calls: dict[tuple[Any, ...], _Call] = {}

    def ended(self, exchange: Exchange) -> None:
        """Counts a request, its attempts and its events; a refresh is nobody's request, but its attempts count."""
        facts = exchange.facts
        cache = facts.cache
        if cache is not None or facts.events:
            self._saved.count(facts)
        if cache is None or cache is not CacheUse.REFRESH:
            self._count_request(exchange, facts)
        for attempt in facts.attempts:
            self._count_attempt(attempt, facts)
        if facts.events or facts.kind is OutcomeKind.REFUSED:
            self._count_events(facts)

    def _count_request(self, exchange: Exchange, facts: Facts) -> None:
        method = exchange.request.method
        key = (facts.route, facts.model, facts.kind, facts.reason, facts.klass, method, facts.status)
        series = self._requests.get(key)
        if series is None:
            series = self._new_request(key, facts, method)
        series[0].value += 1
        series[1].record(facts.ended_at - facts.arrived_at)

    def _count_attempt(self, attempt: Attempt, facts: Facts) -> None:
        key = (
            attempt.provider, attempt.model, attempt.key_id, attempt.kind, attempt.status, attempt.address,
            facts.operation,
        )  # fmt: skip
        call = self._calls.get(key)
        if call is None:
            call = self._new_call(key, attempt, facts.operation)
        call.count.value += 1
        started = attempt.started_at
        if call.duration is not None and started:
            call.duration.record((attempt.ended_at or facts.ended_at) - started)
            if facts.stream and attempt.first_content_at and call.first_chunk is not None:
                call.first_chunk.record(attempt.first_content_at - started)
        if (usage := attempt.usage) is not None:
            tokens = call.estimated if usage.estimated else call.reported
            (tokens or self._new_tokens(call, attempt, facts.operation)).add(usage)

    def _count_events(self, facts: Facts) -> None:
        number = self.instruments.number
        untold = facts.kind is OutcomeKind.REFUSED and facts.cache is not CacheUse.REFRESH
        for _, event in facts.events:
            match event:
                case Waited():
                    waits = self.instruments.histogram(a.QUEUE_WAIT)
                    waits.at(event.provider, facts.klass, event.lacking).record(event.seconds)
                case Refused():
                    untold = untold and event.reason is not facts.reason
                    number(a.REFUSALS).at(facts.route, event.provider, event.reason, ENFORCED).value += 1
                case Observed():
                    number(a.OBSERVED).at(facts.route, event.provider, event.would).value += 1
                    if event.would is not Would.WAIT:
                        reason = event.would.removeprefix(WOULD)
                        number(a.REFUSALS).at(facts.route, event.provider, reason, OBSERVED_ONLY).value += 1
                case Retried():
                    other_key = "true" if event.other_key else "false"
                    number(a.RETRIES).at(event.provider, event.after, other_key).value += 1
                case FellBack():
                    labels = str(event.from_tier), str(event.to_tier), event.after, event.reason or ""
                    number(a.FALLBACKS).at(facts.route, *labels).value += 1
                case Shared() | Merged() | Split():
                    pass  # counted as saved work
                case _:
                    assert_never(event)
        if untold:
            number(a.REFUSALS).at(facts.route, "", facts.reason or "", ENFORCED).value += 1

    def happened(self, event: ProcessEvent) -> None:
        """Counts a rare event."""
        number = self.instruments.number
        match event:
            case BreakerChanged():
                number(a.BREAKER_CHANGES).at(event.provider, event.model, event.new, event.why).value += 1
            case KeyChanged():
                number(a.KEY_CHANGES).at(event.provider, event.key_id, event.state).value += 1
            case PolicyLoaded():
                number(a.POLICY_RELOADS).at("loaded").value += 1
                number(a.POLICY_CURRENT).at().value = 1
                number(a.POLICY_REVISION).at().value = event.revision
                number(a.POLICY_LOADED).at().value = self._wall_ns() / 1e9
            case PolicyRejected():
                number(a.POLICY_RELOADS).at("rejected").value += 1
                number(a.POLICY_CURRENT).at().value = 0
            case _:
                assert_never(event)

    def _new_request(self, key: tuple[Any, ...], facts: Facts, method: str) -> tuple[Number, Distribution]:
        kind, reason, status = facts.kind or a.UNKNOWN, facts.reason or "", str(facts.status or "")
        number, histogram = self.instruments.number(a.REQUESTS), self.instruments.histogram(a.HTTP_DURATION)
        series = (
            number.at(facts.route, facts.klass, facts.model, kind, reason),
            histogram.at(a.method_label(method), "http", facts.route, status, request_error(facts)),
        )
        if len(self._requests) >= _KEPT:
            self._requests.clear()
        self._requests[key] = series
        return series

    def _new_call(self, key: tuple[Any, ...], attempt: Attempt, operation: str) -> _Call:
        kind = attempt.kind or a.UNKNOWN
        count = self.instruments.number(a.ATTEMPTS_ENDED).at(attempt.provider, attempt.model, attempt.key_id, kind)
        duration = first_chunk = None
        if labels := _labels(attempt, operation):
            duration = self.instruments.histogram(self._genai.duration).at(*labels, attempt_error(attempt))
            first_chunk = self.instruments.histogram(self._genai.first_chunk).at(*labels)
        if len(self._calls) >= _KEPT:
            self._calls.clear()
        call = self._calls[key] = _Call(count, duration, first_chunk)
        return call

    def _new_tokens(self, call: _Call, attempt: Attempt, operation: str) -> _Tokens:
        """Estimates count as our own tokens only: GenAI metrics are for what a provider reported."""
        estimated = attempt.usage is not None and attempt.usage.estimated
        family, mark = self.instruments.number(a.TOKENS), "true" if estimated else "false"
        own = tuple(
            family.at(attempt.provider, attempt.model, way, mark) for way in ("input", "output", "cached_input")
        )
        labels = () if estimated else _labels(attempt, operation)
        per_call = self._per_call(labels) if labels and attempt.kind is OutcomeKind.OK else None
        totals = self._totals((*labels, attempt_error(attempt))) if labels else None
        tokens = _Tokens((own[0], own[1], own[2]), per_call, totals)
        if estimated:
            call.estimated = tokens
        else:
            call.reported = tokens
        return tokens

    def _per_call(self, labels: tuple[str, ...]) -> tuple[Distribution, Distribution]:
        names, histogram = self._genai, self.instruments.histogram
        if names.token_usage:
            usage = histogram(names.token_usage)
            return usage.at(*labels, "input"), usage.at(*labels, "output")
        return histogram(names.input_per_call).at(*labels), histogram(names.output_per_call).at(*labels)

    def _totals(self, labels: tuple[str, ...]) -> tuple[Number, Number, Number] | None:
        names, number = self._genai, self.instruments.number
        if not names.input_total:
            return None
        return (
            number(names.input_total).at(*labels),
            number(names.output_total).at(*labels),
            number(names.cached_input_total).at(*labels),
        )


def _labels(attempt: Attempt, operation: str) -> tuple[str, ...]:
    """Returns the GenAI labels of a call; none for what is no GenAI operation."""
    known = a.OPERATIONS.get(operation)
    if known is None:
        return ()
    host, port = attempt.address
    provider = a.genai_provider(attempt.provider, host)
    return known, provider, attempt.model, host, str(port or ""), attempt.provider
