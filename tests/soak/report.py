"""A table in plain words: what was promised, what came of it."""

from __future__ import annotations

from statistics import median

from rich.console import Console
from rich.table import Table

from tests.soak.promises import Promise
from tests.soak.run import Plan, Result


def print_report(console: Console, plan: Plan, result: Result) -> None:
    """Prints what was done, every promise with its verdict, and the first breaches."""
    console.print(_table("What was done", ("", ""), _facts(plan, result)))
    console.print()
    console.print(_table("What was promised", ("promise", "seen", "verdict"), _verdicts(result)))
    for promise, examples in result.book.examples.items():
        console.print(f"\nBROKEN: {promise}, {result.book.breaches[promise]} times:", markup=False)
        for example in examples:
            console.print(f"  {example}", markup=False)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=any(columns), highlight=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def _facts(plan: Plan, result: Result) -> list[tuple[str, ...]]:
    good, waits = len(result.waits), result.waits
    return [
        (
            "changes of the policy",
            f"{plan.reloads} in {result.seconds:.0f} s, {good} of them waited for, seed {plan.seed}",
        ),
        *((f"  {way}", str(count)) for way, count in sorted(result.made.items())),
        ("revisions", str(result.revision)),
        (
            "requests",
            f"{sum(result.answers.values())}, {result.streams} of them streams; {plan.rate:g} a second and a queue",
        ),
        ("calls at the model servers", str(result.calls)),
        ("longest answer, queueing included", f"{result.slowest:.2f} s"),
        ("from the last byte to live", f"{median(waits):.2f} s in half the cases, {max(waits):.2f} s at most"),
    ]


def _verdicts(result: Result) -> list[tuple[str, ...]]:
    before, after = result.before, result.after
    reached = sum(result.book.reached.values())
    seen = {
        Promise.LIMITS: f"a limit was reached {reached} times",
        Promise.QUEUE: f"{result.answers['narrow']} callers in one queue",
        Promise.QUOTAS: f"{result.answers['metered']} callers at a provider with a rate",
        Promise.MEMORY: f"{before.mib:.1f} MiB after the warm-up, {after.mib:.1f} at the end",
        Promise.DESCRIPTORS: f"{before.descriptors} after the warm-up, {after.descriptors} at the end",
    }
    rows: list[tuple[str, ...]] = []
    for promise in Promise:
        count = result.book.breaches[promise]
        rows.append((promise.value, seen.get(promise, ""), f"BROKEN {count} times" if count else "kept"))
    return rows
