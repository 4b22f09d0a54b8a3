"""The table of instruments, filled with the series that are counted in it, or that are read when somebody looks.

Both OTLP and `/metrics` read the same table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from otel import attributes as a
from otel.series import Distribution, Family, Number
from proxy.observer import Reading

_log = logging.getLogger("sponson.otel")

MAX_SERIES: Final = 1000

HTTP_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0, 120.0),
)
"""OpenTelemetry's advice ends at 10 s, where answers of models only begin to be slow."""
GENAI_BUCKETS: Final = tuple(0.01 * 2**n for n in range(14))
TOKEN_BUCKETS: Final = tuple(float(4**n) for n in range(14))
MERGE_BUCKETS: Final = tuple(float(2**n) for n in range(12))
WAIT_BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Kind(StrEnum):
    """What an instrument counts."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One row of the table: `unit` in UCUM, `labels` attribute names, `buckets` inclusive upper bounds."""

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


Collected = tuple[Instrument, Sequence[Number] | Sequence[Distribution]]


class Instruments:
    """The table filled with series; `counter`, `gauge` and `histogram` raise KeyError for an unknown name."""

    def __init__(self, genai: a.GenAiMetrics, *, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._numbers: dict[str, Family[Number]] = {}
        self._distributions: dict[str, Family[Distribution]] = {}
        self._complained: set[str] = set()
        self._rows = {row.name: row for row in table(genai)}
        self._sourced = {row.name: row for row in SOURCED}
        for row in self._rows.values():
            if row.name not in self._sourced:
                self._add(row)

    def _add(self, row: Instrument) -> None:
        width = len(row.labels)
        if row.kind is Kind.HISTOGRAM:
            self._distributions[row.name] = Family(width, partial(Distribution, row.buckets), self._max_series)
        else:
            self._numbers[row.name] = Family(width, Number, self._max_series)

    def number(self, name: str) -> Family[Number]:
        """Returns the family of a counter or gauge."""
        return self._numbers[name]

    def histogram(self, name: str) -> Family[Distribution]:
        """Returns the family of a histogram."""
        return self._distributions[name]

    def collect(self, readings: Iterable[Reading]) -> Iterator[Collected]:
        """Yields every instrument that has series, with its series as they are now."""
        for name, numbers in self._numbers.items():
            if numbers.series:
                yield self._rows[name], tuple(numbers.series)
        for name, distributions in self._distributions.items():
            if distributions.series:
                yield self._rows[name], tuple(distributions.series)
        yield from self._read(readings)

    def _read(self, readings: Iterable[Reading]) -> Iterator[Collected]:
        found: dict[str, dict[tuple[str, ...], Number]] = {}
        for reading in readings:
            labels = self._labels_of(reading)
            series = found.setdefault(reading.name, {})
            if labels is not None and len(series) < self._max_series:
                series[labels] = Number(labels, reading.value)
        for name, series in found.items():
            if series:
                yield self._sourced[name], tuple(series.values())

    def _labels_of(self, reading: Reading) -> tuple[str, ...] | None:
        """Returns label values in the order of the table; short names stand for ours (`provider`)."""
        row = self._sourced.get(reading.name)
        given = {name if "." in name else f"sponson.{name}": value for name, value in reading.labels}
        if row is None or not given.keys() <= set(row.labels):
            if reading.name not in self._complained:
                self._complained.add(reading.name)
                _log.error("The table of instruments has no %s to be read with labels %s.", reading.name, list(given))
            return None
        return tuple(a.clean(given.get(name, "")) for name in row.labels)


_SERVED = (a.HTTP_METHOD, a.URL_SCHEME, a.HTTP_ROUTE, a.HTTP_STATUS, a.ERROR_TYPE)
_REQUEST = (a.ROUTE, a.CLASS, a.MODEL, a.OUTCOME, a.REASON)
_FALLBACK = (a.ROUTE, a.FROM_TIER, a.TO_TIER, a.OUTCOME, a.REASON)
_ADDRESS = (a.PROVIDER, a.SERVER_ADDRESS, a.SERVER_PORT)
_TARGET = (a.PROVIDER, a.MODEL)
_WAIT = (a.PROVIDER, a.CLASS, a.LACKING)
_PERMIT = (*_TARGET, a.KEY_ID, a.LIMIT)
_QUOTA = (*_PERMIT, a.UNIT)
_CALL = (
    *(a.GENAI_OPERATION, a.GENAI_PROVIDER, a.GENAI_MODEL, a.SERVER_ADDRESS, a.SERVER_PORT),
    a.PROVIDER,
)
_FAILED_CALL = (*_CALL, a.ERROR_TYPE)


def table(genai: a.GenAiMetrics) -> tuple[Instrument, ...]:
    """Returns every instrument there is."""
    return (*_COUNTED, *_genai_rows(genai), *SOURCED)


_COUNTED: Final = (
    Instrument(a.HTTP_DURATION, Kind.HISTOGRAM, "s", "Requests, to the last byte.", _SERVED, HTTP_BUCKETS),
    Instrument(a.REQUESTS, Kind.COUNTER, "{request}", "Requests that ended.", _REQUEST),
    Instrument(
        a.ATTEMPTS_ENDED,
        Kind.COUNTER,
        "{call}",
        "Upstream calls that ended.",
        (*_TARGET, a.KEY_ID, a.OUTCOME),
    ),
    Instrument(
        a.REFUSALS,
        Kind.COUNTER,
        "{refusal}",
        "Refused here, no provider asked; by mode: observe what would have been.",
        (a.ROUTE, a.PROVIDER, a.REASON, a.MODE),
    ),
    Instrument(
        a.OBSERVED,
        Kind.COUNTER,
        "{call}",
        "Let go by mode: observe; enforced, they would have waited or been refused.",
        (a.ROUTE, a.PROVIDER, a.REASON),
    ),
    Instrument(a.QUEUE_WAIT, Kind.HISTOGRAM, "s", "Waits of those that had to wait.", _WAIT, WAIT_BUCKETS),
    Instrument(a.RETRIES, Kind.COUNTER, "{call}", "Calls sent again.", (a.PROVIDER, a.OUTCOME, a.OTHER_KEY)),
    Instrument(a.FALLBACKS, Kind.COUNTER, "{fallback}", "Next tiers asked.", _FALLBACK),
    Instrument(a.TOKENS, Kind.COUNTER, "{token}", "Tokens used.", (*_TARGET, a.DIRECTION, a.ESTIMATED)),
    Instrument(
        a.BREAKER_CHANGES,
        Kind.COUNTER,
        "{change}",
        "Changes of breakers' states.",
        (*_TARGET, a.STATE, a.WHY),
    ),
    Instrument(a.KEY_CHANGES, Kind.COUNTER, "{change}", "Changes of keys' states.", (a.PROVIDER, a.KEY_ID, a.STATE)),
    Instrument(a.POLICY_RELOADS, Kind.COUNTER, "{reload}", "Policies offered, the first too.", (a.RESULT,)),
    Instrument(a.POLICY_REVISION, Kind.GAUGE, "", "Revision of the policy in force."),
    Instrument(a.POLICY_CURRENT, Kind.GAUGE, "", "1: the last policy offered is in force, 0: it was rejected."),
    Instrument(a.POLICY_LOADED, Kind.GAUGE, "s", "When the policy in force was loaded, since the epoch."),
    Instrument(a.SPANS_LOST, Kind.COUNTER, "{span}", "Spans that no collector has got.", (a.REASON,)),
    Instrument(a.CACHE_REQUESTS, Kind.COUNTER, "{request}", "Requests by a cache's part in them.", (a.ROUTE, a.CACHE)),
    Instrument(a.CACHE_REFRESHES, Kind.COUNTER, "{call}", "Refreshes of answers that ended.", (a.ROUTE, a.OUTCOME)),
    Instrument(a.SAVED_CALLS, Kind.COUNTER, "{call}", "Answered well without a call of their own.", (a.ROUTE, a.HOW)),
    Instrument(
        a.SAVED_TOKENS,
        Kind.COUNTER,
        "{token}",
        "Tokens in answers that another call has spent.",
        (a.ROUTE, a.HOW, a.DIRECTION, a.ESTIMATED),
    ),
    Instrument(a.MERGE_CALLERS, Kind.HISTOGRAM, "{request}", "Requests in a call.", (a.ROUTE,), MERGE_BUCKETS),
    Instrument(a.MERGE_INPUTS, Kind.HISTOGRAM, "{input}", "Inputs in a merged call.", (a.ROUTE,), MERGE_BUCKETS),
    Instrument(a.MERGE_SPLITS, Kind.COUNTER, "{call}", "Merged calls asked one by one.", (a.ROUTE, a.OUTCOME)),
)

SOURCED: Final = (
    Instrument(a.HTTP_ACTIVE, Kind.GAUGE, "{request}", "Requests on their way.", (a.ROUTE,)),
    Instrument(a.ATTEMPTS_ACTIVE, Kind.GAUGE, "{call}", "Upstream calls running.", (a.PROVIDER,)),
    Instrument(a.QUEUE_WAITING, Kind.GAUGE, "{request}", "Requests that wait.", (*_TARGET, a.CLASS)),
    Instrument(a.PERMITS_USED, Kind.GAUGE, "{permit}", "Permits in use.", _PERMIT),
    Instrument(a.PERMITS_SHARE, Kind.GAUGE, "{permit}", "This instance's share of permits.", _PERMIT),
    Instrument(a.QUOTA_LEFT, Kind.GAUGE, "{unit}", "Requests or tokens left in a bucket.", _QUOTA),
    Instrument(a.QUOTA_CAPACITY, Kind.GAUGE, "{unit}", "What a bucket holds at most.", _QUOTA),
    Instrument(a.BREAKER_STATE, Kind.GAUGE, "", "0 closed, 1 half-open, 2 open.", _TARGET),
    Instrument(a.KEYS, Kind.GAUGE, "{key}", "Keys by state.", (a.PROVIDER, a.STATE)),
    Instrument(a.CONNECTIONS, Kind.GAUGE, "{connection}", "Connections by state.", (a.PROVIDER, a.STATE)),
    Instrument(a.CONNECTION_REQUESTS, Kind.COUNTER, "{call}", "Calls by their connection.", (*_ADDRESS, a.REUSED)),
    Instrument(a.CONNECTION_DIALS, Kind.COUNTER, "{dial}", "Connections dialled.", (*_ADDRESS, a.RESULT)),
    Instrument(a.CONNECTION_ENDED, Kind.COUNTER, "{connection}", "Idle ones that ended.", (*_ADDRESS, a.REASON)),
    Instrument(a.BODIES, Kind.GAUGE, "By", "Request bodies in memory."),
    Instrument(a.FLEET_SIZE, Kind.GAUGE, "{instance}", "Instances that limits are divided by."),
    Instrument(
        a.CACHE_BYPASSED, Kind.COUNTER, "{request}", "Requests that share nothing, by wish or kind.", (a.ROUTE,)
    ),
    Instrument(a.CACHE_OFFERED, Kind.COUNTER, "{answer}", "Good answers, kept or refused.", (a.ROUTE, a.RESULT)),
    Instrument(a.CACHE_ENTRIES, Kind.GAUGE, "{answer}", "Answers kept in memory.", (a.ROUTE,)),
    Instrument(a.CACHE_SIZE, Kind.GAUGE, "By", "What they take.", (a.ROUTE,)),
    Instrument(a.CACHE_CAPACITY, Kind.GAUGE, "By", "What they may take.", (a.ROUTE,)),
    Instrument(a.CACHE_EVICTIONS, Kind.COUNTER, "{answer}", "Answers pushed out by others.", (a.ROUTE,)),
    Instrument(a.CACHE_REFRESHING, Kind.GAUGE, "{call}", "Refreshes under way."),
    Instrument(a.CACHE_STORE_UP, Kind.GAUGE, "", "1: the store outside answers, 0: it is not asked.", (a.STORE,)),
    Instrument(a.CACHE_STORE_WRITTEN, Kind.COUNTER, "{answer}", "Answers written to it.", (a.STORE,)),
    Instrument(a.CACHE_STORE_LOST, Kind.COUNTER, "{operation}", "Late lookups, dropped writes.", (a.STORE, a.WHY)),
    Instrument(a.CACHE_STORE_ERRORS, Kind.COUNTER, "{error}", "What went wrong with it.", (a.STORE, a.WHY)),
    Instrument(a.SHARED_ACTIVE, Kind.GAUGE, "{call}", "Calls under way that equal requests may join."),
    Instrument(a.MERGE_WAITING, Kind.GAUGE, "{request}", "Requests that wait to be merged."),
)
"""Read from `GaugeSource`s when somebody looks: what is now, and what somebody else counts."""


def _genai_rows(genai: a.GenAiMetrics) -> Iterator[Instrument]:
    histogram, whole, first = Kind.HISTOGRAM, "Upstream calls.", "Streams, to their first content."
    yield Instrument(genai.duration, histogram, "s", whole, _FAILED_CALL, GENAI_BUCKETS)
    yield Instrument(genai.first_chunk, histogram, "s", first, _CALL, GENAI_BUCKETS)
    if genai.token_usage:
        labels = (*_CALL, a.GENAI_TOKEN_TYPE)
        yield Instrument(genai.token_usage, histogram, "{token}", "Tokens of a call.", labels, TOKEN_BUCKETS)
    for name in filter(None, (genai.input_per_call, genai.output_per_call)):
        yield Instrument(name, histogram, "{token}", "Tokens of a call.", _CALL, TOKEN_BUCKETS)
    for name in filter(None, (genai.input_total, genai.output_total, genai.cached_input_total)):
        yield Instrument(name, Kind.COUNTER, "{token}", "Tokens used.", _FAILED_CALL)
