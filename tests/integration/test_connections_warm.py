"""`connections.warm`: ready before they are needed, and never in the way of anything."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest

from tests.integration.caller import HOST
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, hangs, says, when
from tests.integration.scripted import ScriptedProvider
from tests.ports import free_port

pytestmark = pytest.mark.asyncio

LONG = 20.0


def policy(**connections: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": 1,
        "providers": {name: {"connections": one, "timeouts": {"queue": "30s"}} for name, one in connections.items()},
    }


async def idle(lab: Lab, provider: str, number: int) -> None:
    """Waits until so many connections of a provider are idle."""
    await lab.proxy.until(
        lambda status: any(
            row["provider"] == provider and row["idle"] == number and row["in_use"] == 0
            for row in status["connections"]
        ),
        within=LONG,
    )


async def test_the_first_request_after_a_start_finds_a_connection() -> None:
    async with Lab(policy(alpha={"warm": 3}, cold={})) as lab:
        await idle(lab, "alpha", 3)
        assert (lab["alpha"].accepted, lab["cold"].accepted) == (3, 0)
        for _ in range(4):
            assert (await lab.call("/alpha/v1/x", CHAT)).status == 200
        row = await lab.row("connections", provider="alpha")
        assert (row["dials"], row["reuses"], row["reuse_ratio"], row["warm"]) == (0, 4, 1.0, 3)


async def test_a_reload_that_raises_it_or_brings_a_provider_warms_them() -> None:
    async with Lab(policy(alpha={})) as lab, ScriptedProvider() as other:
        assert (await lab.call("/alpha/v1/x", CHAT)).status == 200
        more = json.loads(json.dumps(lab.policy))
        more["providers"]["alpha"]["connections"]["warm"] = 2
        more["providers"]["beta"] = {"base_url": f"http://{HOST}:{other.port}/v1", "connections": {"warm": 4}}
        lab.proxy.rewrite(more)
        await idle(lab, "alpha", 2)
        await idle(lab, "beta", 4)
        assert other.accepted == 4
        assert (await lab.call("/beta/v1/x", CHAT)).status == 200
        assert (await lab.row("connections", provider="beta"))["dials"] == 0


async def test_what_the_provider_ends_is_replaced_and_no_request_fails() -> None:
    async with Lab(policy(alpha={"warm": 2, "idle": "300ms"})) as lab:
        await idle(lab, "alpha", 2)
        await lab.proxy.until(
            lambda status: any(row["ended"]["aged"] >= 4 for row in status["connections"]), within=LONG
        )
        answer = await lab.call("/alpha/v1/x", CHAT)
        assert (answer.status, answer.attempts) == (200, 1)


async def test_a_provider_that_a_reload_removes_is_kept_warm_no_longer() -> None:
    async with Lab(policy(alpha={}, gone={"warm": 2, "idle": "500ms"})) as lab:
        await idle(lab, "gone", 2)
        fewer = json.loads(json.dumps(lab.policy))
        del fewer["providers"]["gone"]
        lab.proxy.rewrite(fewer)
        async with asyncio.timeout(LONG):
            while lab["gone"]._tasks:
                await asyncio.sleep(0.02)
        assert (await lab.call("/alpha/v1/x", CHAT)).status == 200


async def test_metrics_tell_of_reuse_dials_and_endings() -> None:
    async with Lab(policy(alpha={"warm": 2}, cold={})) as lab:
        await idle(lab, "alpha", 2)
        for name in ("alpha", "alpha", "cold"):
            assert (await lab.call(f"/{name}/v1/x", CHAT)).status == 200
        text = (await lab.proxy.get("/metrics")).body.decode()

        def shown(name: str, provider: str, **label: str) -> float:
            wanted = [f'sponson_{key}="{value}"' for key, value in {"provider": provider, **label}.items()]
            lines = [line for line in text.splitlines() if line.startswith(f"sponson_connection_{name}_total{{")]
            (line,) = [line for line in lines if all(one in line for one in wanted)]
            assert f'server_address="{HOST}",server_port="{lab[provider].port}"' in line
            return float(line.rpartition(" ")[2])

        assert shown("requests", "alpha", connection_reused="true") == 2
        assert shown("requests", "alpha", connection_reused="false") == 0
        assert shown("requests", "cold", connection_reused="false") == 1
        assert shown("dials", "alpha", result="ok") >= 2
        assert shown("dials", "cold", result="ok") == 1
        assert shown("dials", "cold", result="failed") == shown("ended", "cold", reason="peer") == 0


async def test_a_dead_provider_keeps_no_start_and_nobody_else_waiting() -> None:
    dead = {"base_url": f"http://{HOST}:{free_port()}/v1", "connections": {"warm": 4}, "breaker": {"consecutive": 1}}
    async with Lab({"version": 1, "providers": {"alpha": {}, "dead": dead}}) as lab:
        await lab.proxy.until(
            lambda status: any(row["failed_dials"] >= 5 for row in status["connections"]), within=LONG
        )
        assert (await lab.call("/alpha/v1/x", CHAT)).status == 200
        status = await lab.proxy.status()
        assert all(row["state"] == "closed" for row in status["breakers"])
        (row,) = [row for row in status["connections"] if row["provider"] == "dead"]
        assert (row["dials"], row["in_use"], row["idle"]) == (0, 0, 0)
        assert lab.proxy.log().count("can be kept ready") == 1


async def test_those_in_use_and_those_kept_ready_are_never_more_than_the_maximum() -> None:
    gate = asyncio.Event()
    async with Lab(policy(alpha={"max": 3, "warm": 2})) as lab:
        provider = lab["alpha"]
        provider.script = when(gate, says("hi"))
        await idle(lab, "alpha", 2)
        calls = [asyncio.ensure_future(lab.call("/alpha/v1/x", CHAT, within=30)) for _ in range(5)]
        await lab.proxy.until(lambda status: any(q["waiting"] == 2 for q in status["queues"]))
        await provider.has_seen(3)
        gate.set()
        assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
        assert provider.peak == 3


async def test_the_end_waits_for_no_handshake() -> None:
    with socket.create_server((HOST, 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}/v1"
        stuck = {"base_url": url, "connections": {"warm": 3}, "timeouts": {"connect": "600s"}}
        async with Lab({"version": 1, "providers": {"alpha": {}, "stuck": stuck}}) as lab:
            await lab.proxy.until(
                lambda status: any(row["warm_dials"] == 3 for row in status["connections"]), within=LONG
            )
            assert (await lab.row("connections", provider="stuck"))["in_use"] == 0
            assert (await lab.call("/alpha/v1/x", CHAT)).status == 200


async def test_a_provider_that_hangs_has_its_connections_and_others_theirs() -> None:
    async with Lab(policy(alpha={"max": 2, "warm": 2}, beta={"warm": 1})) as lab:
        lab["alpha"].script = hangs
        await idle(lab, "alpha", 2)
        await idle(lab, "beta", 1)
        running = [asyncio.ensure_future(lab.call("/alpha/v1/x", CHAT, within=30)) for _ in range(2)]
        await lab["alpha"].has_seen(2)
        assert (await lab.call("/beta/v1/x", CHAT)).status == 200
        rows = {row["provider"]: (row["in_use"], row["dials"]) for row in (await lab.proxy.status())["connections"]}
        assert rows == {"alpha": (2, 0), "beta": (0, 0)}
        for call in running:
            call.cancel()
        await asyncio.gather(*running, return_exceptions=True)
