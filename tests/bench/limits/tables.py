"""The experiments about limits as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tests.bench.limits.finding import Finding
from tests.bench.tables import new_table

CAPTION = "Reference: what others reported of the same experiment; goal: what must hold here."


def print_limits(console: Console, findings: Sequence[Finding]) -> None:
    """Prints the table."""
    columns = ["measured", "reference", "goal", "verdict"]
    table = new_table("Limits that hold", "what", *columns, caption=CAPTION)
    for one in findings:
        table.add_row(one.name, one.measured, one.reference, one.goal, one.verdict)
    console.print(table)
    console.print()
