"""The experiments about work saved as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tests.bench.limits.finding import Finding
from tests.bench.limits.tables import CAPTION
from tests.bench.tables import new_table


def print_saved(console: Console, findings: Sequence[Finding]) -> None:
    """Prints the table."""
    columns = ["measured", "reference", "goal", "verdict"]
    table = new_table("Work saved", "what", *columns, caption=CAPTION)
    for one in findings:
        table.add_row(one.name, one.measured, one.reference, one.goal, one.verdict)
    console.print(table)
    console.print()
