"""Duplicates: how often a write is executed twice by a provider that executes, and then loses one answer in twenty.

Each of a thousand writes has a body of its own. Callers repeat what failed as SDKs do. Straight to the provider;
through Sponson without keys; and with a key for every write: at a provider that answers a known key without executing
it again, and at one that does not look at keys. The route is not `repeatable`, so only keys make its writes so; five
attempts, because three in a row may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from tests.bench.limits.callers import Call, Caller, Request, request, session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.sides import Provider, start_provider, start_sponson
from tests.bench.rows import Surroundings

LOST = 0.05
AT_ONCE = 16
LONGEST_SECONDS = 120.0
REFERENCE_PER_THOUSAND = 3
KEY = "idempotency-key"
LAST_REFUSED = 409

POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 50}}
    {header}
routes:
  - name: writes
    match: {{path: /v1/chat/completions}}
    tiers: [{{provider: alpha}}]
    repeatable: false
    retry: {{attempts: 5}}
    idempotency: {{header: idempotency-key}}
telemetry: {{log_successes: 0.01}}
"""
DEDUPLICATES = "idempotency_header: Idempotency-Key"


class Way(StrEnum):
    """How the writes go."""

    STRAIGHT = "straight to the provider, no keys"
    UNKEYED = "through sponson, no keys"
    DEDUPLICATED = "through sponson, keys, the provider de-duplicates"
    KEYED = "through sponson, keys, the provider does not"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many writes each way makes."""

    writes: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What became of the writes of one way.

    `twice`: executed more than once, `lost`: answers that the provider lost. `unknown`: callers were told that the
    write may have been executed (`maybe_executed`); `failed`: they were told something else than that or an answer.
    `repeated` of the former asked again with the same key all the same; `refused_again` of these met a 409.
    """

    way: Way
    writes: int
    lost: int
    twice: int
    answered: int
    unknown: int
    failed: int
    repeated: int = 0
    refused_again: int = 0

    @property
    def per_thousand(self) -> float:
        """Executed twice, of a thousand writes."""
        return 1000 * self.twice / self.writes


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> list[Side]:
    """Runs all ways at the same time, each with a provider of its own."""
    with ExitStack() as stack:
        started = [(way, *_start(around, stack, way)) for way in Way]
        return list(await asyncio.gather(*(_measure(*one, writes=int(lengths.writes)) for one in started)))


def _start(around: Surroundings, stack: ExitStack, way: Way) -> tuple[Provider, str]:
    name = f"writes-{way.name.lower()}"
    deduplicates = way is Way.DEDUPLICATED
    flags = ["--latency=uniform:10ms,50ms", f"--fault=lost,rate={LOST}", *["--deduplicate"] * deduplicates]
    provider = start_provider(around, stack, name, flags)
    if way is Way.STRAIGHT:
        return provider, provider.url
    policy = POLICY.format(url=provider.url, header=DEDUPLICATES if deduplicates else "")
    return provider, start_sponson(around, stack, name, policy, {"BENCH_KEY_ALPHA": "sk-bench-alpha"}).url


async def _measure(way: Way, provider: Provider, url: str, *, writes: int) -> Side:
    keyed = way in (Way.DEDUPLICATED, Way.KEYED)
    async with session() as connections, Loads() as loads:
        caller = Caller(connections, url, random=Random(1))
        loads.saturate(caller, _writes(range(writes), keyed=keyed), at_once=AT_ONCE)
        await loads.ended(LONGEST_SECONDS)
        calls, again = caller.calls, Caller(connections, url, random=Random(2), retries=0)
        for asked in _writes(_unknown(calls), keyed=True) if keyed else ():
            await again.call(asked)
    return _side(way, calls, again.calls, await provider.stats())


def _writes(numbers: Sequence[int] | range, *, keyed: bool) -> Iterator[Request]:
    """Yields one write for each number, with a key of agent, task and operation number."""
    for number in numbers:
        fields = {KEY: f"agent-{number % 7}/ledger/{number}"} if keyed else {}
        yield request(number, prompt=60, max_tokens=16, fields=fields)


def _unknown(calls: Sequence[Call]) -> list[int]:
    return [number for number, call in enumerate(calls) if call.reason == "maybe_executed"]


def _side(way: Way, calls: Sequence[Call], again: Sequence[Call], told: Mapping[str, Any]) -> Side:
    unknown = len(_unknown(calls))
    answered = sum(call.answered for call in calls)
    return Side(
        way=way,
        writes=len(calls),
        lost=sum(told["by_fault"].values()),
        twice=told["duplicates"] if way in (Way.DEDUPLICATED, Way.KEYED) else told["repeated_bodies"],
        answered=answered,
        unknown=unknown,
        failed=len(calls) - answered - unknown,
        repeated=len(again),
        refused_again=sum(call.statuses[-1:] == [LAST_REFUSED] for call in again),
    )


def findings(sides: Sequence[Side]) -> list[Finding]:
    """Returns how often each way executed a write twice, and what its callers were told."""
    return [found for side in sides for found in _of(side)]


def _of(side: Side) -> Iterator[Finding]:
    protected = side.way is not Way.STRAIGHT
    yield Finding(
        name=f"duplicates: executed twice of 1,000 writes, {side.way}",
        measured=f"{side.per_thousand:.0f} ({side.lost} answers lost)",
        reference="" if protected else f"{REFERENCE_PER_THOUSAND}",
        goal="0" if protected else "",
        holds=side.twice == 0 if protected else None,
    )
    if protected:
        known = side.way is Way.DEDUPLICATED
        yield Finding(
            name="duplicates: what its callers were told",
            measured=f"{side.answered} answered, {side.unknown} maybe_executed, {side.failed} something else",
            goal="all answered" if known else "each lost answer is a maybe_executed",
            holds=side.failed == 0 and side.unknown == (0 if known else side.lost),
        )
    if side.way is Way.KEYED:
        yield Finding(
            name="duplicates: these, asked again with their keys all the same",
            measured=f"{side.refused_again} of {side.repeated} refused with {LAST_REFUSED}",
            goal="all",
            holds=side.refused_again == side.repeated,
        )
