"""Callers that read slowly or not at all: the provider waits, memory stays bounded, a stopped one frees its place."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import HOST, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import CHAT_STREAM, DONE, event, says
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "narrow": {"limits": {"concurrency": 1}, "timeouts": {"idle": "600ms", "queue": "15s"}},
        "wide": {"breaker": "off", "timeouts": {"idle": "30s"}},
    },
}
END = b"0\r\n\r\n"
BIG = event("z" * 30_000)


class Source:
    """A provider that sends events as fast as they are taken; `sent` counts their bytes."""

    def __init__(self, *, events: int | None = None) -> None:
        self.sent = 0
        self._events = events

    async def __call__(self, exchange: Exchange) -> None:
        """Sends the events, and the end if there is one."""
        await exchange.begin()
        for _ in range(self._events) if self._events is not None else itertools.count():
            await exchange.chunk(BIG)
            self.sent += len(BIG)
        await exchange.chunk(DONE)
        await exchange.end()

    async def stands_still(self) -> None:
        """Waits until nothing more is taken."""
        before = -1
        async with asyncio.timeout(20):
            while before != self.sent or not before:
                before = self.sent
                await asyncio.sleep(0.25)


class Caller:
    """A caller whose system keeps little for it: what it does not read, nobody takes."""

    def __init__(self, port: int, path: str) -> None:
        self._port, self._path = port, path
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self._socket.setblocking(False)

    async def __aenter__(self) -> Caller:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (HOST, self._port))
        await loop.sock_sendall(self._socket, request_bytes("POST", self._path, body=CHAT_STREAM))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    def half_close(self) -> None:
        """Sends nothing more."""
        self._socket.shutdown(socket.SHUT_WR)

    async def read(self, size: int = 1 << 16) -> bytes:
        """Reads once; b"" at the end, also at a reset."""
        try:
            async with asyncio.timeout(20):
                return await asyncio.get_running_loop().sock_recv(self._socket, size)
        except ConnectionError:
            return b""

    async def read_all(self, size: int = 1 << 16, *, pause: float = 0.0) -> bytes:
        """Reads to the end of the answer, or until nothing more comes; so much at a time, with pauses."""
        taken = bytearray()
        while not taken.endswith(END) and (data := await self.read(size)):
            taken += data
            await asyncio.sleep(pause)
        return bytes(taken)


def events_of(answer: bytes) -> bytes:
    """Returns the body of a whole chunked answer."""
    assert answer.endswith(END)
    return body_of(answer)


def body_of(answer: bytes) -> bytes:
    """Returns as much of a chunked answer's body as came."""
    rest, body = answer.partition(b"\r\n\r\n")[2], bytearray()
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line, 16)
        body += rest[:size]
        rest = rest[size + 2 :]
    return bytes(body)


async def test_reader_that_has_stopped_frees_its_place_and_blames_nobody_else(lab: Lab) -> None:
    source = Source()
    lab["narrow"].script = source
    async with Caller(lab.proxy.port, "/narrow/v1/chat/completions") as stopped:
        assert await stopped.read()
        await lab["narrow"].was_left(within=15)
        assert source.sent < 1 << 25
        lab["narrow"].script = says("next")
        assert (await lab.call("/narrow/v1/chat/completions", CHAT_STREAM)).status == 200
        assert not (await stopped.read_all()).endswith(END)
    line = next(line for line in lab.proxy.request_lines() if line["outcome"] != "ok")
    assert (line["outcome"], line["provider"], line["level"]) == ("client_left", "narrow", "info")
    assert (await lab.row("breakers", provider="narrow", model="m"))["failures"] == 0


async def test_waiter_takes_the_place_of_a_reader_that_has_stopped(lab: Lab) -> None:
    lab["narrow"].script = Source()
    async with Caller(lab.proxy.port, "/narrow/v1/chat/completions") as stopped:
        assert await stopped.read()
        lab["narrow"].script = says("next")
        waiter = await lab.call("/narrow/v1/chat/completions", CHAT_STREAM)
    assert (waiter.status, lab["narrow"].peak) == (200, 1)


async def test_answer_that_has_come_whole_holds_no_place_for_a_reader_that_has_not_taken_it(lab: Lab) -> None:
    lab["narrow"].script = Source(events=4)
    async with Caller(lab.proxy.port, "/narrow/v1/chat/completions") as slow:
        await lab["narrow"].has_seen(1)
        await lab.idle()
        assert lab.proxy.request_lines()[-1]["outcome"] == "ok"
        assert events_of(await slow.read_all(4096)) == BIG * 4 + DONE


async def test_slow_reader_gets_every_byte_and_the_provider_waits_for_it(lab: Lab) -> None:
    source, events = Source(events=700), 700
    lab["wide"].script = source
    async with Caller(lab.proxy.port, "/wide/v1/chat/completions") as slow:
        await source.stands_still()
        behind = source.sent
        assert behind < events * len(BIG)
        assert events_of(await slow.read_all()) == BIG * events + DONE
    assert source.sent == events * len(BIG)


async def test_slow_reader_that_never_stops_is_not_cut_off(lab: Lab) -> None:
    """It takes longer than the limit for what the system holds for it, and reads all the time."""
    lab["narrow"].script = Source(events=150)
    async with Caller(lab.proxy.port, "/narrow/v1/chat/completions") as slow:
        assert events_of(await slow.read_all(8192, pause=0.005)) == BIG * 150 + DONE


async def test_reader_that_takes_next_to_nothing_has_stopped(lab: Lab) -> None:
    """A byte now and then is no sign of a reader: what the system holds for it is not taken within the limit."""
    lab["narrow"].script = Source()
    async with Caller(lab.proxy.port, "/narrow/v1/chat/completions") as drip:

        async def drips() -> None:
            while await drip.read(1):
                await asyncio.sleep(0.02)

        dripping = asyncio.ensure_future(drips())
        await lab["narrow"].was_left(within=15)
        dripping.cancel()
    await lab.idle()
    assert lab.proxy.request_lines()[-1]["outcome"] == "client_left"


@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", "audio/mpeg"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_reader_of_another_answer_that_has_stopped_frees_its_place_too(lab: Lab, kind: str, framing: str) -> None:
    piece, sent = b"[0, 1, 2, 3]\n" * 4096, 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        if framing == "chunks":
            await exchange.begin(kind)
        else:
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {20 << 20}\r\n\r\n"
            await exchange.send(head.encode())
        while sent + len(piece) < 20 << 20:
            await (exchange.chunk(piece) if framing == "chunks" else exchange.send(piece))
            sent += len(piece)
        await asyncio.sleep(60)

    lab["narrow"].script = script
    async with Caller(lab.proxy.port, "/narrow/v1/chat/completions") as stopped:
        assert await stopped.read()
        lab["narrow"].script = says("next")
        assert (await lab.call("/narrow/v1/chat/completions", CHAT_STREAM)).status == 200
        assert len(await stopped.read_all()) < 20 << 20
    assert (lab["narrow"].peak, len(lab["narrow"].left_at)) == (1, 1)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "close"])
async def test_break_behind_a_slow_reader_is_shown_to_it_after_what_came(lab: Lab, reset: bool) -> None:
    source, whole = Source(), BIG * 60

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for _ in range(60):
            await exchange.chunk(BIG)
        source.sent = len(whole)
        (exchange.reset if reset else exchange.close)()

    lab["wide"].script = script
    async with Caller(lab.proxy.port, "/wide/v1/chat/completions") as slow:
        await source.stands_still()
        taken = await slow.read_all(8192, pause=0.001)
    assert not taken.endswith(END)
    body, mark, _ = body_of(taken).partition(b'data: {"error"')
    # A reset takes along what the provider's own system had not sent.
    assert whole.startswith(body) if reset else (body, bool(mark)) == (whole, True)
    assert lab.proxy.request_lines()[-1]["outcome"] == "stream_broken"


async def test_reader_that_has_stopped_and_closes_its_half_is_gone_at_once(lab: Lab) -> None:
    source = Source()
    lab["wide"].script = source
    async with Caller(lab.proxy.port, "/wide/v1/chat/completions") as stopped:
        assert await stopped.read()
        await source.stands_still()
        stopped.half_close()
        await lab["wide"].was_left(within=15)
    await lab.idle()
    assert lab.proxy.request_lines()[-1]["outcome"] == "client_left"


def resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the size of a process from /proc")
async def test_readers_that_have_stopped_cost_bounded_memory(lab: Lab) -> None:
    """Twenty of them, each with as much before it as its provider likes to send."""
    sources = [Source() for _ in range(20)]
    waiting = iter(sources)

    async def script(exchange: Exchange) -> None:
        await next(waiting)(exchange)

    lab["wide"].script = script
    before = resident_mib(lab.proxy.process.pid)
    async with AsyncExitStack() as stack:
        for _ in sources:
            await stack.enter_async_context(Caller(lab.proxy.port, "/wide/v1/chat/completions"))
        await asyncio.gather(*(source.stands_still() for source in sources))
        assert resident_mib(lab.proxy.process.pid) - before < 40
    await lab["wide"].was_left(len(sources), within=15)
