"""Ending: SIGTERM in every phase, and what callers see of it."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

from tests.integration.caller import HOST, Answer, Wire, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, answers, event, hangs, says, streams

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"limits": {"concurrency": 1}, "timeouts": {"queue": "8s"}},
        "beta": {"breaker": "off"},
    },
    "routes": [route("backing-off", "beta", retry={"attempts": 2, "base": "600ms"})],
}
STREAM = request_bytes("POST", "/alpha/v1/chat/completions", body=CHAT_STREAM)
CALL = request_bytes("POST", "/beta/v1/chat/completions", body=CHAT)


async def test_live_stream_queued_call_and_back_off_end_well() -> None:
    async with Lab(POLICY, flags=["--linger", "200ms"]) as lab, lab.wire() as streaming:
        lab["alpha"].script = streams(*[event("a")] * 8, DONE, gap=0.1)
        lab["beta"].script = answers(503)
        await streaming.send(STREAM)
        await lab["alpha"].has_seen(1)
        queued = asyncio.ensure_future(lab.call("/alpha/v1/chat/completions", CHAT_STREAM))
        backing_off = asyncio.ensure_future(lab.chat("backing-off"))
        await lab["beta"].has_seen(1)
        lab["beta"].script = says("hi")
        lab.proxy.signal(signal.SIGTERM)
        ends = [await streaming.answer(), await queued, await backing_off]
        assert [end.status for end in ends] == [200, 200, 200]
        assert all(end.complete for end in ends)
        assert ends[0].body == event("a") * 8 + DONE
        assert await lab.proxy.exited(within=5) == 0
        assert "Traceback" not in lab.proxy.log()


async def test_calls_are_served_while_it_lingers_and_told_to_close() -> None:
    async with Lab(POLICY, flags=["--linger", "600ms"]) as lab, lab.wire() as old:
        lab["beta"].script = says("hi")
        await old.send(CALL)
        assert (await old.answer()).header("connection") != "close"
        lab.proxy.signal(signal.SIGTERM)
        await not_ready(lab)
        began = time.monotonic()
        for _ in range(3):
            await asyncio.sleep(0.25)
            fresh = await lab.call("/beta/v1/chat/completions", CHAT)
            assert (fresh.status, fresh.header("connection")) == (200, "close")
        await old.send(CALL)
        last = await old.answer()
        assert (last.status, last.header("connection")) == (200, "close")
        assert await old.closed()
        assert await lab.proxy.exited(within=5) == 0
        assert time.monotonic() - began > 1.2


async def not_ready(lab: Lab) -> None:
    """Waits until the proxy says that it takes no more work; it is alive all the same."""
    async with asyncio.timeout(3):
        while (await lab.proxy.get("/readyz")).status != 503:
            await asyncio.sleep(0.01)
    assert (await lab.proxy.get("/livez")).status == 200
    assert (await lab.proxy.status())["phase"] == "draining"


async def test_idle_connections_do_not_delay_the_end() -> None:
    async with Lab(POLICY) as lab, lab.wire() as used, lab.wire() as unused:
        lab["beta"].script = says("hi")
        await used.send(CALL)
        assert (await used.answer()).status == 200
        lab.proxy.signal(signal.SIGTERM)
        began = time.monotonic()
        assert await lab.proxy.exited(within=5) == 0
        assert time.monotonic() - began < 2
        assert await used.closed()
        assert await unused.closed()


async def test_second_signal_ends_it_at_once() -> None:
    async with Lab(POLICY) as lab, lab.wire() as wire:
        lab["alpha"].script = hangs
        await wire.send(STREAM)
        await lab["alpha"].has_seen(1)
        lab.proxy.signal(signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert lab.proxy.process.poll() is None
        lab.proxy.signal(signal.SIGTERM)
        began = time.monotonic()
        assert await lab.proxy.exited(within=5) != 0
        assert time.monotonic() - began < 1


async def test_stream_that_outlasts_the_drain_is_shown_a_break() -> None:
    async with Lab(POLICY, flags=["--drain", "3s"]) as lab, lab.wire() as wire, lab.wire() as waiting:
        lab["alpha"].script = streams(*[event("a")] * 100, gap=0.1)
        lab["beta"].script = hangs
        await wire.send(STREAM)
        await waiting.send(CALL)
        await lab["alpha"].has_seen(1)
        await lab["beta"].has_seen(1)
        lab.proxy.signal(signal.SIGTERM)
        began = time.monotonic()
        answer, silent = await asyncio.gather(wire.answer(), waiting.answer())
        assert await lab.proxy.exited(within=5) == 0
        assert time.monotonic() - began < 3.5
        assert (answer.status, answer.complete) == (200, False)
        assert b'"shutting_down"' in answer.body
        assert b"[DONE]" not in answer.body
        assert (silent.status, silent.reason) == (503, "shutting_down")


async def test_sigint_ends_it_like_sigterm() -> None:
    async with Lab(POLICY) as lab:
        lab.proxy.signal(signal.SIGINT)
        assert await lab.proxy.exited(within=5) == 0


async def test_nothing_listens_after_the_end() -> None:
    async with Lab(POLICY) as lab:
        lab.proxy.signal(signal.SIGTERM)
        assert await lab.proxy.exited(within=5) == 0
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
        assert await lab.proxy.exited(within=5) == 0
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
