from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator

import pytest

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from tests.simulation.provider.wire import CHAT, call, chat, connection, read_answer, request


@pytest.fixture
async def sim() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(name="alpha")) as running:
        yield running


async def test_requests_show_what_really_came(sim: ProviderSimulator) -> None:
    body = json.dumps({**CHAT, "pad": "x" * 2000}).encode()
    headers = [("X-First", "1"), ("x-first", "2"), ("AUTHORIZATION", "Bearer k")]
    await call(sim.port, "/v1/chat/completions?a=%2F&b", body, headers)
    shown = (await call(sim.port, "/sim/requests")).json["requests"]
    assert len(shown) == 1
    assert shown[0]["target"] == "/v1/chat/completions?a=%2F&b"
    assert shown[0]["headers"][1:4] == [["X-First", "1"], ["x-first", "2"], ["AUTHORIZATION", "Bearer k"]]
    assert shown[0]["body_sha256"] == hashlib.sha256(body).hexdigest()
    assert shown[0]["body_start"] == body[:1024].decode()
    assert (shown[0]["ended"], shown[0]["status"], shown[0]["model"]) == ("answered", 200, "m")
    assert shown[0]["ended_after_seconds"] >= 0
    assert sim.requests[0].header("x-FIRST") == "1"


async def test_the_ring_keeps_the_last_thousand(sim: ProviderSimulator) -> None:
    async with connection(sim.port) as (reader, writer):
        for _ in range(1005):
            writer.write(request("/v1/models"))
            await read_answer(reader)
    assert [sim.requests[0].number, sim.requests[-1].number, len(sim.requests)] == [6, 1005, 1000]
    assert len({seen.peer for seen in sim.requests}) == 1
    assert sim.stats().received == 1005


async def test_stats_are_shown_and_reset(sim: ProviderSimulator) -> None:
    await chat(sim.port)
    await chat(sim.port, "status=503")
    stats = (await call(sim.port, "/sim/stats")).json
    assert (stats["received"], stats["by_status"], stats["by_fault"]) == (
        2,
        {"200": 1, "503": 1},
        {"status": 1},
    )
    assert stats["by_ending"] == {"answered": 2}
    reset = (await call(sim.port, "/sim/stats", method="DELETE")).json
    assert (reset["received"], reset["peak_in_flight"], reset["by_status"]) == (0, 0, {})
    assert (await call(sim.port, "/sim/requests")).json == {"requests": []}


async def test_faults_are_replaced_and_removed(sim: ProviderSimulator) -> None:
    answer = await call(sim.port, "/sim/faults", ["status=503,to=60s", {"slow": "1ms"}])
    assert answer.json == {"faults": ["status=503,to=60s", "slow=0.001s"]}
    assert (await chat(sim.port)).status == 503
    await call(sim.port, "/sim/faults", ["status=500"])
    assert (await chat(sim.port)).status == 500
    assert (await call(sim.port, "/sim/faults", method="DELETE")).json == {"faults": []}
    assert (await chat(sim.port)).status == 200


@pytest.mark.parametrize("body", [b"{", {"status": 503}, ["stauts=503"]])
async def test_bad_faults_change_nothing(sim: ProviderSimulator, body: object) -> None:
    sim.set_faults(["status=503"])
    answer = await call(sim.port, "/sim/faults", body)
    assert answer.status == 400
    assert answer.json["error"]
    assert (await call(sim.port, "/sim/faults")).json == {"faults": ["status=503"]}


async def test_health_names_the_provider(sim: ProviderSimulator) -> None:
    assert (await call(sim.port, "/health")).json == {"status": "ok", "provider": "alpha"}
    assert sim.requests == ()


async def test_an_open_request_is_shown_as_open(sim: ProviderSimulator) -> None:
    async with connection(sim.port) as (_, writer):
        writer.write(request("/v1/chat/completions", CHAT, [("x-sim-fault", "silence")]))
        async with asyncio.timeout(5):
            while not (await call(sim.port, "/sim/stats")).json["in_flight"]:
                await asyncio.sleep(0.005)
        shown = (await call(sim.port, "/sim/requests")).json["requests"]
        assert (shown[0]["ended"], shown[0]["fault"]) == ("open", "silence")
