"""Ending: what a signal means to callers that go on calling, and to connections that do not."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from tests.integration.caller import HOST, Answer, Wire, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, says

POLICY: dict[str, Any] = {"version": 1, "providers": {"beta": {"breaker": "off"}}}
CALL = request_bytes("POST", "/beta/v1/chat/completions", body=CHAT)


async def test_calls_are_served_while_it_lingers_and_told_to_close() -> None:
    async with Lab(POLICY, flags=["--linger", "1s"]) as lab, lab.wire() as old:
        lab["beta"].script = says("hi")
        await old.send(CALL)
        assert (await old.answer()).header("connection") != "close"
        lab.proxy.signal(signal.SIGTERM)
        await not_ready(lab)
        for _ in range(5):
            await asyncio.sleep(0.25)
            fresh = await lab.call("/beta/v1/chat/completions", CHAT)
            assert (fresh.status, fresh.header("connection")) == (200, "close")
        await old.send(CALL)
        last = await old.answer()
        assert (last.status, last.header("connection")) == (200, "close")
        assert await old.closed()
        assert await lab.proxy.exited(within=10) == 0


async def not_ready(lab: Lab) -> None:
    """Waits until the proxy says that it takes no more work; it is alive all the same."""
    async with asyncio.timeout(10):
        while (await lab.proxy.get("/readyz")).status != 503:
            await asyncio.sleep(0.01)
    assert (await lab.proxy.get("/livez")).status == 200
    assert (await lab.proxy.status())["phase"] == "draining"


async def test_idle_connections_do_not_delay_the_end() -> None:
    async with Lab(POLICY, flags=["--drain", "60s"]) as lab, lab.wire() as used, lab.wire() as unused:
        lab["beta"].script = says("hi")
        await used.send(CALL)
        assert (await used.answer()).status == 200
        lab.proxy.signal(signal.SIGTERM)
        assert await lab.proxy.exited(within=15) == 0
        assert await used.closed()
        assert await unused.closed()


async def test_sigint_ends_it_like_sigterm() -> None:
    async with Lab(POLICY) as lab:
        lab.proxy.signal(signal.SIGINT)
        assert await lab.proxy.exited(within=10) == 0


async def test_nothing_listens_after_the_end() -> None:
    async with Lab(POLICY) as lab:
        lab.proxy.signal(signal.SIGTERM)
        assert await lab.proxy.exited(within=10) == 0
        for port in (lab.proxy.port, lab.proxy.admin):
            assert not await reachable(port)


async def reachable(port: int) -> bool:
    """Whether somebody accepts connections."""
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    return True


async def test_requests_in_a_row_on_one_connection_survive_the_signal() -> None:
    async with Lab(POLICY, flags=["--linger", "300ms"]) as lab:
        lab["beta"].script = says("hi", after=0.01)
        statuses: list[int] = []
        ended = asyncio.Event()

        async def caller() -> None:
            while not ended.is_set():
                async with Wire(lab.proxy.port) as wire:
                    statuses.extend([answer.status for answer in await in_a_row(wire, ended)])

        callers = [asyncio.ensure_future(caller()) for _ in range(4)]
        await asyncio.sleep(0.3)
        lab.proxy.signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        ended.set()
        await asyncio.gather(*callers)
        assert await lab.proxy.exited(within=10) == 0
        assert set(statuses) == {200}
        assert len(statuses) > 40


async def in_a_row(wire: Wire, ended: asyncio.Event) -> list[Answer]:
    """Calls on one connection until it is told to close."""
    found = []
    while not ended.is_set():
        await wire.send(CALL)
        answer = await wire.answer()
        found.append(answer)
        if answer.header("connection") == "close" or not answer.status:
            break
    return found
