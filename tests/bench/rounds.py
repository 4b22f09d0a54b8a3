"""One round: every row is started, every phase runs with every row in turn, every row is stopped.

Rows follow each other within a phase, there and back again, so that what is compared is seconds apart and
slow changes of the machine cancel out; every other round begins at the other end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import sleep

from tests.bench import report, rows
from tests.bench.load import Load, LoadPlan, drive
from tests.bench.measure import NotReady, Process, core_busy_seconds
from tests.bench.report import Footprint, Requests, Round, Sample, Streams
from tests.bench.rows import Row, Subject, Surroundings

SETTLE_SECONDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Seconds that are counted each time, and how often a phase is gone through: there, back, there ..."""

    requests: float
    streams: float
    turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One kind of traffic that every row gets."""

    connections: int
    stream: bool = False

    def __str__(self) -> str:
        return f"{self.connections} {'streams' if self.stream else 'connections'}"


PHASES = (
    Phase(connections=1),
    Phase(connections=16),
    Phase(connections=report.BUSY_CONNECTIONS),
    Phase(connections=report.MANY_CONNECTIONS),
    Phase(connections=64, stream=True),
)


@dataclass(slots=True)
class Findings:
    """What must be said beside the figures: wrong answers, rows that did not start, a shared core."""

    problems: list[str] = field(default_factory=list)
    absent: dict[Row, str] = field(default_factory=dict)
    shared_core: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Running:
    """A started row and what has been measured of it in this round."""

    subject: Subject
    idle_mib: float = 0.0
    peak_mib: dict[Phase, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    loads: dict[Phase, list[Load]] = field(default_factory=lambda: {phase: [] for phase in PHASES})

    def cpu_seconds(self) -> float:
        return self.subject.process.cpu_seconds() if self.subject.process else 0.0

    def resident_mib(self) -> float:
        return self.subject.process.resident_mib() if self.subject.process else 0.0


class RoundRunner:
    """Runs rounds in the given surroundings; `awake` spins on the proxy's core, `say` hears of each step."""

    def __init__(self, around: Surroundings, awake: Process, *, lengths: Lengths, say: Callable[[str], None]) -> None:
        self._around = around
        self._awake = awake
        self._lengths = lengths
        self._say = say
        self.findings = Findings()

    async def run(self, order: Sequence[Row]) -> Round:
        """One round in this order; a row that does not start is left out and noted."""
        with ExitStack() as stack:
            running = self._start(order, stack)
            there = list(running.items())
            for phase in PHASES:
                for turn in range(self._lengths.turns):
                    for row, one in there if turn % 2 == 0 else reversed(there):
                        await self._drive(row, one, phase)
            return {row: _sample(one) for row, one in running.items()}

    def _start(self, order: Sequence[Row], stack: ExitStack) -> dict[Row, _Running]:
        running: dict[Row, _Running] = {}
        for row in order:
            if row in self.findings.absent:
                continue
            try:
                subject = rows.start(row, self._around)
            except NotReady as error:
                self.findings.absent[row] = str(error)
                continue
            running[row] = _Running(subject)
            if subject.process is not None:
                stack.enter_context(subject.process)
        sleep(SETTLE_SECONDS)
        for one in running.values():
            one.idle_mib = one.resident_mib()
        return running

    async def _drive(self, row: Row, one: _Running, phase: Phase) -> None:
        readings: list[float] = []

        def probe() -> float:
            one.peak_mib[phase] = max(one.peak_mib[phase], one.resident_mib())
            cpu = one.cpu_seconds()
            busy = core_busy_seconds(self._around.cores.proxy)
            readings.append(busy - cpu - self._awake.cpu_seconds())
            return cpu

        plan = LoadPlan(
            port=one.subject.port,
            connections=phase.connections,
            seconds=self._lengths.streams if phase.stream else self._lengths.requests,
            stream=phase.stream,
        )
        try:
            load = await drive(plan, probe=probe)
        except OSError as error:
            printed = one.subject.process.tail() if one.subject.process else "nothing"
            raise NotReady(f"{row}, {phase}: {error}; it printed: {printed}") from error
        one.loads[phase].append(load)
        others = readings[1] - readings[0]
        self.findings.shared_core.append(max(0.0, others / load.seconds))
        self._judge(row, one, phase)

    def _judge(self, row: Row, one: _Running, phase: Phase) -> None:
        load = one.loads[phase][-1]
        count = load.events if phase.stream else load.answers
        cpu = f", {load.probed / count * 1e6:.1f} µs of CPU each" if one.subject.process and count else ""
        self._say(f"{row}, {phase}: {count / load.seconds:,.0f}/s{cpu}")
        problems = load.problems or ([] if count else ["nothing was answered while counting"])
        self.findings.problems += [f"{row}, {phase}: {problem}" for problem in problems]
        if problems and one.subject.process:
            self.findings.problems.append(f"{row} printed: {one.subject.process.tail()}")


def _requests(phase: Phase, one: _Running) -> Requests:
    loads = one.loads[phase]
    answers = sum(load.answers for load in loads)
    latencies = [latency for load in loads for latency in load.latencies]
    proxied = one.subject.process is not None
    return Requests(
        per_second=answers / sum(load.seconds for load in loads),
        p50_ms=report.percentile(latencies, 0.5) * 1e3,
        p99_ms=report.percentile(latencies, 0.99) * 1e3,
        cpu_us=_cpu_us(loads, answers) if proxied else None,
        peak_mib=one.peak_mib[phase] if proxied else None,
    )


def _streams(loads: Sequence[Load], *, proxied: bool) -> Streams:
    events = sum(load.events for load in loads)
    first_bytes = [first_byte for load in loads for first_byte in load.first_bytes]
    return Streams(
        events_per_second=events / sum(load.seconds for load in loads),
        first_byte_p50_ms=report.percentile(first_bytes, 0.5) * 1e3,
        cpu_us=_cpu_us(loads, events) if proxied else None,
    )


def _cpu_us(loads: Sequence[Load], count: int) -> float | None:
    return sum(load.probed for load in loads) / count * 1e6 if count else None


def _sample(one: _Running) -> Sample:
    proxied = one.subject.process is not None
    (streams,) = (loads for phase, loads in one.loads.items() if phase.stream)
    footprint = Footprint(
        idle_mib=one.idle_mib,
        loaded_mib=max(one.peak_mib.values()),
        ready_seconds=one.subject.ready_seconds,
    )
    return Sample(
        requests={phase.connections: _requests(phase, one) for phase in PHASES if not phase.stream},
        streams=_streams(streams, proxied=proxied),
        footprint=footprint if proxied else None,
    )
