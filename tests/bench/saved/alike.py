"""Equal requests: a thousand at once, streams that are joined late, and questions of which a few are asked often.

The model takes 300 to 700 ms. Its answers have an identifier of their own each: callers with the same body were given
the same answer. All requests are one tenant's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random

import aiohttp
import orjson

from tests.bench.limits.callers import session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.sides import Provider, Sponson, start_provider, start_sponson
from tests.bench.report import percentile
from tests.bench.rows import Surroundings
from tests.bench.saved.calls import MODEL, Call, Caller, Question

PATH = "/v1/chat/completions"
FLAGS = ("--latency=uniform:300ms,700ms", "--answer=echo", "--tokens-per-second=40")
QUESTIONS, SKEW = 2000, 1.0
"""Of so many questions the n-th most frequent one is asked 1/n as often as the first one."""
ASKED_PER_SECOND = 120.0
LATE_SECONDS = 0.004
LONGEST_SECONDS = 30.0
STREAM_WORDS = 40

POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
limits: {{concurrency: 5000}}
providers:
  alpha:
    base_url: {url}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 1000}}
routes:
  - name: chat
    match: {{path: /v1/chat/completions}}
    tiers: [{{provider: alpha}}]
    cache: {{ttl: 10m}}
telemetry: {{log_successes: 0.01}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many equal requests come at once, how many equal streams follow each other, seconds of frequent questions."""

    burst: int = 1000
    streams: int = 200
    mixed: float = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Equal requests: how many there were, calls that the model got, answers that were right, and unlike answers."""

    asked: int
    calls: int
    answered: int
    unlike: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """Frequent questions: requests, different questions, calls that the model got; medians of hits and of the rest."""

    asked: int
    questions: int
    calls: int
    failed: int
    hits: int
    hit_p50_ms: float
    other_p50_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """All that was measured."""

    burst: Crowd
    streams: Crowd
    mixed: Mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    model: Provider
    sponson: Sponson
    connections: aiohttp.ClientSession

    async def calls(self) -> int:
        """How many the model got since this was asked for the last time."""
        received = int((await self.model.stats())["received"])
        await self.model.forget()
        return received


async def run(around: Surroundings, lengths: Lengths = Lengths()) -> Alike:
    """Runs one after the other."""
    with ExitStack() as stack:
        model = start_provider(around, stack, "alike", FLAGS)
        secrets = {"BENCH_KEY_ALPHA": "sk-bench"}
        sponson = start_sponson(around, stack, "alike", POLICY.format(url=model.url), secrets)
        async with session() as connections:
            place = _Place(model=model, sponson=sponson, connections=connections)
            await place.calls()
            burst = await _crowd(place, lengths.burst, stream=False, apart_seconds=0.0)
            streams = await _crowd(place, lengths.streams, stream=True, apart_seconds=LATE_SECONDS)
            return Alike(burst=burst, streams=streams, mixed=await _mixed(place, lengths.mixed))


async def _crowd(place: _Place, size: int, *, stream: bool, apart_seconds: float) -> Crowd:
    """So many equal requests, which begin so far apart."""
    bodies: list[bytes] = []

    def right(body: bytes) -> bool:
        bodies.append(body)
        return whole(body, text, stream=stream)

    text = " ".join(["alike"] * STREAM_WORDS)
    asked = question(text, stream=stream)
    asked = Question(path=asked.path, body=asked.body, right=right)
    caller = Caller(place.connections, place.sponson.url)

    async def one(number: int) -> Call:
        await asyncio.sleep(number * apart_seconds)
        return await caller.call(asked)

    calls = await asyncio.gather(*(one(number) for number in range(size)))
    answered = sum(call.right for call in calls)
    return Crowd(asked=size, calls=await place.calls(), answered=answered, unlike=len(set(bodies)))


async def _mixed(place: _Place, seconds: float) -> Mixed:
    texts: set[str] = set()
    caller = Caller(place.connections, place.sponson.url)
    async with Loads() as loads:
        loads.arrive(caller, _frequent(texts), per_second=ASKED_PER_SECOND, random=Random(1))
        await asyncio.sleep(seconds)
        loads.stop()
        await loads.ended(LONGEST_SECONDS)
    return mixed(caller.calls, questions=len(texts), model_calls=await place.calls())


def _frequent(texts: set[str]) -> Iterator[Question]:
    """Yields questions at random, for ever; notes which ones it has asked for."""
    random, numbers = Random(2), range(QUESTIONS)
    weights = [1 / (number + 1) ** SKEW for number in numbers]
    while True:
        for number in random.choices(numbers, weights, k=1000):
            text = f"what about {number}"
            yield question(text)
            texts.add(text)


def mixed(calls: Sequence[Call], *, questions: int, model_calls: int) -> Mixed:
    """Tells hits from what waited for the model, or for another one's call."""
    hits = [call.seconds * 1000 for call in calls if call.right and call.cache == "hit"]
    others = [call.seconds * 1000 for call in calls if call.right and call.cache != "hit"]
    return Mixed(
        asked=len(calls),
        questions=questions,
        calls=model_calls,
        failed=sum(not call.right for call in calls),
        hits=len(hits),
        hit_p50_ms=percentile(hits, 0.5),
        other_p50_ms=percentile(others, 0.5),
    )


def question(text: str, *, stream: bool = False) -> Question:
    """Asks to say this text again, at once or in a stream."""
    document = {"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": text}]}
    return Question(path=PATH, body=orjson.dumps(document), right=lambda body: whole(body, text, stream=stream))


def whole(body: bytes, text: str, *, stream: bool) -> bool:
    """Whether an answer says this text, to its end."""
    if not stream:
        return bool(orjson.loads(body)["choices"][0]["message"]["content"] == text)
    *events, end, rest = body.split(b"\n\n")
    choices = [orjson.loads(event.removeprefix(b"data: "))["choices"][0] for event in events]
    said = "".join(choice["delta"].get("content", "") for choice in choices)
    return said == text and choices[-1]["finish_reason"] == "stop" and end == b"data: [DONE]" and not rest


def findings(measured: Alike) -> list[Finding]:
    """Returns the calls that were made for equal requests, and what hits take."""
    mix = measured.mixed
    saved = 1 - mix.calls / mix.asked if mix.asked else 0.0
    best = 1 - mix.questions / mix.asked if mix.asked else 0.0
    failed = f", {mix.failed} FAILED" if mix.failed else ""
    return [
        _of_crowd(f"equal requests: {measured.burst.asked:,} at once", measured.burst),
        _of_crowd(f"equal requests: {measured.streams.asked} streams, joined one by one", measured.streams),
        Finding(
            name=f"frequent questions: calls saved of {mix.asked:,}",
            measured=f"{saved:.1%} ({mix.calls} calls for {mix.questions} different ones{failed})",
            goal="one call for each",
            holds=mix.calls == mix.questions and mix.failed == 0,
        ),
        Finding(
            name="frequent questions: P50 of a hit / of any other answer",
            measured=f"{mix.hit_p50_ms:.1f} / {mix.other_p50_ms:.0f} ms ({mix.hits:,} hits; at best {best:.1%} saved)",
        ),
    ]


def _of_crowd(name: str, crowd: Crowd) -> Finding:
    calls = "one call" if crowd.calls == 1 else f"{crowd.calls} calls"
    return Finding(
        name=name,
        measured=f"{calls}, {crowd.answered:,} of {crowd.asked:,} answered, {crowd.unlike} different",
        goal="one call, one answer for all",
        holds=crowd.calls == crowd.unlike == 1 and crowd.answered == crowd.asked,
    )
