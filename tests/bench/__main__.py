"""`python -m tests.bench`: run the rounds, print what they say, write it as JSON if asked.

Exit codes: 0 measured (whether or not the targets hold), 1 a row gave wrong answers or did not start.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import click
import uvloop
from rich.console import Console

from tests.bench.measure import ROOT, Cores, NotReady, Process, pinned
from tests.bench.report import Round, print_report, targets
from tests.bench.rounds import Findings, Lengths, RoundRunner
from tests.bench.rows import Row, Surroundings, clean_environment

WIDTH = 150
SHARED_CORE_WORTH_SAYING = 0.05


@click.command()
@click.option("--quick", is_flag=True, help="One short round: a first impression in under 40 s.")
@click.option("--rounds", type=click.IntRange(1, 50), help="Rounds; the tables show medians.  [default: 3]")
@click.option("--seconds", type=click.FloatRange(0.2, 60), help="Seconds counted each time.  [default: 1]")
@click.option("--row", "chosen", multiple=True, type=click.Choice([row.value for row in Row]), help="Only these.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all rounds here.")
def main(
    *, quick: bool, rounds: int | None, seconds: float | None, chosen: tuple[str, ...], json_path: Path | None
) -> None:
    """Measure Sponson beside a bare aiohttp proxy and no proxy at all."""
    console = Console(width=WIDTH, soft_wrap=True) if not sys.stdout.isatty() else Console()
    order = [Row(name) for name in chosen] or list(Row)
    seconds = seconds or 1.0
    lengths = Lengths(requests=seconds, streams=seconds * 1.5, turns=1 if quick else 2)
    facts = machine_facts()
    console.print(" · ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    console.print()
    try:
        done, findings, exported = measure(order, rounds=rounds or (1 if quick else 3), lengths=lengths)
    except NotReady as error:
        raise click.ClickException(str(error)) from error
    print_report(console, done)
    print_findings(console, findings, exported)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(facts, done, findings), indent=2) + "\n")
    sys.exit(1 if findings.problems or findings.absent else 0)


def machine_facts() -> dict[str, str]:
    """What the figures depend on beside the code."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": current_commit(),
        "CPU": f"{os.cpu_count()} × {cpu}",
        "Linux": platform.release(),
        "Python": platform.python_version(),
        "aiohttp": version("aiohttp"),
        "uvloop": version("uvloop"),
    }


def current_commit() -> str:
    """The short commit id of the checkout, with a plus sign if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "none") + ("+" if git("status", "--porcelain") else "")


def measure(order: Sequence[Row], *, rounds: int, lengths: Lengths) -> tuple[list[Round], Findings, str]:
    """Start what all rows share and run the rounds; also what the telemetry sink took."""
    cores = Cores.choose()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sponson-bench-")))
        stack.enter_context(pinned(cores.load))

        def helper(name: str, core: int = cores.load) -> Process:
            argv = [sys.executable, "-m", f"tests.bench.{name}"]
            log = folder / f"{name}.log"
            return stack.enter_context(Process(argv, core=core, log=log, env=clean_environment()))

        awake = helper("awake", cores.proxy)
        around = Surroundings(
            provider_port=helper("provider").read_port(),
            sink_port=helper("sink").read_port(),
            cores=cores,
            folder=folder,
        )
        say = partial(click.echo, err=True)
        runner = RoundRunner(around, awake, lengths=lengths, say=say)
        done = uvloop.run(run_rounds(runner, order, rounds))
        with urlopen(f"http://127.0.0.1:{around.sink_port}/") as answer:
            exported = answer.read().decode()
    return done, runner.findings, exported


async def run_rounds(runner: RoundRunner, order: Sequence[Row], rounds: int) -> list[Round]:
    """All rounds, every other one in reverse order."""
    done = []
    for number in range(rounds):
        click.echo(f"round {number + 1} of {rounds}", err=True)
        done.append(await runner.run(order if number % 2 == 0 else order[::-1]))
    return done


def print_findings(console: Console, findings: Findings, exported: str) -> None:
    """Say what the figures do not: what was wrong, what is missing, how quiet the machine was."""
    say = partial(console.print, markup=False, highlight=False)
    for row, reason in findings.absent.items():
        say(f"{row} did not start: {reason}")
    for problem in findings.problems:
        say(f"WRONG ANSWERS, the figures do not count: {problem}")
    busiest, usual = max(findings.shared_core, default=0.0), median(findings.shared_core or [0.0])
    if busiest > SHARED_CORE_WORTH_SAYING:
        say(f"The proxy's core was shared: others had {usual:.0%} of it in half the phases, {busiest:.0%} at most.")
    say(f"The telemetry sink took: {exported}")


def as_json(facts: dict[str, str], rounds: Sequence[Round], findings: Findings) -> dict[str, object]:
    """Everything measured, as plain values."""
    return {
        "machine": facts,
        "rounds": [{row.value: asdict(sample) for row, sample in one.items()} for one in rounds],
        "targets": [
            {"name": one.name, "limit": one.limit, "figures": list(one.figures), "verdict": one.verdict}
            for one in targets(rounds)
        ],
        "shared_core": findings.shared_core,
        "problems": findings.problems,
        "absent": {row.value: reason for row, reason in findings.absent.items()},
    }


if __name__ == "__main__":
    main()
