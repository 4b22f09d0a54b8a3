"""Connections to providers, and the calls on them, are freed at once, however they end."""

from __future__ import annotations

import asyncio

import pytest

from proxy.body import Body
from proxy.exchange import Exchange
from proxy.upstream.call import Call
from proxy.upstream.upload import UploadPump
from proxy.upstream.wire import UpstreamConnection
from tests.fakes import CHAT, FakeReply, FakeUpload
from tests.freed import freed, uncollected
from tests.upstream.peer import OK, PeerWire, Script, until
from tests.upstream.rig import DONE, EVENTS_HEAD, LAST_CHUNK, STREAM, USAGE, WORD, Rig, chunk, rigged

KINDS = (Body, Call, Exchange, UpstreamConnection, UploadPump)
CUT = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def said(answer: bytes, *, end: str = "keep") -> Script:
    """Answers every request so, and then keeps, closes or resets the connection."""

    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await wire.send(answer)
            if end == "reset":
                wire.reset()
            if end != "keep":
                return

    return script


WAYS: dict[str, tuple[Script, bool]] = {
    "kept": (said(OK), False),
    "closed": (said(OK, end="fin"), False),
    "no answer": (said(b"", end="fin"), False),
    "no answer, reset": (said(b"", end="reset"), False),
    "half a head": (said(b"HTTP/1.1 2", end="fin"), False),
    "cut": (said(CUT, end="fin"), False),
    "cut by a reset": (said(CUT, end="reset"), False),
    "until close": (said(b"HTTP/1.1 200 OK\r\n\r\nhello", end="fin"), False),
    "no http": (said(b"SSH-2.0\r\n\r\n"), False),
    "broken chunk": (said(CHUNKED + b"2\r\nhe\r\nzz\r\n"), False),
    "101": (said(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"), False),
    "204": (said(b"HTTP/1.1 204 No Content\r\n\r\n"), False),
    "more than an answer": (said(OK + b"junk"), False),
    "stream": (said(EVENTS_HEAD + chunk(WORD) + chunk(DONE) + LAST_CHUNK), False),
    "cut stream": (said(EVENTS_HEAD + chunk(WORD), end="fin"), False),
    "cancelled before the head": (said(b""), True),
    "cancelled in the body": (said(CUT), True),
    "cancelled in a stream": (said(EVENTS_HEAD + chunk(WORD)), True),
    "cancelled in a body until close": (said(b"HTTP/1.1 200 OK\r\n\r\nhello"), True),
}


async def call(rig: Rig, *, leave: bool, hides: bool = False, upload: FakeUpload | None = None) -> None:
    before, exchange = rig.peer.connections, rig.exchange(STREAM if hides else CHAT, hides_usage=hides)
    if upload is not None:
        exchange.payload, exchange.request.upload = None, upload
    running = rig.start(exchange)
    del exchange
    if leave:
        await until(lambda: rig.peer.connections > before)
        await asyncio.sleep(0.01)
        running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    rig.reply = FakeReply()
    while (kept := rig.pool.take(rig.clock.now())) is not None:
        kept.kill()
    await asyncio.sleep(0.005)


@pytest.mark.parametrize("way", WAYS)
async def test_a_connection_and_its_call_are_freed_however_they_end(way: str) -> None:
    script, leave = WAYS[way]
    async with rigged(script) as rig:
        await call(rig, leave=leave)
        with uncollected(*KINDS) as alive:
            for _ in range(10):
                await call(rig, leave=leave)
            await freed(alive)
            await until(lambda: rig.peer.connections == 11)


STREAMS: dict[str, tuple[Script, bool]] = {
    "whole": (said(EVENTS_HEAD + chunk(WORD + USAGE + DONE) + LAST_CHUNK), False),
    "cut": (said(EVENTS_HEAD + chunk(WORD), end="fin"), False),
    "cancelled": (said(EVENTS_HEAD + chunk(WORD)), True),
}


@pytest.mark.parametrize("way", STREAMS)
async def test_a_stream_whose_usage_is_hidden_is_freed_however_it_ends(way: str) -> None:
    script, leave = STREAMS[way]
    async with rigged(script) as rig:
        await call(rig, leave=leave, hides=True)
        with uncollected(*KINDS) as alive:
            for _ in range(10):
                await call(rig, leave=leave, hides=True)
            await freed(alive)
            await until(lambda: rig.peer.connections == 11)


UPLOADS = {
    "answered early": (b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig", False),
    "broken": (b"", True),
    "cancelled": (b"", False),
}


@pytest.mark.parametrize("way", UPLOADS)
async def test_an_upload_that_is_given_up_is_freed(way: str) -> None:
    answer, broken = UPLOADS[way]

    def upload() -> FakeUpload:
        return FakeUpload([b"part"], length=9, broken=broken, gate=None if broken else asyncio.Event())

    async with rigged(said(answer)) as rig:
        await call(rig, leave=way == "cancelled", upload=upload())
        with uncollected(*KINDS) as alive:
            for _ in range(10):
                await call(rig, leave=way == "cancelled", upload=upload())
            await freed(alive)
