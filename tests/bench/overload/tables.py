"""The overload experiment as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tests.bench.overload.application import Ending
from tests.bench.overload.protection import CAPACITY_PER_SECOND, MEAN_SECONDS, SLOTS
from tests.bench.overload.results import Result, Way, seconds_text, verdicts
from tests.bench.tables import new_table

TITLE = f"Overload: a model with {SLOTS} slots, {MEAN_SECONDS:g} s on average, an unbounded queue; calls a second"
CAPTION = (
    f"offered: multiples of the {CAPACITY_PER_SECOND:.0f}/s that the model can do. P50, P99, timed out: of the calls"
    " that the model was given, retries included."
)


def print_overload(console: Console, results: Sequence[Result]) -> None:
    """Print both tables."""
    columns = ["P50 / P99 s", "timed out", "by the model", "small model", "static answer", "refused", "broken"]
    columns += ["longest queue", "proxy's core"]
    table = new_table(TITLE, "offered, way", *columns, caption=CAPTION)
    for one in sorted(results, key=lambda one: one.load):
        table.add_row(f"{one.load:g} × {one.way}", *_cells(one))
    console.print(table)
    console.print()
    table = new_table("Overload: what must hold", "what", "measured", "reference", "verdict")
    for verdict in verdicts(results):
        table.add_row(verdict.name, verdict.figure, verdict.reference, "holds" if verdict.holds else "DOES NOT HOLD")
    console.print(table)
    console.print()


def _cells(one: Result) -> list[str]:
    apart = (Ending.MODEL, Ending.SMALL, Ending.STATIC, Ending.REFUSED, Ending.BROKEN)
    return [
        f"{one.p50_seconds:.2f} / {seconds_text(one)}",
        f"{one.timed_out_part:.2%}",
        *(f"{one.per_second(ending):,.0f}" for ending in apart),
        f"{one.longest_queue:,}",
        f"{one.proxy_cpu:.0%}" if one.way is Way.PROTECTED else "–",
    ]
