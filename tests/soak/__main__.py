"""`python -m tests.soak`: everything at once, for minutes. Exit codes: 0 every promise was kept, 1 one was not."""

from __future__ import annotations

import sys

import click
import uvloop
from rich.console import Console

from tests.soak.plan import Plan
from tests.soak.report import print_report
from tests.soak.run import run

WIDTH = 130


@click.command(context_settings={"show_default": True})
@click.option("--seconds", type=click.FloatRange(30), default=600.0, help="About so long, beside coming to rest.")
@click.option("--reloads", type=click.IntRange(5), help="So many changes of the policy, however long they take.")
@click.option("--rate", type=click.FloatRange(5), default=100.0, help="Calls a second that must not fail.")
@click.option("--visits", type=click.FloatRange(1), default=15.0, help="Visits a second of every other kind.")
@click.option("--agents", type=click.IntRange(20), default=2000, help="Agents of the profile research-agents.")
@click.option("--scale", type=click.FloatRange(1, 1000), default=16.0, help="Divides the tokens of the agents.")
@click.option("--delay-ms", type=click.FloatRange(0), help="What may be added to the agents' first token at P99.")
@click.option("--seed", type=int, default=1, help="Equal seeds make equal changes.")
def main(**flags: float) -> None:
    """Run mixed traffic with faults, leavers and reloads, then 2,000 agents; see that nothing is left of it.

    A proxy reloads at most once a second: some 200 changes fit into ten minutes, and --reloads 1000 takes half an hour.
    """
    plan = Plan(**flags)  # type: ignore[arg-type]
    console = Console(width=WIDTH, soft_wrap=True) if not sys.stdout.isatty() else Console()
    result = uvloop.run(run(plan, lambda text: click.echo(text, err=True)))
    print_report(console, plan, result)
    sys.exit(0 if result.kept else 1)


if __name__ == "__main__":
    main()
