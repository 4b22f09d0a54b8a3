"""Large bodies whose provider is slow or busy: their callers wait, and what the proxy holds of them is bounded."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.scripted import Exchange, Received
from tests.integration.test_slow_readers import resident_mib

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the size of a process from /proc"),
]

MEBIBYTE = 1 << 20
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "slow": {"breaker": "off"},
        "busy": {"limits": {"concurrency": 1}, "timeouts": {"queue": "60s"}, "queue": {"bytes": "1GiB"}},
    },
    "routes": [route("files", "slow", match={"path": "/v1/files"}, body={"max": "256MiB"}), route("chat", "busy")],
}
UPLOADS = 8
SIZE = 48 * MEBIBYTE
PIECE = random.Random(5).randbytes(MEBIBYTE)
JSON = ("content-type", "application/json")
FORM = ("content-type", "multipart/form-data; boundary=zzz")


class Slow:
    """A provider that reads nothing until its gate opens, and then says what it has read."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        """Reads a body, and answers with its sum."""
        await self.gate.wait()
        digest, size = hashlib.sha256(), 0
        async for piece in pieces_of(exchange):
            digest.update(piece)
            size += len(piece)
        await exchange.reply(200, {"size": size, "sum": digest.hexdigest()})


async def pieces_of(exchange: Exchange) -> AsyncIterator[bytes]:
    """Reads a body of either framing, without keeping it."""
    request: Received = exchange.request
    left = int(request.header("content-length") or 0)
    while left:
        piece = await exchange.ears.read(min(left, 1 << 18))
        left -= len(piece)
        yield piece
    if request.header("transfer-encoding") is not None:
        while size := int((await exchange.ears.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await exchange.ears.readexactly(size + 2))[:-2]
        await exchange.ears.readexactly(2)


class Sender:
    """A caller that sends as fast as it is taken; `sent` counts bytes."""

    def __init__(self, lab: Lab, *, chunked: bool) -> None:
        self._lab = lab
        self._chunked = chunked
        self.sent = 0

    async def __call__(self) -> Answer:
        """Sends a body; returns the answer."""
        framing = ("transfer-encoding", "chunked") if self._chunked else ("content-length", str(SIZE))
        async with self._lab.wire() as wire:
            await wire.send(request_bytes("POST", "/v1/files", headers=[FORM, framing]))
            for _ in range(SIZE // len(PIECE)):
                await wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if self._chunked else PIECE)
                self.sent += len(PIECE)
            if self._chunked:
                await wire.send(b"0\r\n\r\n")
            return await wire.answer(within=60)


async def stands_still(senders: list[Sender]) -> int:
    """Waits until nothing more is taken; returns how much was."""
    before, now = -1, 0
    async with asyncio.timeout(30):
        while before != now or not now:
            before = now
            await asyncio.sleep(0.3)
            now = sum(sender.sent for sender in senders)
    return now


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_uploads_wait_for_their_providers_and_cost_bounded_memory(lab: Lab, chunked: bool) -> None:
    slow = lab["slow"].script = Slow()
    lab["slow"].reads_bodies = False
    before = resident_mib(lab.proxy.process.pid)
    senders = [Sender(lab, chunked=chunked) for _ in range(UPLOADS)]
    sending = [asyncio.ensure_future(sender()) for sender in senders]
    taken = await stands_still(senders)
    assert taken < UPLOADS * SIZE
    assert resident_mib(lab.proxy.process.pid) - before < UPLOADS * 2
    assert (await lab.proxy.status())["bodies"]["bytes"] == 0
    slow.gate.set()
    found = await asyncio.gather(*sending)
    wanted = {"size": SIZE, "sum": hashlib.sha256(PIECE * (SIZE // len(PIECE))).hexdigest()}
    assert [answer.json() for answer in found] == [wanted] * UPLOADS
    assert resident_mib(lab.proxy.process.pid) - before < UPLOADS * 2


BEGIN = b'{"model": "chat", "messages": ['


@pytest.mark.parametrize(
    ("body", "most"),
    [
        # In the pieces in which it comes, and then whole, it is twice as large.
        pytest.param(BEGIN + b'{"role": "user", "content": "' + b"text" * (4 * MEBIBYTE) + b'"}]}', 1.5, id="text"),
        # As objects it is more than twenty times as large.
        pytest.param(BEGIN + b"{}," * (2 * MEBIBYTE // 3) + b"{}]}", 4.0, id="objects"),
    ],
)
async def test_bodies_that_wait_cost_little_more_than_their_bytes(lab: Lab, body: bytes, most: float) -> None:
    gate = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.reply(200, {"choices": []})

    lab["busy"].script = script
    before = resident_mib(lab.proxy.process.pid)
    calls = [asyncio.ensure_future(lab.call(body=body, headers=[JSON], within=60)) for _ in range(UPLOADS)]
    status = await lab.proxy.until(
        lambda status: any(row["waiting"] == UPLOADS - 1 for row in status["queues"]), within=60
    )
    assert status["bodies"]["bytes"] >= (UPLOADS - 1) * len(body)
    assert resident_mib(lab.proxy.process.pid) - before < UPLOADS * len(body) / MEBIBYTE * most
    gate.set()
    assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * UPLOADS
    assert lab["busy"].seen[-1].body == body
    await lab.idle()
    assert (await lab.proxy.status())["bodies"]["bytes"] == 0
