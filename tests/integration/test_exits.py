"""Ends that must not be lost, hang or cut: while it flushes, with a child that hangs or was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any

from tests.integration.caller import HOST
from tests.integration.harness import Lab, ProxyProcess
from tests.integration.messages import CHAT, says
from tests.integration.watched import checker_of, soon, stopped

POLICY: dict[str, Any] = {"version": 1, "providers": {"alpha": {"base_url": f"http://{HOST}:9/v1"}}}


async def test_second_sigterm_during_the_flush_ends_it_at_once() -> None:
    with socket.create_server((HOST, 0)) as collector:
        collector.setblocking(False)
        env = {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector.getsockname()[1]}",
        }
        async with ProxyProcess(POLICY, flags=["--linger", "0s"], env=env) as proxy:
            proxy.signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                connection, _ = await asyncio.get_running_loop().sock_accept(collector)
            with connection:
                await asyncio.sleep(0.1)
                assert proxy.process.poll() is None
                proxy.signal(signal.SIGTERM)
                assert await proxy.exited(within=10) == 128 + signal.SIGTERM


async def test_child_that_hangs_at_a_reload_holds_neither_calls_nor_the_end_up() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        lab["alpha"].script = says("hi")
        lab.proxy.rewrite({**lab.policy, "limits": {"concurrency": 5}})
        with stopped(await soon(lambda: checker_of(lab.proxy.process.pid))):
            assert (await lab.call("/alpha/v1/chat/completions", CHAT)).status == 200
            lab.proxy.signal(signal.SIGTERM)
            assert await lab.proxy.exited(within=15) == 0


async def test_child_that_was_killed_costs_no_good_policy() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        lab.proxy.rewrite({**lab.policy, "limits": {"concurrency": 5}})
        os.kill(await soon(lambda: checker_of(lab.proxy.process.pid)), signal.SIGKILL)
        async with asyncio.timeout(10):
            while (await lab.proxy.get("/policy")).json()["revision"] != 2:
                await asyncio.sleep(0.05)
        assert "sponson check" in lab.proxy.log()
