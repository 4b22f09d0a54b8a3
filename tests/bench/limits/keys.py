"""Keys: how much more twenty keys carry than one, and how often a provider must refuse.

Each key has 600 requests and 250,000 tokens a minute, and can use ten seconds of that at once; tokens count when a
call comes, with all that it may generate, as OpenAI counts them. Both sides have the same policy but for the keys: the
limits of each, how the provider counts, and else the defaults, so a headroom of 80 % on both. Callers never stop, and
wait in the proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count, cycle
from random import Random
from typing import Any

from tests.bench.limits.callers import Call, Caller, Request, request, session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.sides import Provider, Sponson, start_provider, start_sponson
from tests.bench.rows import Surroundings

MANY = 20
KEY_RPM, KEY_TPM = 600, 250_000
PROMPTS = (200, 350, 500, 300, 650)
MAX_TOKENS = 100
OUTPUT_TOKENS = 60
CALLERS = {1: 24, MANY: 240}
GOAL_RATIO = 19.5
REFERENCE_RATIO = 18.0

FLAGS = (
    f"--key-rpm={KEY_RPM}",
    f"--key-tpm={KEY_TPM}",
    "--window=10s",
    "--latency=uniform:50ms,150ms",
    f"--output-tokens={OUTPUT_TOKENS}",
)
POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{keys}]
    limits: {{concurrency: 100, count: {{unused_output: 1}}}}
    queue: {{max: 1000}}
    timeouts: {{queue: 60s, quota_wait: 60s}}
telemetry: {{log_successes: 0.01}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Seconds until the proxy has learned what calls take, and seconds that are counted."""

    warm_up: float = 20.0
    counted: float = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What so many keys carried: calls and tokens a second that the provider counted, as parts of what it allows.

    `refused` are the provider's 429s in the counted time, `refused_before` those until then; `seen` are the 429s of
    both times that the application got, `failed` its calls that ended with anything but an answer.
    """

    keys: int
    calls_per_second: float
    used: float
    refused: int
    refused_before: int
    seen: int
    failed: int


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> list[Side]:
    """Runs both sides at the same time; none starts or ends a process while the other one counts."""
    with ExitStack() as stack:
        started = [(keys, *_start(around, stack, keys)) for keys in (1, MANY)]
        return list(await asyncio.gather(*(_measure(*one, lengths=lengths) for one in started)))


def _start(around: Surroundings, stack: ExitStack, keys: int) -> tuple[Provider, Sponson]:
    name = f"keys-{keys}"
    secrets = {f"BENCH_KEY_{number}": f"sk-bench-{number}" for number in range(keys)}
    accepted = [f"--api-key={secret}" for secret in secrets.values()]
    provider = start_provider(around, stack, name, [*FLAGS, *accepted])
    written = ", ".join(f"{{id: k{n}, env: BENCH_KEY_{n}, rpm: {KEY_RPM}, tpm: {KEY_TPM}}}" for n in range(keys))
    policy = POLICY.format(url=provider.url, keys=written)
    return provider, start_sponson(around, stack, name, policy, secrets)


async def _measure(keys: int, provider: Provider, sponson: Sponson, *, lengths: Lengths) -> Side:
    loop = asyncio.get_running_loop()
    async with session() as connections, Loads() as loads:
        caller = Caller(connections, sponson.url, random=Random(1))
        loads.saturate(caller, requests(), at_once=CALLERS[keys])
        await asyncio.sleep(lengths.warm_up)
        before = await provider.stats()
        await provider.forget()
        began = loop.time()
        await asyncio.sleep(lengths.counted)
        after, seconds = await provider.stats(), loop.time() - began
        return _side(keys, caller.calls, (before, after), seconds)


def requests() -> Iterator[Request]:
    """Yields prompts of five sizes in turn, so that both sides have the same mix."""
    for number, prompt in zip(count(), cycle(PROMPTS), strict=False):
        yield request(number, prompt=prompt, max_tokens=MAX_TOKENS)


def _side(keys: int, calls: Sequence[Call], told: tuple[Mapping[str, Any], Mapping[str, Any]], seconds: float) -> Side:
    before, after = told
    executed = sum(one["requests"] for one in after["by_key"].values())
    return Side(
        keys=keys,
        calls_per_second=executed / seconds,
        used=after["counted_tokens"] / (keys * KEY_TPM / 60 * seconds),
        refused=after["refusals"],
        refused_before=before["refusals"],
        seen=sum(call.statuses.count(429) for call in calls),
        failed=sum(1 for call in calls if call.ended and not call.answered),
    )


def findings(sides: Sequence[Side]) -> list[Finding]:
    """Returns the ratio, and who met refusals."""
    one, many = sides
    ratio = many.calls_per_second / one.calls_per_second if one.calls_per_second else 0.0
    return [
        Finding(
            name=f"keys: calls a second with {many.keys} keys / with one",
            measured=f"{ratio:.2f} × ({many.calls_per_second:.1f} / {one.calls_per_second:.2f})",
            reference=f"about {REFERENCE_RATIO:g} ×",
            goal=f"≥ {GOAL_RATIO} ×",
            holds=ratio >= GOAL_RATIO,
        ),
        Finding(
            name="keys: tokens that the provider counted, of all that it grants; 80 % are meant to be used",
            measured=f"{many.used:.1%} with {many.keys}, {one.used:.1%} with one",
        ),
        Finding(
            name="keys: 429s that the application got, calls that failed",
            measured=f"{one.seen + many.seen}, {one.failed + many.failed}",
            goal="0, 0",
            holds=one.seen + many.seen + one.failed + many.failed == 0,
        ),
        Finding(
            name="keys: 429s of the provider that the proxy met, in the counted time (before)",
            measured=f"{one.refused + many.refused} ({one.refused_before + many.refused_before})",
            goal="0 once learned",
            holds=one.refused + many.refused == 0,
        ),
    ]
