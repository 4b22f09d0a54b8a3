"""The agents in their short form; and that they would see what they must not see."""

from __future__ import annotations

import asyncio
import random
from itertools import islice, takewhile
from time import monotonic

import pytest

from proxy.simulation.provider.profiles import RESEARCH_AGENTS
from tests.integration.scripted import Exchange, ScriptedProvider
from tests.soak.agents import Crowd, Seen, timetable
from tests.soak.bench import Bench
from tests.soak.judge import judge_rest
from tests.soak.plan import Plan
from tests.soak.promises import Book, Promise
from tests.soak.run import begin

SHORT = Plan(seconds=12.0, agents=200, direct=20, scale=32.0, hurry=8.0, crowd_pace_seconds=2.0)


@pytest.mark.timeout(180)
async def test_two_hundred_agents_in_a_hurry_see_no_error_and_leave_nothing_behind() -> None:
    draw = random.Random(3)
    async with Bench(SHORT, draw=random.Random(4)) as bench:
        parts = await begin(SHORT, bench, draw)
        await parts.crowd(warm_up=True)
        before = await bench.quiet()
        await parts.crowd(warm_up=False)
        after = await bench.quiet()
        stats = await bench.simulator.stats()
        judge_rest(bench.book, before, after)
    seen = bench.crowd.through
    assert bench.book.examples == {}
    assert seen.streams > 0
    assert seen.calls > seen.streams
    assert seen.heartbeats > 0
    assert len(seen.delays) == seen.calls
    assert (stats["duplicates"], set(stats["by_status"])) == (0, {"200"})
    assert stats["peak_in_flight"] > 40, "there were never many streams"
    assert parts.slopes["agents"]["downstream"].most >= SHORT.agents


@pytest.mark.parametrize("kind", RESEARCH_AGENTS.kinds, ids=lambda kind: kind.name)
def test_an_agent_asks_as_often_as_its_profile_says(kind: object) -> None:
    for number in range(20):
        table = timetable(RESEARCH_AGENTS, kind, random.Random(number), within=1e9)  # type: ignore[arg-type]
        asked = sum(1 for _ in takewhile(lambda at: at < 1200, table))
        assert abs(asked - 60) <= 6
        soon = timetable(RESEARCH_AGENTS, kind, random.Random(number), within=5.0)  # type: ignore[arg-type]
        times = list(islice(soon, 30))
        assert times[0] <= 5.0
        assert times == sorted(times)


async def play(provider: ScriptedProvider) -> tuple[Seen, Book]:
    """Lets ten agents in a great hurry ask until half of them have."""
    book = Book(monotonic)
    profile = Plan(seconds=0.0, agents=10, hurry=200.0, scale=100.0).profile
    crowd = Crowd(profile, book, port=provider.port, provider=provider.port, direct=0, seed=1)
    crowd.start()
    await provider.has_seen(10, within=20.0)
    await crowd.stop()
    return crowd.through, book


def answering(status: int = 200, *, ends: bool = True, resets: bool = False) -> ScriptedProvider:
    provider = ScriptedProvider()

    async def script(exchange: Exchange) -> None:
        document = exchange.request.json()
        if resets:
            exchange.reset()
        elif status == 200 and document["stream"]:
            token = b'data: {"choices":[{"delta":{"content":"w"}}]}\n\n'
            await exchange.stream([token] * (document["max_tokens"] + 1) + [b"data: [DONE]\n\n"] * ends)
        else:
            await exchange.reply(status, {"choices": []})

    provider.script = script
    return provider


async def test_agents_have_nothing_to_say_of_a_good_provider() -> None:
    async with answering() as provider:
        seen, book = await play(provider)
    assert (book.breaches, seen.calls > 0, seen.streams > 0, seen.open) == ({}, True, True, 0)
    assert {request.header("x-agent-id") for request in provider.seen} <= {f"agent-{number}" for number in range(10)}
    keys = [key for request in provider.seen if (key := request.header("idempotency-key")) is not None]
    assert len(keys) == len(set(keys))
    assert all(key.startswith("agent-") and "/task-1/" in key for key in keys)


@pytest.mark.parametrize(
    "provider",
    [answering(503), answering(ends=False), answering(resets=True)],
    ids=["an error", "a stream without its end", "a reset"],
)
async def test_what_an_agent_must_not_see_is_a_breach(provider: ScriptedProvider) -> None:
    async with provider, asyncio.timeout(30):
        _, book = await play(provider)
    assert set(book.breaches) == {Promise.AGENTS}
