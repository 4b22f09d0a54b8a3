"""One job floods: fifty agents with short questions, and a batch job that sends all its long contexts at once.

The model serves 32 calls at a time and queues without bound. An agent's call takes 0.4 to 1.2 s, one of the job's five
seconds more; the job keeps 200 of these going. Agents ask twelve times a minute each, four times as often as usual, so
that a minute has enough calls for a P99. Service times are bounded: what their P99 grows by is waiting, and no luck.

The agents alone and with the job, both through Sponson, and with the job straight at the model.
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
from tests.bench.limits.sides import Provider, start_provider, start_sponson
from tests.bench.report import percentile
from tests.bench.rows import Surroundings

SLOTS = 32
AGENTS = 50
ASKED_PER_MINUTE = 12
AGENT_TOKENS, ANSWER_TOKENS = 400, 80
JOB_TOKENS, JOB_ANSWER_TOKENS = 32_000, 1000
SLOWER = {"x-sim-fault": "slow=5s"}
LONGEST_SECONDS = 120.0
REFERENCE_SECONDS, REFERENCE_WITH_LIMITS_SECONDS = 40, 6
GOAL = 1.2

POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
tenants:
  from: [{{header: x-agent-id}}]
  default: {{rps: 3, concurrency: 8, tpm: 200000, context_tokens: 16000}}
  overrides:
    "batch-*": {{class: P2, rps: 50, concurrency: 20, tpm: 20000000, context_tokens: 64000}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 32}}
    queue: {{max: 200}}
routes:
  - name: chat
    match: {{path: /v1/chat/completions}}
    lanes: [{{max_output: 100, share: 0.3}}]
    tiers: [{{provider: alpha}}]
telemetry: {{log_successes: 0.01}}
"""


class Way(StrEnum):
    """How the agents' calls go, and whether the job is there."""

    ALONE = "no job"
    FLOODED = "the job, no limits"
    LIMITED = "the job, with limits"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Seconds until the job has spread, seconds whose calls count, and seconds that count without limits; how many
    calls the job keeps going.
    """

    warm_up: float = 5.0
    counted: float = 60.0
    flooded: float = 25.0
    job_at_once: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Calls of the agents, those that were not answered, and how long they took; calls of the job that were answered,
    a minute."""

    way: Way
    calls: int
    failed: int
    p50_seconds: float
    p99_seconds: float
    job_per_minute: float


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> list[Side]:
    """Runs all ways at the same time, each with a model of its own."""
    with ExitStack() as stack:
        started = [(way, *_start(around, stack, way)) for way in Way]
        return list(await asyncio.gather(*(_measure(*one, lengths=lengths) for one in started)))


def _start(around: Surroundings, stack: ExitStack, way: Way) -> tuple[Provider, str]:
    name = f"flood-{way.name.lower()}"
    flags = [f"--concurrency={SLOTS}", "--latency=uniform:400ms,1200ms", f"--output-tokens={ANSWER_TOKENS}"]
    model = start_provider(around, stack, name, flags)
    if way is Way.FLOODED:
        return model, model.url
    secrets = {"BENCH_KEY_ALPHA": "sk-bench-alpha"}
    return model, start_sponson(around, stack, name, POLICY.format(url=model.url), secrets).url


async def _measure(way: Way, model: Provider, url: str, *, lengths: Lengths) -> Side:
    loop = asyncio.get_running_loop()
    counted = lengths.flooded if way is Way.FLOODED else lengths.counted
    async with session() as connections, Loads() as flood, Loads() as normal:
        job, agents = Caller(connections, url, random=Random(1)), Caller(connections, url, random=Random(2))
        if way is not Way.ALONE:
            flood.saturate(job, _of_the_job(), at_once=int(lengths.job_at_once))
        normal.arrive(agents, _of_the_agents(), per_second=AGENTS * ASKED_PER_MINUTE / 60, random=Random(3))
        await asyncio.sleep(lengths.warm_up)
        began = loop.time()
        await asyncio.sleep(counted)
        normal.stop()
        await normal.ended(LONGEST_SECONDS)
        return _side(way, [call for call in agents.calls if call.began >= began], job.calls, loop.time())


def _of_the_agents() -> Iterator[Request]:
    for number in count():
        fields = {"x-agent-id": f"agent-{number % AGENTS}"}
        yield request(number, prompt=AGENT_TOKENS, max_tokens=ANSWER_TOKENS, fields=fields)


def _of_the_job() -> Iterator[Request]:
    for number in count():
        fields = {"x-agent-id": "batch-nightly", **SLOWER}
        yield request(number, prompt=JOB_TOKENS, max_tokens=JOB_ANSWER_TOKENS, fields=fields)


def _side(way: Way, agents: Sequence[Call], job: Sequence[Call], now: float) -> Side:
    taken = [(call.ended or now) - call.began for call in agents]
    answered = [call.ended for call in job if call.answered]
    seconds = now - job[0].began if job else 1.0
    return Side(
        way=way,
        calls=len(agents),
        failed=sum(not call.answered for call in agents),
        p50_seconds=percentile(taken, 0.5),
        p99_seconds=percentile(taken, 0.99),
        job_per_minute=len(answered) / seconds * 60,
    )


def findings(sides: Sequence[Side]) -> list[Finding]:
    """Returns the agents' P99 of each way, and what came of the job."""
    told = {side.way: side for side in sides}
    alone, flooded, limited = told[Way.ALONE], told[Way.FLOODED], told[Way.LIMITED]
    growth = limited.p99_seconds / alone.p99_seconds
    return [
        Finding(name=f"flood: P99 of {AGENTS} agents, {Way.ALONE}", measured=_seconds(alone)),
        Finding(
            name=f"flood: P99 of {AGENTS} agents, {Way.FLOODED}",
            measured=_seconds(flooded),
            reference=f"about {REFERENCE_SECONDS} s",
        ),
        Finding(
            name=f"flood: P99 of {AGENTS} agents, {Way.LIMITED}",
            measured=f"{_seconds(limited)}, {growth:.2f} × alone",
            reference=f"< {REFERENCE_WITH_LIMITS_SECONDS} s",
            goal=f"≤ {GOAL} × alone",
            holds=growth <= GOAL and limited.failed == 0,
        ),
        Finding(
            name="flood: long calls of the job answered a minute, with limits / without",
            measured=f"{limited.job_per_minute:.0f} / {flooded.job_per_minute:.0f}",
        ),
    ]


def _seconds(side: Side) -> str:
    failed = f", {side.failed} failed" if side.failed else ""
    return f"{side.p99_seconds:.2f} s (P50 {side.p50_seconds:.2f}, {side.calls} calls{failed})"
