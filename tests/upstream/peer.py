"""A provider on a real socket: each connection runs a script of the test."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.wire import UpstreamConnection

PATIENCE_SECONDS: Final = 20.0
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
ASK: Final = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


class PeerWire:
    """The provider's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        """Reads one head; b"" when the connection ends instead."""
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return b""

    async def body(self, size: int) -> bytes:
        """Reads exactly so many bytes."""
        return await self.reader.readexactly(size)

    async def send(self, data: bytes) -> None:
        """Writes, and waits while the other side is slow."""
        self.writer.write(data)
        await self.writer.drain()

    async def send_bytewise(self, data: bytes) -> None:
        """Writes every byte by itself."""
        for index in range(len(data)):
            await self.send(data[index : index + 1])
            await asyncio.sleep(0)

    async def seen(self) -> None:
        """Lets the other side, on the same event loop, read what was sent."""
        for _ in range(10):
            await asyncio.sleep(0.002)

    def reset(self) -> None:
        """Ends the connection by RST."""
        bound: socket.socket = self.writer.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.writer.transport.abort()

    async def gone(self) -> None:
        """Returns when the other side has ended the connection, whatever it still sends."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass


Script = Callable[[PeerWire], Awaitable[None]]


class Peer:
    """What a test knows of its provider."""

    def __init__(self, script: Script, *, scheme: str) -> None:
        self._script = script
        self._scheme = scheme
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.connections = 0
        self.heads: list[bytes] = []

    @property
    def address(self) -> Address:
        return Address(
            scheme=self._scheme, host="localhost" if self._scheme == "https" else "127.0.0.1", port=self.port
        )

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.add(asyncio.get_running_loop().create_task(self._run(PeerWire(reader, writer))))

    async def _run(self, wire: PeerWire) -> None:
        try:
            await self._script(wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            wire.writer.close()

    async def stop(self) -> None:
        """Ends every script; a script's own failure is the test's."""
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


@asynccontextmanager
async def provider(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Listens on a port of its own while the test runs, bounded by the test's patience."""
    peer = Peer(script, scheme="http" if tls is None else "https")
    server = await asyncio.start_server(peer.accepted, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield peer
    finally:
        server.close()
        await peer.stop()


@asynccontextmanager
async def dialled(script: Script, *, uses: int = 1) -> AsyncIterator[UpstreamConnection]:
    """A connection of ours to such a provider."""
    async with provider(script) as peer:
        dialer = Dialer(peer.address)
        connection = await dialer.dial(PATIENCE_SECONDS)
        try:
            yield connection
        finally:
            connection.kill()
            await dialer.close()


def answering(*answers: bytes, hold: bool = True) -> Script:
    """Answers each request with the next of these bytes; then keeps the connection, or closes it."""

    async def script(wire: PeerWire) -> None:
        for answer in answers:
            if not await wire.request():
                return
            await wire.send(answer)
        if hold:
            await wire.gone()

    return script


async def ask(connection: UpstreamConnection, *, head: bytes = ASK, body: bool = True) -> tuple[int, bytes]:
    """One exchange on a connection: status and body of the final answer."""
    connection.expect(body=body)
    connection.write(head, b"")
    message, payload = await connection.head()
    while message.code < 200:
        message, payload = await connection.head()
    pieces = []
    while piece := await payload.readany():
        pieces.append(piece)
    return message.code, b"".join(pieces)


async def until(holds: Callable[[], bool]) -> None:
    """Returns once it holds; the event loop runs meanwhile."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


async def stalled(count: Callable[[], int]) -> int:
    """Returns a count once it has stopped growing for a while."""
    before = -1
    while (now := count()) != before:
        before = now
        await asyncio.sleep(0.25)
    return now
