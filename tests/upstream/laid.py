"""A WebSocket's tunnel between two real connections, with its far ends and its clock in the test's hands."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from proxy.exchange import Exchange, PhaseLimits
from proxy.link import Link
from proxy.outcome import Outcome
from tests.fakes import Ask
from tests.upstream.peer import RESET_ON_CLOSE, PeerWire, provider
from tests.upstream.rig import Rig
from tests.websocket.encoding import KEY, Frame, accept_of, decoded, encoded

MASK = b"\x11\x22\x33\x44"
IDLE, STREAM = 0.2, 60.0
"""The tunnel looks every quarter of these, in real time; what it sees then is the clock's."""
LIMITS = PhaseLimits(connect=5.0, first_byte=30.0, answer=600.0, idle=IDLE, stream=STREAM)
HANDSHAKE = Ask(
    method="GET",
    target="/v1/realtime?model=m",
    headers=(("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-key", KEY)),
    body=b"",
    stream=True,
)
AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-accept: " + accept_of(KEY) + b"\r\n\r\n"
)


class ClientLink(Link):
    """The caller's connection once it speaks no HTTP any more; its loss cancels who serves it."""

    task: asyncio.Task[Outcome] | None = None

    def data_received(self, data: bytes) -> None:
        self.beyond(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end_writing(ConnectionError())
        if self.task is not None:
            self.task.cancel()


class End:
    """One end of the tunnel, at the far side of its connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, mask: bytes | None) -> None:
        self._reader, self._writer, self._mask = reader, writer, mask
        self.came = b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, opcode: int, payload: bytes = b"") -> None:
        await self.write(encoded(opcode, payload, mask=self._mask))

    async def frame(self) -> Frame:
        while (one := decoded(self.came)) is None:
            piece = await self._reader.read(1 << 16)
            assert piece, self.came
            self.came += piece
        self.came = self.came[one[1] :]
        return one[0]

    async def rest(self) -> bytes:
        while piece := await self._reader.read(1 << 16):
            self.came += piece
        return self.came

    def leave(self) -> None:
        self._writer.close()

    def reset_behind(self, data: bytes) -> None:
        """Says this, and resets the connection before anybody can have read it."""
        bound = self._writer.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._writer.write(data)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, bound.fileno())
        os.close(nothing)


class Laid:
    """A tunnel that is open."""

    def __init__(self, rig: Rig, exchange: Exchange, link: ClientLink, client: End, far: End) -> None:
        assert link.task is not None
        self.clock, self.exchange, self.task, self.link = rig.clock, exchange, link.task, link
        self.client, self.provider = client, far

    async def outcome(self) -> Outcome:
        async with asyncio.timeout(10):
            return await self.task

    async def nothing_more(self) -> None:
        """Lets the tunnel look a few times, and checks that nobody is told anything."""
        for end in (self.client, self.provider):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.15):
                    await end.frame()


@asynccontextmanager
async def laid(*, first: bytes = AGREED, second: bytes = b"", most: int = 1 << 20) -> AsyncIterator[Laid]:
    """A tunnel to a provider that says `first`, and `second` in a read of its own."""
    wires: asyncio.Queue[PeerWire] = asyncio.Queue()
    end = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(first)
        if second:
            await asyncio.sleep(0.001)
            await wire.send(second)
        wires.put_nowait(wire)
        await end.wait()

    near, far = socket.socketpair()
    async with provider(script) as peer:
        rig = Rig(peer)
        reader, writer = await asyncio.open_connection(sock=far)
        _, link = await asyncio.get_running_loop().create_connection(ClientLink, sock=near)
        exchange = rig.exchange(HANDSHAKE, limits=LIMITS, plan=SimpleNamespace(body_max=most))
        exchange.request.switch = lambda lines: link
        task = link.task = rig.start(exchange)
        wire = await wires.get()
        try:
            client = End(reader, writer, mask=MASK)
            yield Laid(rig, exchange, link, client, End(wire.reader, wire.writer, mask=None))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            link.task = None
            end.set()
            writer.close()
            if link.transport is not None:
                link.transport.abort()
            await rig.pool.close()
