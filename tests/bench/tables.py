"""The rounds as tables, and the lines in which all tables of the benchmark are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.report import (
    BUSY_CONNECTIONS,
    MANY_CONNECTIONS,
    Pick,
    Round,
    Target,
    added,
    crowded_mib,
    event_cpu,
    figures,
    first_byte,
    targets,
)
from tests.bench.rows import Row


def new_table(title: str, *columns: str, caption: str = "") -> Table:
    """An empty table that can be pasted into a Markdown page; the first column is text, the others are figures."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.MARKDOWN)
    table.caption, table.caption_justify = caption or None, "left"
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def print_report(console: Console, rounds: Sequence[Round]) -> None:
    """Print all tables."""
    for table in (_request_table(rounds), _stream_table(rounds), _size_table(rounds), _target_table(rounds)):
        console.print(table)
        console.print()


def _rows(rounds: Sequence[Round]) -> list[Row]:
    return [row for row in Row if any(row in one for one in rounds)]


def _middle(values: Sequence[float], digits: int) -> str:
    return f"{median(values):,.{digits}f}" if values else "–"


def _cpu_and_rate(rounds: Sequence[Round], row: Row, count: int) -> list[str]:
    return [
        _middle(figures(rounds, row, lambda sample: sample.requests[count].cpu_us), 1),
        _middle(figures(rounds, row, lambda sample: sample.requests[count].per_second), 0),
    ]


def _delay(rounds: Sequence[Round], row: Row, *picks: Pick) -> str:
    """The whole delay of the direct row, what any other row adds to it."""
    if row is Row.DIRECT:
        return " / ".join(_middle(figures(rounds, row, pick), 2) for pick in picks)
    return " / ".join("+" + _middle(added(rounds, row, pick), 2) for pick in picks)


def _request_table(rounds: Sequence[Round]) -> Table:
    counts = sorted({count for one in rounds for sample in one.values() for count in sample.requests})
    columns = []
    for count in (BUSY_CONNECTIONS, MANY_CONNECTIONS):
        columns += [f"CPU µs @{count}", f"req/s @{count}"]
    columns += [f"P50 / P99 ms @{count}" for count in counts]
    caption = (
        "@N: N connections. direct: the whole delay; proxies: what they add to it. CPU is the proxy process's own."
    )
    table = new_table("Requests: 1 KB in, 0.7 KB out, keep-alive", "proxy", *columns, caption=caption)
    for row in _rows(rounds):
        loads = [*_cpu_and_rate(rounds, row, BUSY_CONNECTIONS), *_cpu_and_rate(rounds, row, MANY_CONNECTIONS)]
        table.add_row(row.value, *loads, *(_delays(rounds, row, count) for count in counts))
    return table


def _delays(rounds: Sequence[Round], row: Row, count: int) -> str:
    return _delay(
        rounds, row, lambda sample: sample.requests[count].p50_ms, lambda sample: sample.requests[count].p99_ms
    )


def _stream_table(rounds: Sequence[Round]) -> Table:
    title = "Streams: 64 at a time, 51 events of 250 B, 20 ms apart"
    table = new_table(title, "proxy", "CPU µs/event", "events/s", "first byte P50 ms")
    for row in _rows(rounds):
        table.add_row(
            row.value,
            _middle(figures(rounds, row, event_cpu), 1),
            _middle(figures(rounds, row, lambda sample: sample.streams.events_per_second), 0),
            _delay(rounds, row, first_byte),
        )
    return table


def _size_table(rounds: Sequence[Round]) -> Table:
    columns = ["idle MiB", f"load adds @{MANY_CONNECTIONS}", "largest MiB", "ready s"]
    table = new_table("Size and start-up: resident memory", "proxy", *columns)
    for row in _rows(rounds):
        if row is Row.DIRECT:
            continue
        table.add_row(
            row.value,
            _middle(figures(rounds, row, lambda s: s.footprint.idle_mib if s.footprint else None), 1),
            "+" + _middle(figures(rounds, row, crowded_mib), 1),
            _middle(figures(rounds, row, lambda s: s.footprint.loaded_mib if s.footprint else None), 1),
            _middle(figures(rounds, row, lambda s: s.footprint.ready_seconds if s.footprint else None), 2),
        )
    return table


def _target_table(rounds: Sequence[Round]) -> Table:
    table = new_table("Targets", "what", "median", "range", "medians of both", "target", "verdict")
    for target in targets(rounds):
        spread = f"{min(target.figures):.2f}–{max(target.figures):.2f}" if target.figures else "–"
        middle = _middle(target.figures, 2)
        table.add_row(target.name, middle, spread, _compared(rounds, target), _limit(target), target.verdict)
    return table


def _compared(rounds: Sequence[Round], target: Target) -> str:
    if target.compared is None:
        return ""
    return " / ".join(_middle(figures(rounds, row, target.compared), 1) for row in (Row.SPONSON, Row.BARE))


def _limit(target: Target) -> str:
    return f"≤ {target.limit:g}" + (f" (aim {target.aim:g})" if target.aim is not None else "")
