"""What is printed at the end: three tables that fit 80 columns, and what their words mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.simulation.demo.report import OperationRow, ProviderRow
from proxy.simulation.demo.timeline import Change, Timeline

OPERATIONS = (
    "Tier 1 is a route's first choice. Attempts: calls to providers, also those that failed. P50, P99: half, and 99 of"
    " 100, of the answered requests took at most so many milliseconds, with waits, retries and fallbacks; first byte:"
    " until the answer began."
)
PROVIDERS = (
    "Passed over: not asked, since its breaker was open, its queue full, or the wait in it too long. The request went"
    " to the next tier or, where there is none, was refused."
)
BREAKERS = (
    "Each state with the second at which it began. open: the provider fails and is not asked; half-open: a few probes"
    " may pass; closed: all is well."
)
STYLES = {"open": "red", "half-open": "yellow", "closed": "green"}
LABEL_WIDTH = 48
_NOTHING = "–"
_Line = tuple[str, Sequence[int | float | None]]


def print_report(
    console: Console, operations: Sequence[OperationRow], providers: Sequence[ProviderRow], breakers: Table
) -> None:
    """Prints everything."""
    parts = (
        (operations_table(operations), OPERATIONS),
        (providers_table(providers), PROVIDERS),
        (breakers, BREAKERS),
    )
    for table, legend in parts:
        console.print()
        console.print(table)
        console.print(Text(legend, style="dim"))


def operations_table(rows: Sequence[OperationRow]) -> Table:
    """Returns the callers' view, a column for each operation."""
    tiers = sorted({tier for row in rows for tier in row.answered_by})
    wrongs = sorted({reason for row in rows for reason in row.not_ok})
    lines: list[_Line] = [
        ("requests", [row.requests for row in rows]),
        ("ok: a whole answer", [row.ok for row in rows]),
        *((f"  by tier {tier[0]}, {tier[1]}", [row.answered_by.get(tier) for row in rows]) for tier in tiers),
        *((f"not ok: {reason}", [row.not_ok.get(reason) for row in rows]) for reason in wrongs),
        ("attempts", [row.attempts for row in rows]),
        ("P50, ms", [row.p50 for row in rows]),
        ("P99, ms", [row.p99 for row in rows]),
        ("first byte P50, ms", [row.first_byte_p50 for row in rows]),
    ]
    return _numbers("What the callers saw", [row.name.replace(" ", "\n") for row in rows], lines)


def providers_table(rows: Sequence[ProviderRow]) -> Table:
    """Returns the proxy's view, a column for each provider."""
    reasons = sorted({reason for row in rows for reason in row.refused})
    lines: list[_Line] = [
        ("share: calls that may run at once", [row.share for row in rows]),
        ("most that ran at once, by the provider's count", [row.peak for row in rows]),
        ("attempts: calls to it", [row.attempts for row in rows]),
        ("  that failed", [row.failed for row in rows]),
        ("  that were retries", [row.retries for row in rows]),
        *((f"passed over: {reason}", [row.refused.get(reason) for row in rows]) for reason in reasons),
        ("waited for a place in the share", [row.waited for row in rows]),
        ("  for so long in the mean, ms", [row.waited_ms for row in rows]),
        ("input tokens, by the answers' usage", [row.input_tokens for row in rows]),
        ("output tokens", [row.output_tokens for row in rows]),
    ]
    return _numbers("What the proxy did", [row.name for row in rows], lines)


def breakers_table(timeline: Timeline, *, began: float) -> Table:
    """Returns a row for each breaker that changed; all begin closed."""
    table = _table("What the breakers did")
    table.add_column("provider, model")
    table.add_column("states")
    for name, changes in sorted(timeline.by_breaker.items()):
        table.add_row(" ".join(name), _states(changes, began))
    if not timeline.changes:
        table.add_row("all", "closed, all the time")
    return table


def _states(changes: Iterable[Change], began: float) -> Text:
    text = Text("closed", style=STYLES["closed"])
    for change in changes:
        text.append(" → ", style="default")
        text.append(f"{change.at - began:.1f}\u00a0s\u00a0{change.state}", style=STYLES.get(change.state, ""))
    return text


def _numbers(title: str, headings: Iterable[str], lines: Iterable[_Line]) -> Table:
    table = _table(title)
    table.add_column("", overflow="fold", max_width=LABEL_WIDTH)
    for heading in headings:
        table.add_column(heading, justify="right", vertical="bottom")
    for label, values in lines:
        table.add_row(label, *(_NOTHING if value is None else f"{value:.0f}" for value in values))
    return table


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
