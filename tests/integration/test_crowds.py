"""Crowds of calls at a provider that is not there, or of callers that leave: bounded, and nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.caller import HOST, Answer, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, CHAT_STREAM, event, hangs, says
from tests.integration.scripted import Exchange
from tests.upstream.silence import vanish

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's packet filter and /proc are Linux's")

CHATS = "/v1/chat/completions"


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that answers no packet."""
    with socket.create_server((HOST, 0)) as listener:
        vanish(listener)
        yield listener.getsockname()[1]


def open_files(lab: Lab) -> int:
    return len(os.listdir(f"/proc/{lab.proxy.process.pid}/fd"))


async def back_to(lab: Lab, most: int) -> None:
    """Waits until the proxy has no more files open than this."""
    async with asyncio.timeout(10):
        while open_files(lab) > most:
            await asyncio.sleep(0.05)


async def statuses(calls: list[asyncio.Task[Answer]]) -> Counter[tuple[int, str | None]]:
    return Counter((answer.status, answer.reason) for answer in await asyncio.gather(*calls))


async def test_a_crowd_at_an_address_that_answers_nothing_is_bounded_and_hinders_nobody() -> None:
    dead: dict[str, Any] = {"breaker": "off", "timeouts": {"connect": "1s", "queue": "1500ms"}}
    with black_hole() as port:
        dead["base_url"] = f"http://{HOST}:{port}/v1"
        policy = {"version": 1, "providers": {"dead": {**dead, "connections": {"max": 40}}, "well": {}}}
        async with Lab(policy) as lab:
            lab["well"].script = says("hi")
            assert (await lab.call(f"/well{CHATS}", CHAT)).status == 200
            before = open_files(lab)
            crowd = [asyncio.ensure_future(lab.call(f"/dead{CHATS}", CHAT)) for _ in range(300)]
            await lab.proxy.until(lambda status: status["permits_out"] == 40)
            assert open_files(lab) <= before + 300 + 40 + 2
            assert (await lab.call(f"/well{CHATS}", CHAT)).status == 200
            assert (await lab.proxy.get("/livez")).status == 200
            ends = await statuses(crowd)
            assert set(ends) <= {(504, "connect_timeout"), (429, "queue_timeout"), (429, "queue_full")}
            assert ends[504, "connect_timeout"] >= 40
            await back_to(lab, before)


async def test_an_open_breaker_lets_the_crowd_go_at_once() -> None:
    with black_hole() as port:
        dead = {"base_url": f"http://{HOST}:{port}/v1", "timeouts": {"connect": "1s"}}
        policy = {"version": 1, "providers": {"dead": {**dead, "connections": {"max": 10}}}}
        async with Lab(policy) as lab:
            ends = await statuses([asyncio.ensure_future(lab.call(f"/dead{CHATS}", CHAT)) for _ in range(30)])
            assert set(ends) <= {(504, "connect_timeout"), (503, "breaker_open")}
            assert ends[503, "breaker_open"] >= 5


async def test_callers_who_leave_in_every_phase_leave_no_file_open() -> None:
    async def begins(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("a"))
        await hangs(exchange)

    with black_hole() as port:
        dead = {"base_url": f"http://{HOST}:{port}/v1", "connections": {"max": 500}}
        names = ("silent", "begun")
        policy = {"version": 1, "providers": {"dead": dead, **{name: {"connections": {"max": 500}} for name in names}}}
        async with Lab(policy) as lab:
            lab["silent"].script, lab["begun"].script = hangs, begins
            await lab.proxy.status()
            before = open_files(lab)
            for _ in range(4):
                for provider, body in (("dead", CHAT), ("silent", CHAT), ("begun", CHAT_STREAM)):
                    await _comes_and_goes(lab, provider, request_bytes("POST", f"/{provider}{CHATS}", body=body))
            await lab.idle()
            await back_to(lab, before + 2)
            rows = (await lab.proxy.status())["connections"]
            assert [row["idle"] for row in rows] == [0] * len(rows)


async def _comes_and_goes(lab: Lab, provider: str, request: bytes, *, callers: int = 80) -> None:
    wires = [lab.wire() for _ in range(callers)]
    for wire in wires:
        await wire.__aenter__()
        await wire.send(request)
    await lab.proxy.until(lambda status: status["in_flight"] == callers)
    if provider != "dead":
        await lab[provider].has_seen(callers)
        lab[provider].forget()
    for number, wire in enumerate(wires):
        wire.leave(reset=number % 2 == 0)
        await wire.__aexit__(None, None, None)
    await lab.proxy.until(lambda status: status["in_flight"] == 0)
