"""What the rounds say: medians, ratios taken within a round, which targets hold. Nothing here measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.rows import Row

BUSY_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """One row under one number of connections; latencies in milliseconds, no CPU time for the direct row."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float | None = None


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
    """One promise and the figure of each round; `limit` is the largest median that keeps it."""

    name: str
    limit: float
    figures: Sequence[float]

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
    """Sponson's figure divided by the bare proxy's, round by round."""
    pairs = [(pick(one[Row.SPONSON]), pick(one[Row.BARE])) for one in rounds if Row.SPONSON in one and Row.BARE in one]
    return [value / base for value, base in pairs if value is not None and base]


def targets(rounds: Sequence[Round]) -> list[Target]:
    """Every promise about speed and size, with what was measured."""

    def of_footprint(pick: Callable[[Footprint], float]) -> list[float]:
        return figures(rounds, Row.SPONSON, lambda sample: pick(sample.footprint) if sample.footprint else None)

    return [
        Target(name="CPU per request, sponson / bare", limit=0.8, figures=ratios(rounds, busy_cpu)),
        Target(name="CPU per stream event, sponson / bare", limit=1.0, figures=ratios(rounds, event_cpu)),
        Target(name="resident MiB, idle", limit=64.0, figures=of_footprint(lambda size: size.idle_mib)),
        Target(name="resident MiB, loaded", limit=80.0, figures=of_footprint(lambda size: size.loaded_mib)),
        Target(name="seconds until ready", limit=0.8, figures=of_footprint(lambda size: size.ready_seconds)),
    ]


def print_report(console: Console, rounds: Sequence[Round]) -> None:
    """Print all tables."""
    for table in (_request_table(rounds), _stream_table(rounds), _target_table(rounds)):
        console.print(table)
        console.print()


def _rows(rounds: Sequence[Round]) -> list[Row]:
    return [row for row in Row if any(row in one for one in rounds)]


def _middle(values: Sequence[float], digits: int) -> str:
    return f"{median(values):,.{digits}f}" if values else "–"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.MARKDOWN)
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _request_table(rounds: Sequence[Round]) -> Table:
    counts = sorted({count for one in rounds for sample in one.values() for count in sample.requests})
    columns = [f"CPU µs, {BUSY_CONNECTIONS} conn", f"requests/s, {BUSY_CONNECTIONS} conn"]
    columns += [f"P50 / P99 ms, {count} conn" for count in counts]
    table = _table("Requests: 1 KB in, 0.7 KB out, keep-alive", "proxy", *columns)
    for row in _rows(rounds):
        rate = figures(rounds, row, lambda sample: sample.requests[BUSY_CONNECTIONS].per_second)
        delays = [_delays(rounds, row, count) for count in counts]
        table.add_row(row.value, _middle(figures(rounds, row, busy_cpu), 1), _middle(rate, 0), *delays)
    table.caption = "direct: the whole delay; proxies: what they add to it. CPU is the proxy process's own."
    table.caption_justify = "left"
    return table


def _delays(rounds: Sequence[Round], row: Row, count: int) -> str:
    read = figures if row is Row.DIRECT else added
    half = read(rounds, row, lambda sample: sample.requests[count].p50_ms)
    most = read(rounds, row, lambda sample: sample.requests[count].p99_ms)
    sign = "" if row is Row.DIRECT else "+"
    return f"{sign}{_middle(half, 2)} / {sign}{_middle(most, 2)}"


def _stream_table(rounds: Sequence[Round]) -> Table:
    columns = ["CPU µs/event", "events/s", "first byte P50 ms", "idle MiB", "loaded MiB", "ready s"]
    table = _table("Streams: 64 at a time, 51 events of 250 B, 20 ms apart; size and start-up", "proxy", *columns)
    for row in _rows(rounds):
        read = figures if row is Row.DIRECT else added
        sign = "" if row is Row.DIRECT else "+"
        first = _middle(read(rounds, row, lambda sample: sample.streams.first_byte_p50_ms), 2)
        table.add_row(
            row.value,
            _middle(figures(rounds, row, event_cpu), 1),
            _middle(figures(rounds, row, lambda sample: sample.streams.events_per_second), 0),
            sign + first,
            _middle(figures(rounds, row, lambda s: s.footprint.idle_mib if s.footprint else None), 1),
            _middle(figures(rounds, row, lambda s: s.footprint.loaded_mib if s.footprint else None), 1),
            _middle(figures(rounds, row, lambda s: s.footprint.ready_seconds if s.footprint else None), 2),
        )
    return table


def _target_table(rounds: Sequence[Round]) -> Table:
    table = _table("Targets", "what", "median", "range", "target", "verdict")
    for target in targets(rounds):
        spread = f"{min(target.figures):.2f}–{max(target.figures):.2f}" if target.figures else "–"
        table.add_row(target.name, _middle(target.figures, 2), spread, f"≤ {target.limit:g}", target.verdict)
    return table
