"""`connections.max`: one more limit that calls wait for, whatever else bounds them; of each provider and address."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.integration.caller import HOST, Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, closes, hangs, in_turn, says, when
from tests.integration.scripted import Script, ScriptedProvider
from tests.integration.talks import Talks, ends, opened

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

PATIENT = {"timeouts": {"queue": "30s"}}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "wide": {"limits": {"concurrency": 50}, "connections": {"max": 2}, **PATIENT},
        "tight": {"limits": {"concurrency": 2}, "connections": {"max": 50}, **PATIENT},
        "talks": {"connections": {"max": 1}, "breaker": "off", **PATIENT},
        "fails": {"connections": {"max": 2}, "breaker": "off", **PATIENT},
        "watched": {"mode": "observe", "connections": {"max": 1}, **PATIENT},
    },
    "routes": [
        route("talks", "talks", retry={"attempts": 1}),
        route("fails", "fails", retry={"attempts": 3, "base": "1ms", "budget": 1.0}),
    ],
}


async def crowd(lab: Lab, provider: str, number: int, path: str = "chat/completions") -> list[Answer]:
    calls = (lab.call(f"/{provider}/v1/{path}", CHAT, within=30) for _ in range(number))
    return await asyncio.gather(*calls)


@pytest.mark.parametrize("name", ["wide", "tight"])
async def test_the_smaller_of_both_limits_bounds_calls_and_all_are_served(lab: Lab, name: str) -> None:
    gate = asyncio.Event()
    lab[name].script = when(gate, says("hi"))
    running = asyncio.ensure_future(crowd(lab, name, 8))
    await lab.proxy.until(lambda status: any(q["waiting"] == 6 for q in status["queues"]))
    assert (await lab.row("connections", provider=name))["in_use"] == 2
    gate.set()
    assert {answer.status for answer in await running} == {200}
    assert (lab[name].peak, lab[name].accepted) == (2, 2)
    row = await lab.row("connections", provider=name)
    assert (row["dials"], row["reuses"], row["reuse_ratio"]) == (2, 6, 0.75)


async def test_a_websocket_is_a_connection_and_the_next_call_waits_for_it(lab: Lab) -> None:
    talks = Talks(lab["talks"])
    path = "/v1/realtime?model=talks"
    async with opened(lab, path) as client:
        provider = await talks.next()
        waits = asyncio.ensure_future(lab.chat("talks", within=30))
        await lab.proxy.until(lambda status: any(q["waiting"] == 1 for q in status["queues"]))
        assert len(lab["talks"].seen) == 1
        lab["talks"].script = says("hi")
        await ends(client, provider)
        assert (await waits).status == 200


@pytest.mark.parametrize("way", [closes, answers(503)], ids=["closes", "answers 503"])
async def test_retries_never_have_more_connections_than_calls_may(lab: Lab, way: Script) -> None:
    lab["fails"].script = in_turn(*[way] * 10, says("hi"))
    outcomes = await asyncio.gather(*(lab.chat("fails", within=30) for _ in range(10)))
    assert any(outcome.attempts > 1 for outcome in outcomes)
    assert lab["fails"].peak <= 2
    await lab.proxy.until(lambda status: all(row["in_use"] == 0 for row in status["connections"]))


async def test_where_limits_are_observed_only_calls_pass_at_once(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["watched"].script = when(gate, says("hi"))
    running = asyncio.ensure_future(crowd(lab, "watched", 3))
    await lab["watched"].has_seen(3)
    assert (await lab.row("connections", provider="watched"))["in_use"] == 3
    gate.set()
    assert {answer.status for answer in await running} == {200}


async def test_each_of_several_addresses_has_its_own_maximum() -> None:
    gate = asyncio.Event()
    async with ScriptedProvider() as second:
        urls = [f"http://{HOST}:{{port}}/v1", f"http://{HOST}:{second.port}/v1"]
        policy = {"version": 1, "providers": {"both": {"base_url": urls, "connections": {"max": 2}, **PATIENT}}}
        async with Lab(policy) as lab:
            first = lab["both"]
            first.script = second.script = when(gate, says("hi"))
            running = asyncio.ensure_future(crowd(lab, "both", 10))
            await lab.proxy.until(lambda status: any(q["waiting"] == 6 for q in status["queues"]))
            rows = (await lab.proxy.status())["connections"]
            assert [row["in_use"] for row in rows] == [2, 2]
            gate.set()
            assert {answer.status for answer in await running} == {200}
            assert (first.peak, second.peak) == (2, 2)


async def test_two_providers_at_one_address_have_connections_of_their_own() -> None:
    async with ScriptedProvider() as shared, AsyncExitStack() as stack:
        url = f"http://{HOST}:{shared.port}/v1"
        policy = {
            "version": 1,
            "providers": {
                "slow": {"base_url": url, "connections": {"max": 2}, **PATIENT},
                "quick": {"base_url": url, "connections": {"max": 1}, **PATIENT},
            },
        }
        lab = await stack.enter_async_context(Lab(policy))
        shared.script = hangs
        running = [asyncio.ensure_future(lab.call("/slow/v1/x", CHAT, within=30)) for _ in range(4)]
        await lab.proxy.until(
            lambda status: any(q["provider"] == "slow" and q["waiting"] == 2 for q in status["queues"])
        )
        shared.script = says("quick")
        for _ in range(3):
            assert (await lab.call("/quick/v1/x", CHAT)).status == 200
        rows = {row["provider"]: (row["in_use"], row["dials"]) for row in (await lab.proxy.status())["connections"]}
        assert rows == {"slow": (2, 2), "quick": (0, 1)}
        for call in running:
            call.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_a_lower_maximum_holds_from_the_next_call_on() -> None:
    gate = asyncio.Event()
    policy: dict[str, Any] = {"version": 1, "providers": {"one": {"connections": {"max": 3}, **PATIENT}}}
    async with Lab(policy) as lab:
        lab["one"].script = when(gate, says("hi"))
        first = asyncio.ensure_future(crowd(lab, "one", 3))
        await lab["one"].has_seen(3)
        lowered = json.loads(json.dumps(lab.policy))
        lowered["providers"]["one"]["connections"]["max"] = 1
        lab.proxy.rewrite(lowered)
        await lab.proxy.until(lambda status: any(row["size"] == 1 for row in status["permits"]), within=20)
        later = asyncio.ensure_future(crowd(lab, "one", 4))
        await lab.proxy.until(lambda status: any(q["waiting"] == 4 for q in status["queues"]))
        gate.set()
        assert {answer.status for answer in await first + await later} == {200}
        lab["one"].forget()
        assert {answer.status for answer in await crowd(lab, "one", 4)} == {200}
        assert lab["one"].peak == 1
