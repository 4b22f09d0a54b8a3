"""Work that is executed and whose answer is lost, over real sockets; and providers that de-duplicate by a key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.simulation.provider import Latency, ProviderSimulator, SimulatorSettings, parse_fault
from tests.simulation.provider.wire import CHAT, STREAM, Answer, call, chat, connection, eventually, request

KEY = ("Idempotency-Key", "agent1-task2-3")


def simulator(*faults: str, **settings: Any) -> ProviderSimulator:
    return ProviderSimulator(SimulatorSettings(faults=tuple(map(parse_fault, faults)), **settings))


async def keyed(sim: ProviderSimulator, body: Any = None, key: tuple[str, str] = KEY) -> Answer:
    return await call(sim.port, "/v1/chat/completions", body or CHAT, [key])


async def lost(sim: ProviderSimulator, body: Any = None) -> bool:
    """Sends a keyed call and tells whether the connection was reset before any byte of an answer."""
    async with connection(sim.port) as (reader, writer):
        writer.write(request("/v1/chat/completions", body or CHAT, [KEY]))
        try:
            await asyncio.wait_for(reader.readexactly(1), 5)
        except ConnectionResetError:
            return True
    return False


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_a_lost_answer_was_executed(body: Any) -> None:
    async with simulator("lost,first=1", tpm=1000) as sim:
        assert await lost(sim, body)
        seen = sim.requests[-1]
        assert (seen.ended, seen.status, seen.execution, seen.fault) == ("reset", None, 1, "lost")
        assert sim.stats().executions == 1
        assert sim.stats().counted_tokens == seen.tokens > 0


async def test_a_repeated_key_is_executed_twice_and_seen_so() -> None:
    async with simulator("lost,first=1") as sim:
        assert await lost(sim)
        assert (await keyed(sim)).status == 200
        shown = (await call(sim.port, "/sim/requests")).json["requests"]
        assert [(seen["idempotency_key"], seen["execution"]) for seen in shown] == [(KEY[1], 1), (KEY[1], 2)]
        stats = sim.stats()
        assert (stats.executions, stats.duplicates, stats.repeated_bodies) == (2, 1, 1)


async def test_without_a_key_a_repeated_body_is_seen() -> None:
    async with simulator() as sim:
        await chat(sim.port)
        await chat(sim.port)
        await chat(sim.port, body={**CHAT, "n": 2})
        stats = sim.stats()
        assert (stats.executions, stats.duplicates, stats.repeated_bodies) == (3, 0, 1)
        assert [seen.execution for seen in sim.requests] == [1, 2, 1]


async def test_what_fails_or_is_refused_is_not_executed() -> None:
    async with simulator(rpm=1) as sim:
        for fault in ("status=500", "error-in-200"):
            await chat(sim.port, fault)
        await chat(sim.port)
        await call(sim.port, "/v1/messages/count_tokens", CHAT)
        assert sim.stats().executions == 0
        assert {seen.execution for seen in sim.requests} == {0}


async def test_a_call_whose_client_left_before_the_answer_began_is_not_executed() -> None:
    async with simulator(latency=Latency(low=60.0), deduplicate=True) as sim:
        async with connection(sim.port) as (_, writer):
            writer.write(request("/v1/chat/completions", CHAT, [KEY]))
            await eventually(lambda: sim.stats().in_flight == 1)
        await eventually(lambda: sim.requests[-1].ended == "client_closed")
        assert sim.stats().executions == 0


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_a_provider_that_deduplicates_gives_the_lost_answer_without_executing_again(body: Any) -> None:
    async with simulator("lost,first=2", deduplicate=True, rpm=1) as sim:
        assert await lost(sim, body)
        assert await lost(sim, body)
        answers = [await keyed(sim, body) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 200]
        assert answers[0].body == answers[1].body
        assert answers[0].headers["idempotent-replayed"] == "true"
        stats = sim.stats()
        assert (stats.executions, stats.duplicates, stats.replays, stats.refusals) == (1, 0, 3, 0)
        assert [seen.replayed for seen in sim.requests] == [False, True, True, True]


async def test_the_same_key_at_the_same_time_is_executed_once() -> None:
    async with simulator(deduplicate=True, latency=Latency(low=0.2)) as sim:
        answers = await asyncio.gather(*(keyed(sim) for _ in range(5)))
        assert len({answer.body for answer in answers}) == 1
        assert (sim.stats().executions, sim.stats().replays) == (1, 4)
        other = await keyed(sim, key=("idempotency-key", "agent1-task2-4"))
        assert other.body != answers[0].body
        assert sim.stats().executions == 2


@pytest.mark.parametrize("status", [409, 422])
async def test_a_used_key_with_another_body_is_a_conflict(status: int) -> None:
    async with simulator(deduplicate=True, conflict_status=status) as sim:
        await keyed(sim)
        conflict = await keyed(sim, {**CHAT, "n": 2})
        assert (conflict.status, conflict.json["error"]["code"]) == (status, "idempotency_conflict")
        assert (sim.stats().executions, sim.stats().conflicts) == (1, 1)


async def test_a_key_that_was_refused_is_free_for_another_body() -> None:
    async with simulator(deduplicate=True, tpm=100) as sim:
        assert (await keyed(sim, {**CHAT, "max_tokens": 1000})).status == 429
        assert (await keyed(sim, {**CHAT, "max_tokens": 10})).status == 200


async def test_the_header_has_the_name_that_is_configured() -> None:
    async with simulator(deduplicate=True, idempotency_header="X-Operation") as sim:
        for _ in range(2):
            await keyed(sim, key=("x-operation", "7"))
            await keyed(sim)
        assert [seen.idempotency_key for seen in sim.requests] == ["7", None, "7", None]
        assert (sim.stats().replays, sim.stats().executions) == (1, 3)
