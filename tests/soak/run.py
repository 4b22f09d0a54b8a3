"""The whole run: what is to be seen broken is broken first, then warm-up, the reloads, and the end."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from tests.soak.bench import Bench, Footprint
from tests.soak.operator import Operator
from tests.soak.promises import Book, Promise

WARM_UP = 0.2
MOST_WARM_UP = 100
MORE_MIB = 10.0
MORE_DESCRIPTORS = 2
ENOUGH_TO_PARK = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long a run is: changes of the policy, requests a second; equal seeds make equal changes."""

    reloads: int
    rate: float
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run has counted. `waits` are seconds from the last byte of a policy to its being live."""

    book: Book
    seconds: float
    answers: Counter[str]
    streams: int
    slowest: float
    made: Counter[str]
    waits: list[float]
    before: Footprint
    after: Footprint
    calls: int
    revision: int

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return not self.book.breaches


async def run(plan: Plan, say: Callable[[str], None] = lambda text: None) -> Result:
    """Runs the plan; raises AssertionError when the proxy does not even start."""
    draw, began = random.Random(plan.seed), monotonic()
    async with Bench(rate=plan.rate, draw=random.Random(draw.random())) as bench:
        operator = Operator(bench, draw)
        await _break(bench)
        await operator.begin()
        warm_up = min(MOST_WARM_UP, max(2, round(plan.reloads * WARM_UP)))
        bench.traffic.start()
        await _changes(operator, range(warm_up), plan, say)
        await bench.traffic.stop()
        before = await bench.quiet()
        bench.traffic.start()
        await _changes(operator, range(warm_up, plan.reloads), plan, say)
        await operator.end()
        await bench.traffic.stop()
        after = await bench.quiet()
        shown = await bench.policy()
        await _judge_the_end(bench, shown, before, after)
        await _stop(bench)
        return Result(
            book=bench.book,
            seconds=monotonic() - began,
            answers=bench.callers.answers,
            streams=bench.callers.streams,
            slowest=bench.callers.slowest,
            made=operator.made,
            waits=operator.waits,
            before=before,
            after=after,
            calls=sum(server.received for server in bench.servers.values()),
            revision=shown["revision"],
        )


async def _changes(operator: Operator, numbers: range, plan: Plan, say: Callable[[str], None]) -> None:
    for number in numbers:
        await operator.change(number)
        if number % 50 == 49:
            say(f"{number + 1} of {plan.reloads} changes")


async def _break(bench: Bench) -> None:
    """Opens a breaker, has a key rest and another parked; from then on nobody may come there."""
    until = monotonic() + 30.0
    while not _broken(await bench.proxy.status()):
        assert monotonic() < until, "a breaker, a resting key and a parked one could not be brought about"
        await bench.callers.ask("broken")
        await bench.callers.ask("keyed")
    bench.rules.closed = True


def _broken(status: Any) -> bool:
    states = {row["id"]: row["state"] for row in status["keys"]}
    opened = any(row["provider"] == "broken" and row["state"] == "open" for row in status["breakers"])
    return opened and states["resting"] == "resting" and states["parked"] == "parked"


async def _judge_the_end(bench: Bench, shown: Any, before: Footprint, after: Footprint) -> None:
    book = bench.book
    await bench.callers.ask("m0")
    if (number := bench.servers["steady"].number) != str(bench.wanted.number):
        book.breach(Promise.LIVE, f"a call went by policy {number}, the last one is {bench.wanted.number}")
    if shown["problems"] or shown["hash"] != shown["hash_seen"]:
        book.breach(Promise.LIVE, f"/policy shows {shown}")
    if after.mib > before.mib + MORE_MIB:
        book.breach(Promise.MEMORY, f"{before.mib:.1f} MiB after the warm-up, {after.mib:.1f} MiB at the end")
    if after.descriptors > before.descriptors + MORE_DESCRIPTORS:
        book.breach(Promise.DESCRIPTORS, f"{before.descriptors} after the warm-up, {after.descriptors} at the end")


async def _stop(bench: Bench) -> None:
    """Ends the proxy, which must be glad to."""
    bench.proxy.signal(signal.SIGTERM)
    code, log = await bench.proxy.exited(within=30.0), bench.proxy.log()
    if code != 0 or "Traceback" in log:
        bench.book.breach(Promise.CLEAN, f"exit code {code}: {log[-2000:]}")
