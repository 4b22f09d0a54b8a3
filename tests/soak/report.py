"""Tables in plain words: what was done, what was held, what was promised and what came of it."""

from __future__ import annotations

from collections import Counter
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.soak.agents import Seen
from tests.soak.judge import added_ms
from tests.soak.plan import Plan
from tests.soak.promises import Promise
from tests.soak.run import Result

UNITS = {
    "mib": "memory, MiB",
    "tasks": "tasks",
    "descriptors": "descriptors",
    "downstream": "connections of callers",
    "upstream": "connections to providers",
}
Rows = list[tuple[str, ...]]


def print_report(console: Console, plan: Plan, result: Result) -> None:
    """Prints what was done, what was held, every promise with its verdict, and the first breaches."""
    tables = (
        _table("What was done", ("", ""), _facts(plan, result)),
        _table("What callers saw who did not only ask", ("they", "and saw"), _visits(result)),
        _table(
            "What the proxy held",
            ("", "at rest, before", "after", *(f"{part}, an hour" for part in result.slopes), "most"),
            _held(result),
        ),
        _table("What was promised", ("promise", "seen", "verdict"), _verdicts(plan, result)),
    )
    for table in tables:
        console.print(table)
        console.print()
    for promise, examples in result.book.examples.items():
        console.print(f"BROKEN: {promise}, {result.book.breaches[promise]} times:", markup=False)
        for example in examples:
            console.print(f"  {example}", markup=False)


def _table(title: str, columns: tuple[str, ...], rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", show_header=any(columns), highlight=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def _facts(plan: Plan, result: Result) -> Rows:
    good, waits, agents = len(result.waits), result.waits, result.agents
    changes = sum(result.made[way] for way in result.made)
    return [
        ("the run", f"{result.seconds:.0f} s, seed {plan.seed}"),
        ("changes of the policy", f"{changes}, {good} of them waited for"),
        *((f"  {way}", str(count)) for way, count in sorted(result.made.items())),
        ("revisions", str(result.revision)),
        (
            "calls that must not fail",
            f"{sum(result.answers.values())}, {result.streams} of them streams; {plan.rate:g} a second and a queue",
        ),
        ("  at the model servers", str(result.calls)),
        ("  longest answer, queueing included", f"{result.slowest:.2f} s"),
        ("from the last byte to live", f"{median(waits):.2f} s in half the cases, {max(waits):.2f} s at most"),
        ("agents", f"{plan.profile}; tokens divided by {plan.scale:g}, times by {plan.hurry:g}"),
        ("  calls", f"{agents.calls}, {agents.streams} of them streams with {agents.heartbeats} heartbeats"),
        ("  open at once", f"{agents.most_open} at most; {agents.late} calls began late"),
        ("  first token beyond the provider's", f"{_delays(agents)}; without the proxy {_delays(result.direct)}"),
    ]


def _delays(seen: Seen) -> str:
    return f"P50 {seen.delay(0.5):.1f}, P99 {seen.delay(0.99):.1f} ms"


def _visits(result: Result) -> Rows:
    kinds: dict[str, Counter[str]] = {}
    for (kind, what), count in result.came.items():
        kinds.setdefault(kind, Counter())[what] = count
    return [
        (kind, ", ".join(f"{what} {count}" for what, count in sorted(seen.items()))) for kind, seen in kinds.items()
    ]


def _held(result: Result) -> Rows:
    rows: Rows = []
    for name, unit in UNITS.items():
        lines = [part[name] for part in result.slopes.values()]
        rows.append(
            (
                unit,
                f"{getattr(result.before, name):.4g}",
                f"{getattr(result.after, name):.4g}",
                *(f"{line.an_hour:+.1f}" for line in lines),
                f"{max(line.most for line in lines):.4g}",
            )
        )
    return rows


def _verdicts(plan: Plan, result: Result) -> Rows:
    added = [added_ms(result.agents, result.direct, part) for part in (0.5, 0.99)]
    promised = "" if plan.delay_ms is None else f"; {plan.delay_ms:g} promised"
    seen = {
        Promise.LIMITS: f"a limit was reached {sum(result.book.reached.values())} times",
        Promise.QUEUE: f"{result.answers['narrow']} callers in one queue",
        Promise.QUOTAS: f"{result.answers['metered']} callers at a provider with a rate",
        Promise.HONEST: f"{sum(result.came.values())} visits",
        Promise.AGENTS: f"{result.agents.calls} calls",
        Promise.ONCE: f"{result.executed} executions",
        Promise.OBJECTS: f"{result.before.blocks} pieces of memory after the warm-up, {result.after.blocks} at the end",
        Promise.FREED: f"{result.after.collected - result.before.collected} things waited for the garbage collector",
        Promise.MEMORY: f"{result.before.native:.1f} MiB in use beside Python's, then {result.after.native:.1f}",
        Promise.DELAY: f"P50 {added[0]:+.1f}, P99 {added[1]:+.1f} ms added to the first token{promised}",
    }
    rows: Rows = []
    for promise in Promise:
        count = result.book.breaches[promise]
        verdict = "not judged" if promise is Promise.DELAY and plan.delay_ms is None else "kept"
        rows.append((promise.value, seen.get(promise, ""), f"BROKEN {count} times" if count else verdict))
    return rows
