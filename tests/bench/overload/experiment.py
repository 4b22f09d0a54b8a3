"""Runs one level of load after the other: both applications at the same time, each with a model of its own.

The model of the unprotected application and both of Sponson's share a core with the load; Sponson has its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from random import Random
from urllib.request import urlopen

from tests.bench.measure import NotReady, Process
from tests.bench.overload.application import Application, Call, Patience
from tests.bench.overload.arrivals import Arrivals
from tests.bench.overload.model import Statistics, allow_many_connections
from tests.bench.overload.protection import (
    CAPACITY_PER_SECOND,
    MEAN_SECONDS,
    POLICY,
    SLOTS,
    SMALL_MEAN_SECONDS,
    SMALL_SLOTS,
)
from tests.bench.overload.results import Result, Told, Way, result
from tests.bench.report import percentile
from tests.bench.rows import Subject, Surroundings, clean_environment, start_sponson

GRACE_SECONDS = Patience().attempt_seconds + 0.5
POLL_SECONDS = 0.1
OPEN_FILES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """How much is offered, as a multiple of what the model can do, and for how long; only the second part counts."""

    load: float
    warm_up_seconds: float
    seconds: float


# Half as much again as it can do fills ten seconds of the model's queue in twenty.
LEVELS = (
    Level(load=0.5, warm_up_seconds=3.0, seconds=8.0),
    Level(load=1.0, warm_up_seconds=3.0, seconds=12.0),
    Level(load=1.5, warm_up_seconds=20.0, seconds=10.0),
)


@dataclass(slots=True, kw_only=True)
class _Side:
    """One application with its model."""

    way: Way
    model_port: int
    application: Application
    arrivals: Arrivals
    subject: Subject | None = None
    first: int = 0
    last: int = 0
    cpu_seconds: float = 0.0

    def counted(self) -> list[Call]:
        return self.application.calls[self.first : self.last]

    def proxy_seconds(self) -> float:
        return self.subject.process.cpu_seconds() if self.subject and self.subject.process else 0.0


async def run_levels(around: Surroundings, levels: Sequence[Level], *, say: Callable[[str], None]) -> list[Result]:
    """All levels, each with fresh processes; raises NotReady where too few files may be open."""
    if allow_many_connections() < OPEN_FILES:
        raise NotReady(f"the overload experiment needs {OPEN_FILES:,} open files: ulimit -n")
    results = []
    for level in levels:
        seconds = level.warm_up_seconds + level.seconds
        say(f"overload: {level.load:g} × {CAPACITY_PER_SECOND:.0f}/s for {seconds:.0f} s and what is left then")
        with ExitStack() as stack:
            results += await _run_level(around, level, stack)
    return results


async def _run_level(around: Surroundings, level: Level, stack: ExitStack) -> list[Result]:
    sides = _start(around, level, stack)
    for side in sides:
        side.arrivals.start()
    await asyncio.sleep(level.warm_up_seconds)
    for side in sides:
        side.first, side.cpu_seconds = len(side.application.calls), side.proxy_seconds()
    await asyncio.sleep(level.seconds)
    for side in sides:
        side.last, side.cpu_seconds = len(side.application.calls), side.proxy_seconds() - side.cpu_seconds
    await _grace(sides)
    cut_at = asyncio.get_running_loop().time()
    for side in sides:
        side.arrivals.stop()
        side.application.close()
    return [await _result(side, level, cut_at) for side in sides]


def _start(around: Surroundings, level: Level, stack: ExitStack) -> list[_Side]:
    def model(name: str, slots: int, mean: float) -> int:
        argv = [sys.executable, "-m", "tests.bench.overload.model", f"--slots={slots}", f"--mean={mean}"]
        log = around.folder / f"{name}.log"
        process = Process(argv, core=around.cores.load, log=log, env=clean_environment())
        return stack.enter_context(process).read_port()

    alone = model("alone", SLOTS, MEAN_SECONDS)
    large = model("large", SLOTS, MEAN_SECONDS)
    small = model("small", SMALL_SLOTS, SMALL_MEAN_SECONDS)
    sponson = start_sponson(around, POLICY.format(large_port=large, small_port=small))
    if sponson.process is not None:
        stack.enter_context(sponson.process)
    return [
        _side(Way.UNPROTECTED, level, port=alone, model_port=alone),
        replace(_side(Way.PROTECTED, level, port=sponson.port, model_port=large), subject=sponson),
    ]


def _side(way: Way, level: Level, *, port: int, model_port: int) -> _Side:
    """Both sides have the same arrivals: their randomness begins alike."""
    application = Application(port, random=Random(2))
    per_second = level.load * CAPACITY_PER_SECOND
    arrivals = Arrivals(application.begin, per_second=per_second, random=Random(3))
    return _Side(way=way, model_port=model_port, application=application, arrivals=arrivals)


async def _grace(sides: Sequence[_Side]) -> None:
    """Keep the load on until all counted calls have ended, or their first attempts must have."""
    loop = asyncio.get_running_loop()
    until = loop.time() + GRACE_SECONDS
    while loop.time() < until and any(call.ending is None for side in sides for call in side.counted()):
        await asyncio.sleep(POLL_SECONDS)


async def _result(side: _Side, level: Level, cut_at: float) -> Result:
    model = await asyncio.to_thread(_ask, side.model_port)
    told = Told(
        longest_queue=model.longest_queue,
        left=model.left_while_waiting + model.left_while_running,
        late_seconds=percentile(side.arrivals.late, 0.99),
        model_late_seconds=model.late_p99_ms / 1e3,
        proxy_cpu=side.cpu_seconds / level.seconds,
    )
    return result(side.way, side.counted(), told, load=level.load, seconds=level.seconds, cut_at=cut_at)


def _ask(port: int) -> Statistics:
    with urlopen(f"http://127.0.0.1:{port}/") as answer:
        return Statistics(**json.loads(answer.read()))
