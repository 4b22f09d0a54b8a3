"""Merging: what a model whose batches are cheap can answer, one call for each request and with merged ones.

The model works on one call at a time: 10 ms for one input, 5 % of that for each further one, so a hundred single calls
a second. Requests have one input each. They come at random moments, at a rate that does not wait for answers, or from
callers that ask again once they are answered. Both sides have the same policy but for `merge`;
both know that it works on one call at a time.

The quiet lane: one request at a time with pauses much longer than the window, to both sides in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from tests.bench.limits.callers import session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.sides import Provider, Sponson, start_provider, start_sponson
from tests.bench.rows import Surroundings
from tests.bench.saved.calls import Caller, Taken, vector_questions

CAPACITY = 100.0
"""Single calls a second."""
FLAGS = ("--concurrency=1", "--latency=10ms", "--input-cost=5%")
WINDOW_MS, MOST = 5, 8
OFFERED = 315.0
"""Random arrivals a second: so far above the goal that it is not chance that decides."""
GOAL, REFERENCE = 300.0, 210.0
FEW, MANY = 16, 64
QUIET_SECONDS = (0.03, 0.05)
LONGEST_SECONDS = 30.0
QUIET_GOAL_MS = 1.0
"""What the median of a quiet lane may differ by: the noise of two processes, and a fifth of the window."""

POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 1}}
    queue: {{max: 2000}}
    timeouts: {{queue: 30s}}
routes:
  - name: vectors
    match: {{path: /v1/embeddings}}
    tiers: [{{provider: alpha}}]
{merge}telemetry: {{log_successes: 0.01}}
"""
MERGE = f"    merge: {{window: {WINDOW_MS}ms, max: {MOST}}}\n"


class Way(StrEnum):
    """Whether calls are merged."""

    SINGLE = "one at a time"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How requests come: so many a second, or from so many callers in a closed loop."""

    per_second: float = 0.0
    callers: int = 0

    def __str__(self) -> str:
        return f"{self.callers} callers" if self.callers else f"{self.per_second:.0f} requests/s at random"


BUSY = Load(per_second=OFFERED)
LIMIT = Load(callers=FEW)
CROWD = Load(callers=MANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Seconds until a load has settled; seconds that are counted of random arrivals, and of closed loops; pairs of
    requests to quiet lanes.
    """

    warm_up: float = 1.0
    random: float = 14.0
    closed: float = 5.0
    quiet: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One load: how its requests went, and the calls and inputs that the model got for them."""

    way: Way
    load: Load
    taken: Taken
    model_calls: int
    model_inputs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """One call for each request at its limit, and at half of that; merged calls under each load; and the medians in ms
    of requests to a quiet lane.
    """

    limit: Phase
    half: Phase
    busy: Phase
    few: Phase
    crowd: Phase
    quiet_ms: Mapping[Way, float]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One after the other."""
        return self.limit, self.half, self.busy, self.few, self.crowd


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> Merging:
    """Runs one load after the other, each of them alone."""
    with ExitStack() as stack:
        model = start_provider(around, stack, "merging", FLAGS)
        sides = {way: _start(around, stack, model, way) for way in Way}
        single, merged = (partial(_measure, model, sides[way], way, lengths=lengths) for way in Way)
        limit = await single(LIMIT)
        return Merging(
            limit=limit,
            half=await single(Load(per_second=limit.taken.per_second / 2)),
            busy=await merged(BUSY),
            few=await merged(LIMIT),
            crowd=await merged(CROWD),
            quiet_ms=await _quiet(sides, lengths.quiet),
        )


def _start(around: Surroundings, stack: ExitStack, model: Provider, way: Way) -> Sponson:
    policy = POLICY.format(url=model.url, merge=MERGE if way is Way.MERGED else "")
    name = f"merging-{way.name.lower()}"
    return start_sponson(around, stack, name, policy, {"BENCH_KEY_ALPHA": "sk-bench"})


async def _measure(model: Provider, sponson: Sponson, way: Way, load: Load, *, lengths: Lengths) -> Phase:
    async with session() as connections, Loads() as loads:
        caller = Caller(connections, sponson.url)
        if load.callers:
            loads.saturate(caller, vector_questions(), at_once=load.callers)
        else:
            loads.arrive(caller, vector_questions(), per_second=load.per_second, random=Random(1))
        await asyncio.sleep(lengths.warm_up)
        await model.forget()
        began = perf_counter()
        await asyncio.sleep(lengths.closed if load.callers else lengths.random)
        ended, counts = perf_counter(), await model.stats()
        loads.stop()
        await loads.ended(LONGEST_SECONDS)
    return _phase(way, load, Taken.of(caller.calls, began, ended), counts)


def _phase(way: Way, load: Load, taken: Taken, counts: Mapping[str, Any]) -> Phase:
    calls = sum(counts["by_status"].values())
    return Phase(way=way, load=load, taken=taken, model_calls=calls, model_inputs=counts["inputs"])


async def _quiet(sides: Mapping[Way, Sponson], pairs: int) -> dict[Way, float]:
    random = Random(1)
    async with session() as connections:
        callers = {way: Caller(connections, sponson.url) for way, sponson in sides.items()}
        for _, asked in zip(range(pairs), vector_questions(), strict=False):
            for caller in callers.values():
                await caller.call(asked)
                await asyncio.sleep(random.uniform(*QUIET_SECONDS))
    return {way: median(call.seconds * 1000 for call in caller.calls) for way, caller in callers.items()}


def findings(measured: Merging) -> list[Finding]:
    """Returns each load, those beside a reference with the goal."""
    half, busy = measured.half.taken, measured.busy.taken
    return [
        _plain(measured.limit, reference=f"{CAPACITY:g}/s"),
        _plain(measured.half),
        Finding(
            name=f"merging: {BUSY}, merged",
            measured=_text(measured.busy),
            reference=f"{REFERENCE:g}/s",
            goal=f"≥ {GOAL:g}/s, P99 ≤ {half.p99_ms:.0f} ms",
            holds=busy.per_second >= GOAL and busy.p99_ms <= half.p99_ms and not busy.failed,
        ),
        _plain(measured.few),
        _plain(measured.crowd),
        _of_quiet(measured.quiet_ms),
    ]


def _plain(phase: Phase, *, reference: str = "") -> Finding:
    return Finding(name=f"merging: {phase.load}, {phase.way}", measured=_text(phase), reference=reference)


def _text(phase: Phase) -> str:
    taken = phase.taken
    size = phase.model_inputs / phase.model_calls if phase.model_calls else 0.0
    failed = f", {taken.failed} FAILED" if taken.failed else ""
    batches = f", {size:.1f} in a call" if phase.way is Way.MERGED else ""
    return f"{taken.per_second:.0f}/s (P50 {taken.p50_ms:.0f}, P99 {taken.p99_ms:.0f} ms{batches}{failed})"


def _of_quiet(quiet_ms: Mapping[Way, float]) -> Finding:
    added = quiet_ms[Way.MERGED] - quiet_ms[Way.SINGLE]
    return Finding(
        name="merging: added where nothing else comes, median",
        measured=f"{added:+.2f} ms ({quiet_ms[Way.MERGED]:.2f} / {quiet_ms[Way.SINGLE]:.2f})",
        goal=f"none (within {QUIET_GOAL_MS:g} ms)",
        holds=added <= QUIET_GOAL_MS,
    )
