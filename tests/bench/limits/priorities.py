"""Priorities: what P0 notices of P1 and P2 that take all they can get, where permits are scarce and where tokens are.

A fifth of every share is kept for P0, which asks eight times a second at random moments; P1 and P2 never stop asking.
Calls take 0.2 to 0.6 s: bounded, so that what P0's P99 grows by is waiting, and no luck. A P2 that has waited eight
seconds queues as P1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from random import Random

from tests.bench.limits.callers import Call, Caller, Request, request, session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.sides import Provider, Sponson, start_provider, start_sponson
from tests.bench.report import percentile
from tests.bench.rows import Surroundings

URGENT_PER_SECOND = 8.0
P1_AT_ONCE, P2_AT_ONCE = 120, 40
PROMPT_TOKENS, ANSWER_TOKENS = 300, 50
LONGEST_SECONDS = 60.0
GOAL = 1.1

POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
classes:
  P0: {{reserved: 0.2}}
  P2: {{promote_after: 8s}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{{limits}}}
    queue: {{max: 500}}
    timeouts: {{queue: 60s, quota_wait: 60s}}
routes:
  - name: chat
    match: {{path: /v1/chat/completions}}
    class_from_header: true
    tiers: [{{provider: alpha}}]
telemetry: {{log_successes: 0.01}}
"""


class Way(StrEnum):
    """What the others take."""

    IDLE = "nobody else asks"
    PERMITS = "others take all permits"
    TOKENS = "others take all tokens"


# Of 50 permits P0 needs three, of 15,000 tokens a second 2,800.
SCARCE = {
    Way.IDLE: "concurrency: 50, tpm: 1125000",
    Way.PERMITS: "concurrency: 50",
    Way.TOKENS: "concurrency: 200, tpm: 1125000",
}
TPM_OF_THE_PROVIDER = 1_125_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Seconds until everything is taken, and seconds whose calls count."""

    warm_up: float = 10.0
    counted: float = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """P0's calls and how long they took; how many calls of any class failed; answered calls of P1 and P2 a second,
    all calls of P2 that were made and those of them that were answered; the provider's refusals."""

    way: Way
    calls: int
    failed: int
    p50_seconds: float
    p99_seconds: float
    p1_per_second: float
    p2_per_second: float
    p2_made: int
    p2_answered: int
    refused: int


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> list[Side]:
    """Runs all ways at the same time, each with a provider of its own."""
    with ExitStack() as stack:
        started = [(way, *_start(around, stack, way)) for way in Way]
        return list(await asyncio.gather(*(_measure(*one, lengths=lengths) for one in started)))


def _start(around: Surroundings, stack: ExitStack, way: Way) -> tuple[Provider, Sponson]:
    name = f"priorities-{way.name.lower()}"
    flags = ["--latency=uniform:200ms,600ms", f"--output-tokens={ANSWER_TOKENS}"]
    if way is Way.TOKENS:
        flags += [f"--tpm={TPM_OF_THE_PROVIDER}", "--window=5s"]
    provider = start_provider(around, stack, name, flags)
    policy = POLICY.format(url=provider.url, limits=SCARCE[way])
    return provider, start_sponson(around, stack, name, policy, {"BENCH_KEY_ALPHA": "sk-bench-alpha"})


async def _measure(way: Way, provider: Provider, sponson: Sponson, *, lengths: Lengths) -> Side:
    loop = asyncio.get_running_loop()
    async with session() as connections, Loads() as loads:
        callers = [Caller(connections, sponson.url, random=Random(klass)) for klass in range(3)]
        loads.arrive(callers[0], _of("P0"), per_second=URGENT_PER_SECOND, random=Random(4))
        if way is not Way.IDLE:
            loads.saturate(callers[1], _of("P1"), at_once=P1_AT_ONCE)
            loads.saturate(callers[2], _of("P2"), at_once=P2_AT_ONCE)
        await asyncio.sleep(lengths.warm_up)
        began = loop.time()
        await asyncio.sleep(lengths.counted)
        until = loop.time()
        loads.stop()
        await loads.ended(LONGEST_SECONDS)
        told = await provider.stats()
    return _side(way, [caller.calls for caller in callers], (began, until), told["refusals"])


def _of(klass: str) -> Iterator[Request]:
    for number in count():
        fields = {"x-sponson-class": klass}
        yield request(number, prompt=PROMPT_TOKENS, max_tokens=ANSWER_TOKENS, fields=fields)


def _side(way: Way, calls: Sequence[Sequence[Call]], counted: tuple[float, float], refused: int) -> Side:
    began, until = counted
    urgent = [call for call in calls[0] if call.began >= began]
    taken = [call.ended - call.began for call in urgent if call.ended]
    rates = [sum(call.answered and began <= call.ended < until for call in of) / (until - began) for of in calls]
    return Side(
        way=way,
        calls=len(urgent),
        failed=sum(not call.answered for of in calls for call in of),
        p50_seconds=percentile(taken, 0.5),
        p99_seconds=percentile(taken, 0.99),
        p1_per_second=rates[1],
        p2_per_second=rates[2],
        p2_made=len(calls[2]),
        p2_answered=sum(call.answered for call in calls[2]),
        refused=refused,
    )


def findings(sides: Sequence[Side]) -> list[Finding]:
    """Returns P0's P99 beside that of an idle system, and that P2 comes to its end."""
    idle = next(side for side in sides if side.way is Way.IDLE)
    found = [Finding(name=f"priorities: P99 of P0, {Way.IDLE}", measured=_seconds(idle))]
    for side in sides:
        if side is idle:
            continue
        growth = side.p99_seconds / idle.p99_seconds
        found.append(
            Finding(
                name=f"priorities: P99 of P0, {side.way}",
                measured=f"{_seconds(side)}, {growth:.2f} × idle",
                goal=f"≤ {GOAL} × idle",
                holds=growth <= GOAL,
            )
        )
        found.append(
            Finding(
                name=f"priorities: P2 finishes, {side.way}",
                measured=f"{side.p2_answered} of {side.p2_made}, {side.p2_per_second:.1f}/s beside "
                f"{side.p1_per_second:.1f}/s of P1; {side.failed} calls of all failed, {side.refused} 429s",
                goal="all; 0 failed, 0 429s",
                holds=0 < side.p2_answered == side.p2_made and side.failed == side.refused == 0,
            )
        )
    return found


def _seconds(side: Side) -> str:
    return f"{side.p99_seconds * 1e3:.0f} ms (P50 {side.p50_seconds * 1e3:.0f}, {side.calls} calls)"
