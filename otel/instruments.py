"""The table of instruments, and the series that are counted in it.

Owns the counts: plain ints in slotted series that a writer keeps and increments; both OTLP and `/metrics`
read the same table. A series has one writing thread (the event loop's, or an exporter's); others may read at any time,
because a family's list of series only ever grows. A reader may meet a histogram whose sum is one value behind its
buckets.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Generic, TypeVar

from otel import attributes as a
from proxy.observer import Reading

_log = logging.getLogger("sponson.otel")

OTHER: Final = "other"
MAX_SERIES: Final = 1000

HTTP_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0, 120.0),
)
"""OpenTelemetry's advice ends at 10 s, where answers of models only begin to be slow."""
GENAI_BUCKETS: Final = tuple(0.01 * 2**n for n in range(14))
TOKEN_BUCKETS: Final = tuple(float(4**n) for n in range(14))
WAIT_BUCKETS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Kind(StrEnum):
    """What an instrument counts; `SOURCED` gauges are read from `GaugeSource`s when somebody looks."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"
    SOURCED = "sourced"


@dataclass(frozen=True, slots=True)
class Instrument:
    """One row of the table: `unit` in UCUM, `labels` attribute names, `buckets` inclusive upper bounds."""

    name: str
    kind: Kind
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Number:
    """A counter or gauge of one set of labels."""

    __slots__ = ("labels", "value")

    def __init__(self, labels: tuple[str, ...], value: float = 0) -> None:
        self.labels = labels
        self.value = value


class Distribution:
    """A histogram of one set of labels; `counts` has one place more than there are bounds."""

    __slots__ = ("bounds", "counts", "labels", "sum")

    def __init__(self, bounds: tuple[float, ...], labels: tuple[str, ...]) -> None:
        self.bounds = bounds
        self.labels = labels
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def record(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Series = TypeVar("Series", Number, Distribution)


class Family(Generic[Series]):
    """All series of one instrument: at most `max_series`, and one labelled `other` for what did not fit."""

    __slots__ = ("_by_labels", "_make", "_max_series", "instrument", "series")

    def __init__(self, instrument: Instrument, make: Callable[[tuple[str, ...]], Series], max_series: int) -> None:
        self.instrument = instrument
        self.series: list[Series] = []
        self._make: Callable[[tuple[str, ...]], Series] = make
        self._max_series = max_series
        self._by_labels: dict[tuple[str, ...], Series] = {}

    def __repr__(self) -> str:
        return f"<Family {self.instrument.name}, {len(self.series)} series>"

    def at(self, *values: str) -> Series:
        """Returns the series of these label values, in the order of the table; keep it, and count in it."""
        series = self._by_labels.get(values)
        if series is None:
            if len(self.series) >= self._max_series:
                values = (OTHER,) * len(self.instrument.labels)
            series = self._by_labels.get(values)
        if series is None:
            series = self._by_labels[values] = self._make(tuple(map(a.clean, values)))
            self.series.append(series)
        return series


Collected = tuple[Instrument, Sequence[Number] | Sequence[Distribution]]


class Instruments:
    """The table filled with series; `counter`, `gauge` and `histogram` raise KeyError for an unknown name."""

    def __init__(self, genai: a.GenAiMetrics, *, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._numbers: dict[str, Family[Number]] = {}
        self._distributions: dict[str, Family[Distribution]] = {}
        self._sourced: dict[str, Instrument] = {}
        self._complained: set[str] = set()
        for row in table(genai):
            self._add(row)

    def _add(self, row: Instrument) -> None:
        match row.kind:
            case Kind.HISTOGRAM:
                make = partial(Distribution, row.buckets)
                self._distributions[row.name] = Family(row, make, self._max_series)
            case Kind.SOURCED:
                self._sourced[row.name] = row
            case _:
                self._numbers[row.name] = Family(row, Number, self._max_series)

    def number(self, name: str) -> Family[Number]:
        """Returns the family of a counter or gauge."""
        return self._numbers[name]

    def histogram(self, name: str) -> Family[Distribution]:
        """Returns the family of a histogram."""
        return self._distributions[name]

    def collect(self, readings: Iterable[Reading]) -> Iterator[Collected]:
        """Yields every instrument that has series, with its series as they are now."""
        for numbers in self._numbers.values():
            if numbers.series:
                yield numbers.instrument, tuple(numbers.series)
        for distributions in self._distributions.values():
            if distributions.series:
                yield distributions.instrument, tuple(distributions.series)
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
                _log.error("The table of instruments has no gauge %s with labels %s.", reading.name, list(given))
            return None
        return tuple(a.clean(given.get(name, "")) for name in row.labels)


_SERVED = (a.HTTP_METHOD, a.URL_SCHEME, a.HTTP_ROUTE, a.HTTP_STATUS, a.ERROR_TYPE)
_REQUEST = (a.ROUTE, a.CLASS, a.MODEL, a.OUTCOME, a.REASON)
_FALLBACK = (a.ROUTE, a.FROM_TIER, a.TO_TIER, a.OUTCOME, a.REASON)
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
    return (*_COUNTED, *_genai_rows(genai), *_SOURCED)


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
)

_SOURCED: Final = (
    Instrument(a.HTTP_ACTIVE, Kind.SOURCED, "{request}", "Requests on their way.", (a.ROUTE,)),
    Instrument(a.ATTEMPTS_ACTIVE, Kind.SOURCED, "{call}", "Upstream calls running.", (a.PROVIDER,)),
    Instrument(a.QUEUE_WAITING, Kind.SOURCED, "{request}", "Requests that wait.", (*_TARGET, a.CLASS)),
    Instrument(a.PERMITS_USED, Kind.SOURCED, "{permit}", "Permits in use.", _PERMIT),
    Instrument(a.PERMITS_SHARE, Kind.SOURCED, "{permit}", "This instance's share of permits.", _PERMIT),
    Instrument(a.QUOTA_LEFT, Kind.SOURCED, "{unit}", "Requests or tokens left in a bucket.", _QUOTA),
    Instrument(a.QUOTA_CAPACITY, Kind.SOURCED, "{unit}", "What a bucket holds at most.", _QUOTA),
    Instrument(a.BREAKER_STATE, Kind.SOURCED, "", "0 closed, 1 half-open, 2 open.", _TARGET),
    Instrument(a.KEYS, Kind.SOURCED, "{key}", "Keys by state.", (a.PROVIDER, a.STATE)),
    Instrument(a.CONNECTIONS, Kind.SOURCED, "{connection}", "Connections by state.", (a.PROVIDER, a.STATE)),
    Instrument(a.BODIES, Kind.SOURCED, "By", "Request bodies in memory."),
    Instrument(a.FLEET_SIZE, Kind.SOURCED, "{instance}", "Instances that limits are divided by."),
)


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
