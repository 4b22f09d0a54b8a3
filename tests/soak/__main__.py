"""`python -m tests.soak`: a thousand reloads under traffic. Exit codes: 0 every promise was kept, 1 one was not."""

from __future__ import annotations

import sys

import click
import uvloop
from rich.console import Console

from tests.soak.report import print_report
from tests.soak.run import Plan, run

WIDTH = 130


@click.command()
@click.option("--reloads", type=click.IntRange(5), default=1000, show_default=True, help="Changes of the policy.")
@click.option("--rate", type=click.FloatRange(5), default=200.0, show_default=True, help="Requests a second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Equal seeds make equal changes.")
def main(*, reloads: int, rate: float, seed: int) -> None:
    """Change the policy of a proxy under traffic again and again, and see that nobody notices.

    A proxy reloads at most once a second, and that is how long a change takes here: 60 take about a minute
    and a half, 1000 about 25 minutes.
    """
    plan = Plan(reloads=reloads, rate=rate, seed=seed)
    console = Console(width=WIDTH, soft_wrap=True) if not sys.stdout.isatty() else Console()
    result = uvloop.run(run(plan, lambda text: click.echo(text, err=True)))
    print_report(console, plan, result)
    sys.exit(0 if result.kept else 1)


if __name__ == "__main__":
    main()
