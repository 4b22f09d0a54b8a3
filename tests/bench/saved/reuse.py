"""Reuse: bursts to several providers, some of them slow, and how many requests find a connection that is open.

All times are a tenth of those in the field. Four quick providers get bursts from agents, each of whom asks some times
in a row; between two bursts lie 4 to 24 seconds (of the field). Two slow ones hold 90 calls all the time, which is not
far from the hundred connections that aiohttp's client has. Providers close what has been idle for 30 s.

One shared pool, as applications have it: an aiohttp `ClientSession` with its defaults, of which the 15 s for idle
connections are scaled down as well. Sponson with its default of 25 s; with connections kept ready; and with 60 s, which
is too long: it must notice what the providers have closed. All run at the same time, with providers of their own.

Then everything pauses for 23 to 33 s, some times, and one request more goes out over each of several connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from random import Random
from time import perf_counter

import aiohttp

from tests.bench.limits.callers import session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.sides import start_sponson
from tests.bench.report import percentile
from tests.bench.rows import Surroundings
from tests.bench.saved.calls import Call, Caller, Question, said
from tests.bench.saved.origins import ANSWER_BODY, Counts, Origin, between, origin

SCALE = 0.1
PATH = "/v1/chat/completions"
HEADER = "x-provider"
QUICK = ("alpha", "beta", "gamma", "delta")
SLOW = ("slow-a", "slow-b")
QUICK_SECONDS, SLOW_SECONDS = (0.2 * SCALE, 0.4 * SCALE), (20 * SCALE, 40 * SCALE)
SLOW_CALLERS = 45
BURST, STEPS = (4, 16), 2
GAPS_SECONDS = (4 * SCALE, 24 * SCALE)
SERVER_IDLE_SECONDS, CLIENT_IDLE_SECONDS = 30 * SCALE, 15 * SCALE
PAUSES_SECONDS = tuple(seconds * SCALE for seconds in (23.0, 29.5, 30.0, 30.2, 26.0, 33.0))
AFTER_A_PAUSE = 4
WARM = BURST[1]
GOAL, REFERENCE_SHARED, REFERENCE = 0.99, 0.62, 0.91

PROVIDER = """\
  {name}:
    base_url: {url}/v1
    keys: [{{id: k1, env: BENCH_KEY_ALPHA}}]
    connections: {{max: 100{connections}}}
"""
ROUTE = """\
  - name: {name}
    match: {{path: {path}, header: {{{header}: {name}}}}}
    tiers: [{{provider: {name}}}]
    retry: {{attempts: 1}}
"""
POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
providers:
{providers}routes:
{routes}telemetry: {{log_successes: 0.01}}
"""


class Way(StrEnum):
    """Who keeps the connections."""

    SHARED = "one shared pool"
    OWN = "Sponson"
    WARM = "Sponson, kept ready"
    LONG = "Sponson, idle too long"


CONNECTIONS = {Way.OWN: "", Way.WARM: f", warm: {WARM}", Way.LONG: f", idle: {60 * SCALE:g}s"}
"""What the policy says beyond the maximum; where idle time is not the point, it is 25 s of the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Seconds until all have their connections, seconds of bursts that count, and how many pauses come then."""

    warm_up: float = 6.0
    counted: float = 24.0
    pauses: int = len(PAUSES_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one way did: counts of its providers; how long the quick ones' calls took; first calls after pauses."""

    way: Way
    counts: Counts
    failed: int
    quick_p50_ms: float
    quick_p99_ms: float
    after_pauses: int
    failed_after_pauses: int

    @property
    def reused(self) -> float:
        """The part of requests on a connection that had carried one before."""
        return self.counts.reused / self.counts.requests if self.counts.requests else 0.0

    @property
    def found(self) -> float:
        """The part of requests that found a connection open, used before or not."""
        return (self.counts.reused + self.counts.ready) / self.counts.requests if self.counts.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """One way under load: its providers, and who calls each of them."""

    way: Way
    origins: Sequence[Origin]
    callers: Mapping[str, Caller]

    def counted(self) -> Counts:
        return sum((origin.counts for origin in self.origins), Counts())

    def calls(self, names: Sequence[str]) -> list[Call]:
        return [call for name in names for call in self.callers[name].calls]


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> list[Side]:
    """Runs all ways at the same time."""
    with ExitStack() as stack:
        async with AsyncExitStack() as providers:
            sides = [await providers.enter_async_context(_running(around, stack, way)) for way in Way]
            return list(await asyncio.gather(*(_measure(side, lengths) for side in sides)))


@asynccontextmanager
async def _running(around: Surroundings, stack: ExitStack, way: Way) -> AsyncIterator[_Running]:
    async with AsyncExitStack() as opened:
        origins = [await opened.enter_async_context(_origin(name)) for name in (*QUICK, *SLOW)]
        if way is Way.SHARED:
            kept = aiohttp.TCPConnector(keepalive_timeout=CLIENT_IDLE_SECONDS)
            connections = await opened.enter_async_context(aiohttp.ClientSession(connector=kept))
            urls = {each.name: each.url for each in origins}
        else:
            connections = await opened.enter_async_context(session())
            sponson = start_sponson(around, stack, f"reuse-{way.name.lower()}", _policy(way, origins), _SECRETS)
            urls = {each.name: sponson.url for each in origins}
        callers = {name: Caller(connections, url) for name, url in urls.items()}
        yield _Running(way=way, origins=origins, callers=callers)


_SECRETS = {"BENCH_KEY_ALPHA": "sk-bench"}


@asynccontextmanager
async def _origin(name: str) -> AsyncIterator[Origin]:
    seconds = between(*(QUICK_SECONDS if name in QUICK else SLOW_SECONDS), seed=name)
    async with origin(name, seconds=seconds, idle_seconds=SERVER_IDLE_SECONDS) as listening:
        yield listening


def _policy(way: Way, origins: Sequence[Origin]) -> str:
    connections = CONNECTIONS[way]
    if "idle" not in connections:
        connections += f", idle: {25 * SCALE:g}s"
    providers = (PROVIDER.format(name=each.name, url=each.url, connections=connections) for each in origins)
    routes = (ROUTE.format(name=each.name, path=PATH, header=HEADER) for each in origins)
    return POLICY.format(providers="".join(providers), routes="".join(routes))


async def _measure(side: _Running, lengths: Lengths) -> Side:
    async with Loads() as loads, asyncio.TaskGroup() as bursts:
        for name in SLOW:
            loads.saturate(side.callers[name], repeat(question(name)), at_once=SLOW_CALLERS)
        bursting = [bursts.create_task(_bursts(side.callers[name], name)) for name in QUICK]
        await asyncio.sleep(lengths.warm_up)
        before, began = side.counted(), perf_counter()
        await asyncio.sleep(lengths.counted)
        counts = side.counted() - before
        for task in bursting:
            task.cancel()
    loaded = side.calls((*QUICK, *SLOW))
    taken = [call.seconds * 1000 for call in side.calls(QUICK) if call.right and call.began >= began]
    after = await _pause(side, PAUSES_SECONDS[: lengths.pauses])
    return Side(
        way=side.way,
        counts=counts,
        failed=sum(bool(call.ended) and not call.right for call in loaded),
        quick_p50_ms=percentile(taken, 0.5),
        quick_p99_ms=percentile(taken, 0.99),
        after_pauses=len(after),
        failed_after_pauses=sum(not call.right for call in after),
    )


async def _bursts(caller: Caller, name: str) -> None:
    """Bursts of agents, until cancelled; the next one is not kept waiting by those who are slow to be answered."""
    random = Random(name)
    async with asyncio.TaskGroup() as agents:
        while True:
            await asyncio.sleep(random.uniform(*GAPS_SECONDS))
            for _ in range(random.randint(*BURST)):
                agents.create_task(_agent(caller, question(name)))


async def _agent(caller: Caller, question: Question) -> None:
    for asked in repeat(question, STEPS):
        await caller.call(asked)


async def _pause(side: _Running, pauses: Sequence[float]) -> list[Call]:
    """Calls every quick provider over some connections, pauses, and calls again; returns what came after pauses."""

    async def at_once() -> list[Call]:
        each = [side.callers[name].call(question(name)) for name in QUICK for _ in range(AFTER_A_PAUSE)]
        return list(await asyncio.gather(*each))

    await at_once()
    after: list[Call] = []
    for seconds in pauses:
        await asyncio.sleep(seconds)
        after += await at_once()
    return after


def question(name: str) -> Question:
    """Asks the provider of this name."""
    fields = {"content-type": "application/json", HEADER: name}
    return Question(path=PATH, body=said("well?"), right=lambda answer: answer == ANSWER_BODY, fields=fields)


def findings(sides: Sequence[Side]) -> list[Finding]:
    """Returns the part of requests that found an open connection, for each way, and who failed after a pause."""
    return [*map(_of_reuse, sides), _of_the_quick(sides), *map(_of_pauses, sides)]


def _of_reuse(side: Side) -> Finding:
    counts = side.counts
    ready = f" ({side.found:.1%} with new ones that were ready)" if side.way is Way.WARM else ""
    failed = f", {side.failed} FAILED" if side.failed else ""
    text = f"{side.reused:.1%}{ready} of {counts.requests:,}; {counts.connections} opened"
    references = {Way.SHARED: REFERENCE_SHARED, Way.OWN: REFERENCE, Way.WARM: REFERENCE}
    promised = side.way is Way.WARM
    return Finding(
        name=f"reuse: on an open connection, {side.way}",
        measured=text + failed,
        reference=f"{references[side.way]:.0%}" if side.way in references else "",
        goal=f"≥ {GOAL:.0%}" if promised else "",
        holds=side.found >= GOAL and not side.failed if promised else None,
    )


def _of_the_quick(sides: Sequence[Side]) -> Finding:
    """What the calls of quick providers take beside slow ones; it depends on how busy the machine is."""
    told = {side.way: side for side in sides}
    both = [f"{told[way].quick_p50_ms:.0f} / {told[way].quick_p99_ms:.0f}" for way in (Way.SHARED, Way.OWN)]
    return Finding(
        name="reuse: P50 / P99 of quick providers beside slow ones, one shared pool, Sponson",
        measured=f"{both[0]}, {both[1]} ms",
    )


def _of_pauses(side: Side) -> Finding:
    own = side.way is not Way.SHARED
    return Finding(
        name=f"reuse: failed after a pause, {side.way}",
        measured=f"{side.failed_after_pauses} of {side.after_pauses}",
        goal="0" if own else "",
        holds=side.failed_after_pauses == 0 and side.after_pauses > 0 if own else None,
    )
