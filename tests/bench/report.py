"""What the rounds say: ratios taken within a round, which targets hold. Nothing here measures or prints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench.rows import Row

BUSY_CONNECTIONS = 64
MANY_CONNECTIONS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One row under one number of connections; no CPU time and no memory for the direct row.

    `peak_mib` is the resident memory where the counting window began or ended, whichever is larger.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None = None
    peak_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """One row under concurrent streams."""

    events_per_second: float
    first_byte_p50_ms: float
    cpu_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a proxy needs beside CPU time: resident MiB, seconds until its first answer."""

    idle_mib: float
    loaded_mib: float
    ready_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row in one round; `requests` by number of connections."""

    requests: Mapping[int, Requests]
    streams: Streams
    footprint: Footprint | None = None


Round = Mapping[Row, Sample]
Pick = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One promise and the figure of each round; `limit` is the largest median that keeps it, `aim` the wish.

    `compared` picks the figures behind a ratio.
    """

    name: str
    limit: float
    figures: Sequence[float]
    aim: float | None = None
    compared: Pick | None = None

    @property
    def verdict(self) -> str:
        """Whether the median keeps the promise, in plain words."""
        if not self.figures:
            return "not measured"
        return "holds" if median(self.figures) <= self.limit else "DOES NOT HOLD"


def busy_cpu(sample: Sample) -> float | None:
    """CPU microseconds a request with 64 connections."""
    return sample.requests[BUSY_CONNECTIONS].cpu_us


def event_cpu(sample: Sample) -> float | None:
    """CPU microseconds an event of a stream."""
    return sample.streams.cpu_us


def first_byte(sample: Sample) -> float | None:
    """Milliseconds to the first byte of a stream, P50."""
    return sample.streams.first_byte_p50_ms


def crowded_p99(sample: Sample) -> float | None:
    """Milliseconds of the whole delay with 256 connections, P99."""
    return sample.requests[MANY_CONNECTIONS].p99_ms


def crowded_mib(sample: Sample) -> float | None:
    """What 256 connections add to the resident memory at rest, in MiB."""
    peak = sample.requests[MANY_CONNECTIONS].peak_mib
    return None if peak is None or sample.footprint is None else peak - sample.footprint.idle_mib


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` (0 to 1) of the values lie; NaN where there are none."""
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def figures(rounds: Sequence[Round], row: Row, pick: Pick) -> list[float]:
    """One figure of one row, of each round that has it."""
    picked = [pick(one[row]) for one in rounds if row in one]
    return [value for value in picked if value is not None]


def added(rounds: Sequence[Round], row: Row, pick: Pick) -> list[float]:
    """What a row adds to the direct row, round by round."""
    pairs = [(pick(one[row]), pick(one[Row.DIRECT])) for one in rounds if row in one and Row.DIRECT in one]
    return [value - base for value, base in pairs if value is not None and base is not None]


def ratios(rounds: Sequence[Round], pick: Pick) -> list[float]:
    """Sponson's figure divided by the bare proxy's, round by round; none where the latter is not positive."""
    pairs = [(pick(one[Row.SPONSON]), pick(one[Row.BARE])) for one in rounds if Row.SPONSON in one and Row.BARE in one]
    return [value / base for value, base in pairs if value is not None and base and base > 0]


def targets(rounds: Sequence[Round]) -> list[Target]:
    """Every promise about speed and size, with what was measured."""

    def ratio(name: str, pick: Pick, *, limit: float, aim: float | None = None) -> Target:
        name = f"{name}, sponson / bare"
        return Target(name=name, limit=limit, aim=aim, figures=ratios(rounds, pick), compared=pick)

    def size(name: str, pick: Callable[[Footprint], float], *, limit: float) -> Target:
        found = figures(rounds, Row.SPONSON, lambda sample: pick(sample.footprint) if sample.footprint else None)
        return Target(name=name, limit=limit, figures=found)

    first_bytes = added(rounds, Row.SPONSON, first_byte)
    return [
        ratio(f"CPU µs per request, {BUSY_CONNECTIONS} connections", busy_cpu, limit=0.65, aim=0.45),
        ratio("CPU µs per stream event, 64 streams", event_cpu, limit=0.9),
        Target(name="ms added to a stream's first byte, P50, 64 streams", limit=1.0, figures=first_bytes),
        ratio(f"P99 ms, {MANY_CONNECTIONS} connections", crowded_p99, limit=1.0),
        ratio(f"MiB added by {MANY_CONNECTIONS} connections", crowded_mib, limit=1.0),
        size("resident MiB, idle", lambda one: one.idle_mib, limit=64.0),
        size("resident MiB, loaded", lambda one: one.loaded_mib, limit=80.0),
        size("seconds until ready", lambda one: one.ready_seconds, limit=0.8),
    ]
