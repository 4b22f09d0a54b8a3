"""Every way in which a call can end, twenty times each at a share of two: every permit is back, once, at once."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import request_bytes
from tests.integration.doors import leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.messages import (
    CHAT,
    CHAT_STREAM,
    DONE,
    ERROR_EVENT,
    answers,
    babbles,
    closes,
    event,
    hangs,
    resets,
    says,
    streams,
)
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

SHARE, ROUNDS, AT_ONCE = 2, 20, 5
GAUGES = ("http_server_active_requests", "sponson_permits_used", "sponson_attempts_active")
PATH = "/two/v1/chat/completions"
SHORT = {"first_byte": "150ms", "answer": "150ms", "idle": "150ms", "queue": "20s"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "two": {"limits": {"concurrency": SHARE}, "breaker": "off", "timeouts": SHORT},
        "spare": {"breaker": "off"},
    },
    "routes": [route("twice", "two", "spare", retry={"attempts": 2, "base": "5ms"})],
}

Round = Callable[[Lab], Awaitable[None]]


def then(*events: bytes, end: Script = hangs) -> Script:
    """A provider that begins a stream, and then does this."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in events:
            await exchange.chunk(part)
        await asyncio.sleep(0.01)
        await end(exchange)

    return script


def asked(*, stream: bool = False, path: str = PATH, **fields: Any) -> Round:
    """A caller that waits for whatever comes."""

    async def once(lab: Lab) -> None:
        await lab.call(path, {**(CHAT_STREAM if stream else CHAT), **fields})

    return once


def leaves(*, stream: bool = False, after: bytes = b"", reset: bool = True, pause: float = 0.02) -> Round:
    """A caller that goes away: when it has read this, or nothing comes any more, or after a while."""

    async def once(lab: Lab) -> None:
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", PATH, body=CHAT_STREAM if stream else CHAT))
            if after:
                with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
                    async with asyncio.timeout(2):
                        await wire.reader.readuntil(after)
            else:
                await asyncio.sleep(pause)
            wire.leave(reset=reset)

    return once


async def sends_half_a_body(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", PATH, headers=[("content-length", "5000")]) + b'{"model": ')
        await asyncio.sleep(0.01)
        wire.leave()


async def uploads_half(lab: Lab) -> None:
    kind = ("content-type", "multipart/form-data; boundary=qq")
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/two/v1/audio", headers=[kind, ("content-length", "500000")]))
        await wire.send(b"q" * 80_000)
        await asyncio.sleep(0.02)
        wire.leave()


async def breaks_its_framing(lab: Lab) -> None:
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", PATH, headers=[("transfer-encoding", "chunked")]) + b"qq\r\n")
        await wire.answer()


ENDINGS: dict[str, tuple[Script, Round]] = {
    "answered": (says("hi"), asked()),
    "streamed": (streams(event(None), event("a"), DONE), asked(stream=True)),
    "head only": (says("hi"), asked(path="/two/v1/models")),
    "unreadable request": (says("hi"), breaks_its_framing),
    "leaves its own body": (says("hi"), sends_half_a_body),
    "leaves its upload": (hangs, uploads_half),
    "leaves before the head": (hangs, leaves(pause=0.05)),
    "leaves before the content": (then(event(None)), leaves(stream=True, pause=0.05)),
    "leaves in the middle": (then(event("a")), leaves(stream=True, after=b"\n\n")),
    "closes in the middle": (then(event("a")), leaves(stream=True, after=b"\n\n", reset=False)),
    "leaves after the end": (then(event("a"), DONE), leaves(stream=True, after=DONE)),
    "no head in time": (hangs, asked()),
    "no content in time": (then(event(None)), asked(stream=True)),
    "silent in the middle": (then(event("a")), asked(stream=True)),
    "refuses": (answers(400), asked()),
    "fails": (answers(502), asked()),
    "fails, and another answers": (answers(503), asked(path="/v1/chat/completions", model="twice")),
    "limited": (answers(429, headers=[("retry-after", "0")]), asked()),
    "forbidden": (answers(401), asked()),
    "reset at once": (resets, asked()),
    "closed at once": (closes, asked(stream=True)),
    "no HTTP": (babbles, asked()),
    "reset in the middle": (then(event("a"), end=resets), asked(stream=True)),
    "closed in the middle": (then(event("a"), end=closes), asked(stream=True)),
    "error instead of content": (streams(event(None), ERROR_EVENT), asked(stream=True)),
    "error after content": (streams(event("a"), ERROR_EVENT), asked(stream=True)),
}


async def all_is_back(lab: Lab) -> None:
    """Nothing is out, and a call is answered.

    How many were at the provider at once is not asked here: it may hear of a new call before it hears that another's
    connection has ended.
    """
    await leaves_nothing(lab)
    lab["two"].script = says("after all")
    # A machine that stands still for as long as the short limits says nothing of permits.
    while (answer := await lab.call(PATH, CHAT)).status == 504:
        await lab.idle()
    assert (answer.status, answer.attempts) == (200, 1)


@pytest.mark.parametrize("name", ENDINGS)
async def test_each_ending_gives_its_permit_back(lab: Lab, name: str) -> None:
    """Five callers at once for two permits: some of those who leave wait in the queue when they do."""
    lab["two"].script, once = ENDINGS[name]
    lab["spare"].script = says("spare")
    for _ in range(ROUNDS // AT_ONCE):
        await asyncio.gather(*(once(lab) for _ in range(AT_ONCE)))
    await all_is_back(lab)


async def test_all_endings_at_once_across_reloads_give_their_permits_back(lab: Lab) -> None:
    """The policy changes under all of them, its share of this provider too; what holds at last is the first one."""
    scripts, rounds = zip(*ENDINGS.values(), strict=True)
    following = iter(scripts * 3)

    async def script(exchange: Exchange) -> None:
        await next(following, hangs)(exchange)

    lab["two"].script = script
    lab["spare"].script = says("spare")
    running = [asyncio.ensure_future(once(lab)) for once in rounds * 2]
    revision = (await lab.proxy.get("/policy")).json()["revision"]
    for concurrency in (1, SHARE):
        changed = copy.deepcopy(lab.policy)
        changed["providers"]["two"]["limits"]["concurrency"] = concurrency
        lab.proxy.rewrite(changed)
        revision += 1
        async with asyncio.timeout(20):
            while (await lab.proxy.get("/policy")).json()["revision"] < revision:
                await asyncio.sleep(0.05)
    await asyncio.gather(*running)
    await all_is_back(lab)


def files_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts a process's files in /proc")
async def test_a_thousand_who_leave_leave_nothing_behind(lab: Lab) -> None:
    """No file, no connection, no permit, and no place in a queue; the metrics tell the same."""
    pid = lab.proxy.process.pid
    await all_is_back(lab)
    before = files_of(pid)
    lab["two"].script = then(event("a"))
    for many in range(20):
        once = leaves(stream=True, pause=0.01 * (many % 4), reset=many % 2 == 0)
        await asyncio.gather(*(once(lab) for _ in range(50)))
    await all_is_back(lab)
    async with asyncio.timeout(10):
        while files_of(pid) > before:
            await asyncio.sleep(0.05)
    told = (await lab.proxy.get("/metrics")).body.decode().splitlines()
    gauges = [line.split() for line in told if line.startswith(GAUGES)]
    assert {name.partition("{")[0] for name, _ in gauges} == set(GAUGES)
    assert {float(value) for _, value in gauges} == {0.0}
