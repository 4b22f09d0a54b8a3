"""`python -m tests.bench`: run the rounds and the experiments, print what they say, write it as JSON if asked.

Exit codes: 0 measured (whether or not the targets hold), 1 a row gave wrong answers or did not start.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import click
import uvloop
from rich.console import Console

from tests.bench import peers
from tests.bench.limits.experiment import LONG, QUICK, Limits, Plan, run_limits
from tests.bench.limits.tables import print_limits
from tests.bench.machine import machine_facts
from tests.bench.measure import Cores, NotReady, Process, pinned
from tests.bench.overload.experiment import LEVELS, Level, run_levels
from tests.bench.overload.results import Result, verdicts
from tests.bench.overload.tables import print_overload
from tests.bench.report import Round, targets
from tests.bench.rounds import Findings, Lengths, RoundRunner
from tests.bench.rows import OWN_ROWS, PEER_ROWS, Row, Surroundings, clean_environment
from tests.bench.saved import experiment as saved_work
from tests.bench.saved.tables import print_saved
from tests.bench.tables import print_report

WIDTH = 170
SHARED_CORE_WORTH_SAYING = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command's options but for where to write."""

    quick: bool
    part: str | None
    rounds: int | None
    seconds: float
    chosen: tuple[str, ...]
    with_peers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one run of the command is to find out: rounds of which rows, levels of overload, limits, work saved."""

    order: Sequence[Row]
    rounds: int
    lengths: Lengths
    levels: Sequence[Level]
    limits: Plan | None
    saved: saved_work.Plan | None


@dataclass(slots=True, kw_only=True)
class Measured:
    """Everything that one run of the command found out."""

    rounds: list[Round] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    overload: list[Result] = field(default_factory=list)
    limits: Limits | None = None
    saved: saved_work.Saved | None = None
    exported: str = ""


@click.command()
@click.option("--quick", is_flag=True, help="One short round alone; with --limits or --saved these, short.")
@click.option("--overload", "part", flag_value="overload", help="Only the overload experiment, a good minute.")
@click.option("--limits", "part", flag_value="limits", help="Only the experiments about limits, some four minutes.")
@click.option("--saved", "part", flag_value="saved", help="Only the experiments about work saved, under three minutes.")
@click.option("--rounds", type=click.IntRange(1, 50), help="Rounds; the tables show medians.  [default: 3]")
@click.option("--seconds", type=click.FloatRange(0.2, 60), default=1.0, show_default=True, help="Counted each time.")
@click.option("--row", "chosen", multiple=True, type=click.Choice([row.value for row in Row]), help="Rounds of these.")
@click.option("--peers", "with_peers", is_flag=True, help="Envoy and nginx too; says how to install what is missing.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here.")
def main(json_path: Path | None, **options: Any) -> None:
    """Measure Sponson beside a bare aiohttp proxy and no proxy, under overload, whether limits hold, what is saved."""
    console = Console(width=WIDTH, soft_wrap=True) if not sys.stdout.isatty() else Console()
    facts = machine_facts()
    console.print(" · ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    console.print()
    try:
        measured = measure(work_of(Options(**options)))
    except NotReady as error:
        raise click.ClickException(str(error)) from error
    print_measured(console, measured)
    if json_path is not None:
        json_path.write_text(json.dumps(as_json(facts, measured), indent=2) + "\n")
    sys.exit(1 if measured.findings.problems or measured.findings.absent else 0)


def work_of(options: Options) -> Work:
    """What was asked for; the experiments follow the rounds only where nothing was left out of these."""
    quick, part = options.quick, options.part
    everything = part is None and not (quick or options.chosen)
    chosen = [Row(name) for name in options.chosen]
    return Work(
        order=[] if part else chosen or which_rows(with_peers=options.with_peers),
        rounds=options.rounds or (1 if quick else 3),
        lengths=Lengths(requests=options.seconds, streams=options.seconds * 1.5, turns=1 if quick else 2),
        levels=LEVELS if everything or part == "overload" else (),
        limits=(QUICK if quick else LONG) if everything or part == "limits" else None,
        saved=(saved_work.QUICK if quick else saved_work.LONG) if everything or part == "saved" else None,
    )


def which_rows(*, with_peers: bool) -> list[Row]:
    """The project's own rows, and the peers that are here; says how to have the others."""
    if not with_peers:
        return list(OWN_ROWS)
    for row in PEER_ROWS:
        if peers.find(row) is None:
            click.echo(f"no {row} here; to have one: {peers.how_to_install(row)}", err=True)
    return [*OWN_ROWS, *(row for row in PEER_ROWS if peers.find(row) is not None)]


def measure(work: Work) -> Measured:
    """Start what all rows share, run the rounds if there are rows, then the experiments."""
    say = partial(click.echo, err=True)
    measured = Measured()
    with shared_surroundings() as around:
        if work.order:
            with helper(around, "awake", core=around.cores.proxy) as awake:
                runner = RoundRunner(around, awake, lengths=work.lengths, say=say)
                measured.rounds = uvloop.run(run_rounds(runner, work.order, work.rounds))
                measured.findings = runner.findings
        if work.levels:
            measured.overload = uvloop.run(run_levels(around, work.levels, say=say))
        if work.limits is not None:
            measured.limits = uvloop.run(run_limits(around, work.limits, say=say))
        if work.saved is not None:
            measured.saved = uvloop.run(saved_work.run_saved(around, work.saved, say=say))
        with urlopen(f"http://127.0.0.1:{around.sink_port}/") as answer:
            measured.exported = answer.read().decode()
    return measured


@contextmanager
def shared_surroundings() -> Iterator[Surroundings]:
    """Provider, telemetry sink and a folder; this process keeps to the load's core meanwhile."""
    around = Surroundings(provider_port=0, sink_port=0, cores=Cores.choose(), folder=Path())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sponson-bench-")))
        around = replace(around, folder=folder)
        stack.enter_context(pinned(around.cores.load))
        ports = [stack.enter_context(helper(around, name)).read_port() for name in ("provider", "sink")]
        yield replace(around, provider_port=ports[0], sink_port=ports[1])


def helper(around: Surroundings, name: str, *, core: int | None = None) -> Process:
    """One of the benchmark's own programs, on the load's core unless told otherwise."""
    return Process(
        [sys.executable, "-m", f"tests.bench.{name}"],
        core=around.cores.load if core is None else core,
        log=around.folder / f"{name}.log",
        env=clean_environment(),
    )


async def run_rounds(runner: RoundRunner, order: Sequence[Row], rounds: int) -> list[Round]:
    """All rounds, every other one in reverse order."""
    done = []
    for number in range(rounds):
        click.echo(f"round {number + 1} of {rounds}", err=True)
        done.append(await runner.run(order if number % 2 == 0 else order[::-1]))
    return done


def print_measured(console: Console, measured: Measured) -> None:
    """Print the tables of what was measured, then what the figures do not say."""
    if measured.rounds:
        print_report(console, measured.rounds)
    if measured.overload:
        print_overload(console, measured.overload)
    if measured.limits is not None:
        print_limits(console, measured.limits.findings)
    if measured.saved is not None:
        print_saved(console, measured.saved.findings)
    print_findings(console, measured.findings, measured.exported)


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


def as_json(facts: dict[str, str], measured: Measured) -> dict[str, object]:
    """Everything measured, as plain values."""
    return {
        "machine": facts,
        "rounds": [{row.value: asdict(sample) for row, sample in one.items()} for one in measured.rounds],
        "targets": [
            {"name": one.name, "limit": one.limit, "figures": list(one.figures), "verdict": one.verdict}
            for one in targets(measured.rounds)
        ],
        "overload": [asdict(one) for one in measured.overload],
        "overload_verdicts": [asdict(one) for one in verdicts(measured.overload)],
        "limits": measured.limits and experiment_json(measured.limits),
        "saved": measured.saved and experiment_json(measured.saved),
        "shared_core": measured.findings.shared_core,
        "problems": measured.findings.problems,
        "absent": {row.value: reason for row, reason in measured.findings.absent.items()},
    }


def experiment_json(found: Limits | saved_work.Saved) -> dict[str, object]:
    """Figures and verdicts of experiments, as plain values."""
    verdicts = [asdict(one) | {"verdict": one.verdict} for one in found.findings]
    return {"figures": found.figures, "verdicts": verdicts}


if __name__ == "__main__":
    main()
