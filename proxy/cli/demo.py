"""`sponson demo`: the proxy against simulated providers, with traffic."""

from __future__ import annotations

import os
import sys

import click

from proxy.simulation.demo.settings import BASE_PORT, HIGHEST_BASE_PORT, DemoSettings

PLAIN_WIDTH = 100


@click.command("demo")
@click.option("--stay", is_flag=True, help="Stay up afterwards, with what to try next, until Ctrl-C.")
@click.option(
    "--base-port",
    type=click.IntRange(1, HIGHEST_BASE_PORT),
    default=BASE_PORT,
    show_default=True,
    help="The proxy's port; the next one is its admin port, the providers have the 11th to the 13th after it.",
)
@click.option("--seconds", type=click.FloatRange(1, 600), default=12, hidden=True, help="Length of the traffic.")
def command(stay: bool, base_port: int, seconds: float) -> None:
    """Run the proxy against three simulated providers, one of which fails and recovers, and report.

    Exit codes: 0 all went well, 1 requests failed that should not have, 2 could not start.
    """
    import uvloop
    from rich.console import Console

    from proxy.simulation.demo.demo import run_demo

    console = Console(highlight=False, width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    settings = DemoSettings(base_port=base_port, seconds=seconds, stay=stay, environ=dict(os.environ))
    sys.exit(uvloop.run(run_demo(settings, console, Console(stderr=True, highlight=False))))
