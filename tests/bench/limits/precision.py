"""Quota precision: a crowd that meets a quota of which a tenth is left, and how much of a quota is used in ten minutes.

The crowd is real: 200 calls at the same moment through Sponson. Somebody else has used nine tenths of the provider's
quota just before, and only the head of one answer has told of it. The provider would refuse what goes beyond.

The ten minutes are virtual (`tests/bench/quota_precision`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from tests.bench import quota_precision
from tests.bench.limits.callers import Caller, Request, request, session
from tests.bench.limits.finding import Finding
from tests.bench.limits.sides import Provider, start_provider, start_sponson
from tests.bench.quota_provider import Rule
from tests.bench.rows import Surroundings

CROWD = 200
LEFT = 0.1
TPM, BURST_SECONDS = 120_000, 10
WHOLE = TPM / 60 * BURST_SECONDS
PROMPT_TOKENS, ANSWER_TOKENS = 60, 40
LEARNING = 40
SLACK_SECONDS = 0.5
USED = 0.97

FLAGS = (
    f"--tpm={TPM}",
    f"--window={BURST_SECONDS}s",
    f"--output-tokens={ANSWER_TOKENS}",
    "--latency=constant:20ms",
)
POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 400, tpm: 120000, burst: 10s}}
    queue: {{max: 400}}
    timeouts: {{quota_wait: {wait}}}
telemetry: {{log_successes: 0.01}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many crowds come, and the seeds of the virtual runs for each way of counting."""

    crowds: int = 2
    seeds: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What one crowd met: tokens that were left for it and came back meanwhile, tokens and calls that were let in, and
    the provider's refusals. `told` are calls that Sponson refused with a Retry-After."""

    left: float
    admitted: float
    answered: int
    told: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """All crowds, and all virtual runs."""

    crowds: Sequence[Crowd]
    virtual: Sequence[quota_precision.Result]


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> Precision:
    """Runs the crowds one after the other, then the virtual minutes."""
    with ExitStack() as stack:
        provider = start_provider(around, stack, "precision", FLAGS)
        policy = POLICY.format(url=provider.url, wait="100ms")
        sponson = start_sponson(around, stack, "precision", policy, {"BENCH_KEY_ALPHA": "sk-bench-alpha"})
        async with session() as connections:
            straight = Caller(connections, provider.url, random=Random(1))
            through = Caller(connections, sponson.url, random=Random(2), retries=0)
            requests = _requests()
            await _learn(through, requests)
            crowds = [await _crowd(provider, straight, through, requests) for _ in range(int(lengths.crowds))]
    virtual = [quota_precision.run(seed, rule) for rule in Rule for seed in range(int(lengths.seeds))]
    return Precision(crowds=crowds, virtual=virtual)


def _requests() -> Iterator[Request]:
    return (request(number, prompt=PROMPT_TOKENS, max_tokens=ANSWER_TOKENS) for number in count())


async def _learn(through: Caller, requests: Iterator[Request]) -> None:
    """Lets the proxy see what such calls take."""
    while sum(call.answered for call in through.calls) < LEARNING:
        await through.call(next(requests))
        await asyncio.sleep(0.02)


async def _crowd(provider: Provider, straight: Caller, through: Caller, requests: Iterator[Request]) -> Crowd:
    """Waits until all is there again, lets somebody else use it but for a tenth, and lets the crowd come."""
    await asyncio.sleep(BURST_SECONDS + SLACK_SECONDS)
    loop = asyncio.get_running_loop()
    used = request(0, prompt=PROMPT_TOKENS, max_tokens=int(WHOLE * (1 - LEFT)) - PROMPT_TOKENS)
    await straight.call(used)
    began = loop.time()
    probe = await through.call(next(requests))
    await provider.forget()
    calls = await asyncio.gather(*(through.call(next(requests)) for _ in range(CROWD)))
    seconds = loop.time() - began
    told = await provider.stats()
    left = WHOLE * LEFT - (PROMPT_TOKENS + ANSWER_TOKENS) * probe.answered + seconds * TPM / 60
    return _told(left, [call.reason for call in calls], sum(call.answered for call in calls), told)


def _told(left: float, reasons: Sequence[str], answered: int, told: Any) -> Crowd:
    return Crowd(
        left=left,
        admitted=told["counted_tokens"],
        answered=answered,
        told=reasons.count("quota_exhausted"),
        refused=told["refusals"],
    )


def findings(measured: Precision) -> list[Finding]:
    """Returns whether any crowd got more than was left, and how much of ten minutes' quota is used."""
    found = [
        Finding(
            name=f"precision: {CROWD} calls at once with {LEFT:.0%} of the quota left",
            measured=f"{crowd.admitted:,.0f} of {crowd.left:,.0f} tokens admitted, {crowd.answered} calls; "
            f"{crowd.told} told to wait; {crowd.refused} 429s of the provider",
            goal="never more than is left, 0 429s",
            holds=0 < crowd.admitted <= crowd.left and crowd.refused == 0,
        )
        for crowd in measured.crowds
    ]
    return [*found, *_virtual(measured.virtual)]


def _virtual(runs: Sequence[quota_precision.Result]) -> Iterator[Finding]:
    for rule in Rule:
        of = [one for one in runs if one.rule is rule]
        if not of:
            continue
        least, refused = min(one.used for one in of), sum(one.refusals for one in of)
        yield Finding(
            name=f"precision: {quota_precision.MINUTES} virtual minutes, tokens counted {rule}",
            measured=f"{least:.1%} of what is allowed at least, {refused} of {sum(one.calls for one in of):,} refused",
            goal=f"≥ {USED:.0%}, 0",
            holds=least >= USED and refused == 0,
        )
        share = max(one.admitted / one.left for one in of)
        yield Finding(
            name=f"precision: {quota_precision.SIMULTANEOUS} calls at once there, tokens counted {rule}",
            measured=f"{share:.1%} of what was left admitted at most",
            goal="≤ 100%",
            holds=share <= 1,
        )
