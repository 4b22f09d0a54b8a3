"""The whole run: what is to be seen broken is broken first, then a warm-up, the mixed part, the agents, and the end."""

from __future__ import annotations

import asyncio
import math
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from tests.soak.agents import Seen
from tests.soak.bench import PATIENCE_SECONDS, Bench
from tests.soak.footprint import Footprint
from tests.soak.judge import judge_delay, judge_rest, judge_slopes
from tests.soak.operator import Operator
from tests.soak.plan import Plan
from tests.soak.promises import Book, Promise
from tests.soak.slopes import Sampler, Slope

CROWD_ROOM = 20_000
TELL_EVERY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run has counted. `waits` are seconds from the last byte of a policy to its being live."""

    book: Book
    seconds: float
    answers: Counter[str]
    streams: int
    slowest: float
    came: Counter[tuple[str, str]]
    made: Counter[str]
    waits: list[float]
    before: Footprint
    after: Footprint
    slopes: dict[str, dict[str, Slope]]
    agents: Seen
    direct: Seen
    executed: int
    calls: int
    revision: int

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return not self.book.breaches


class Run:
    """One run of a plan on a bench."""

    def __init__(self, plan: Plan, bench: Bench, operator: Operator, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.bench = bench
        self.operator = operator
        self._say = say
        self._changed = 0
        self.slopes: dict[str, dict[str, Slope]] = {}

    async def all(self, *, warm_up: bool) -> None:
        """The mixed part, then the agents where there are some."""
        await self.mixed(warm_up=warm_up)
        if self.plan.agents:
            await self.crowd(warm_up=warm_up)

    async def mixed(self, *, warm_up: bool) -> None:
        """Calls that must not fail, visits of every kind, and one change of the policy after the other."""
        self._say(f"mixed traffic{', to warm up' if warm_up else ''}")
        bench = self.bench
        sampler = Sampler(bench.look)
        sampler.start()
        bench.traffic.start()
        bench.visitors.start()
        for number in self._numbers(warm_up=warm_up):
            await self.operator.change(number)
            if number % TELL_EVERY == TELL_EVERY - 1:
                self._say(f"{number + 1} changes")
        await sampler.stop()
        await bench.visitors.stop()
        await bench.traffic.stop()
        if not warm_up:
            self.slopes["mixed"] = sampler.slopes()

    def _numbers(self, *, warm_up: bool) -> Iterator[int]:
        plan, until = self.plan, monotonic() + self.plan.mixed_seconds(warm_up=warm_up)
        most = plan.changes(warm_up=warm_up)
        while monotonic() < until if most is None else self._changed < most:
            self._changed += 1
            yield self._changed - 1

    async def crowd(self, *, warm_up: bool) -> None:
        """All agents ask, while the policy is changed now and then."""
        plan, bench = self.plan, self.bench
        self._say(f"{plan.profile}{', to warm up' if warm_up else ''}")
        await self._make_room(CROWD_ROOM)
        until = monotonic() + plan.crowd_seconds(warm_up=warm_up)
        bench.crowd.forget()
        sampler = Sampler(bench.look)
        sampler.start()
        bench.crowd.start(within=plan.crowd_seconds(warm_up=True) if warm_up else math.inf)
        while (left := until - monotonic()) > 0:
            await asyncio.sleep(min(left, plan.crowd_pace_seconds))
            if left > plan.crowd_pace_seconds:
                await self.operator.change(self._changed)
                self._changed += 1
        await sampler.stop()
        await bench.crowd.stop()
        if not warm_up:
            self.slopes["agents"] = sampler.slopes()
        await self._make_room(0)

    async def _make_room(self, room: int) -> None:
        self.bench.wanted = replace(self.bench.wanted, crowd=room)
        await self.operator.improve()


async def begin(plan: Plan, bench: Bench, draw: random.Random, say: Callable[[str], None] = lambda text: None) -> Run:
    """Breaks what is to be seen broken, and returns a run that can begin."""
    operator = Operator(bench, draw)
    await _break(bench)
    await operator.begin()
    return Run(plan, bench, operator, say)


async def run(plan: Plan, say: Callable[[str], None] = lambda text: None) -> Result:
    """Runs the plan; raises AssertionError when the proxy does not even start."""
    draw, began = random.Random(plan.seed), monotonic()
    async with Bench(plan, draw=random.Random(draw.random())) as bench:
        parts = await begin(plan, bench, draw, say)
        operator = parts.operator
        await parts.all(warm_up=True)
        before = await bench.quiet()
        await parts.all(warm_up=False)
        await operator.end()
        after = await bench.quiet()
        shown, stats = await bench.policy(), await bench.simulator.stats()
        await _judge_the_end(bench, shown)
        if stats["duplicates"]:
            bench.book.breach(Promise.ONCE, f"{stats['duplicates']} of {stats['executions']} executions")
        judge_rest(bench.book, before, after)
        judge_slopes(bench.book, parts.slopes)
        judge_delay(bench.book, plan, bench.crowd.through, bench.crowd.direct)
        await _stop(bench)
        return Result(
            book=bench.book,
            seconds=monotonic() - began,
            answers=bench.callers.answers,
            streams=bench.callers.streams,
            slowest=bench.callers.slowest,
            came=bench.visitors.came,
            made=operator.made,
            waits=operator.waits,
            before=before,
            after=after,
            slopes=parts.slopes,
            agents=bench.crowd.through,
            direct=bench.crowd.direct,
            executed=stats["executions"],
            calls=sum(server.received for server in bench.servers.values()),
            revision=shown["revision"],
        )


async def _break(bench: Bench) -> None:
    """Opens a breaker, has a key rest and another parked; from then on nobody may come there."""
    until = monotonic() + PATIENCE_SECONDS
    while not _broken(await bench.proxy.status()):
        assert monotonic() < until, "a breaker, a resting key and a parked one could not be brought about"
        await bench.callers.ask("broken")
        await bench.callers.ask("keyed")
    bench.rules.closed = True


def _broken(status: Any) -> bool:
    states = {row["id"]: row["state"] for row in status["keys"]}
    opened = any(row["provider"] == "broken" and row["state"] == "open" for row in status["breakers"])
    return opened and states["resting"] == "resting" and states["parked"] == "parked"


async def _judge_the_end(bench: Bench, shown: Any) -> None:
    book = bench.book
    await bench.callers.ask("m0")
    if (number := bench.servers["steady"].number) != str(bench.wanted.number):
        book.breach(Promise.LIVE, f"a call went by policy {number}, the last one is {bench.wanted.number}")
    if shown["problems"] or shown["hash"] != shown["hash_seen"]:
        book.breach(Promise.LIVE, f"/policy shows {shown}")


async def _stop(bench: Bench) -> None:
    """Ends the proxy, which must be glad to."""
    bench.proxy.signal(signal.SIGTERM)
    code, log = await bench.proxy.exited(within=30.0), bench.proxy.log()
    if code != 0 or "Traceback" in log:
        bench.book.breach(Promise.CLEAN, f"exit code {code}: {log[-2000:]}")
