"""Raw clients, servers on ports of their own, and a strict reader of answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from proxy.downstream.arrival import Arrival
from proxy.downstream.connections import ConnectionServer
from proxy.downstream.listen import ListenAddress, bind
from proxy.downstream.room import MOST_CONNECTIONS
from proxy.downstream.wire import Handler

PATIENCE_SECONDS: Final = 20.0
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
ASK: Final = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST_ASK: Final = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer as a strict client reads it; `whole` is False when it ended before its end."""

    version: bytes
    status: int
    phrase: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    whole: bool

    def all(self, name: str) -> list[bytes]:
        """Every value of a field."""
        return [value for key, value in self.headers if key.lower() == name.encode()]

    def get(self, name: str) -> bytes | None:
        """The only value of a field."""
        values = self.all(name)
        assert len(values) < 2, (name, values)
        return values[0] if values else None


def read_answer(data: bytes, *, head: bool = False) -> tuple[Answer, bytes]:
    """Reads one final answer strictly (RFC 9112 §6.3) and returns it with what follows it."""
    top, mark, rest = data.partition(b"\r\n\r\n")
    assert mark, data[:200]
    line, *lines = top.split(b"\r\n")
    version, status, phrase = line.split(b" ", 2)
    headers = tuple(_field(text) for text in lines)
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    codings = [value for name, value in headers if name.lower() == b"transfer-encoding"]
    assert len(lengths) + len(codings) <= 1, headers
    body, whole = b"", True
    if not (head or int(status) in (204, 304) or int(status) < 200):
        if codings:
            assert codings == [b"chunked"]
            body, rest, whole = _chunks(rest)
        elif lengths:
            size = int(lengths[0])
            body, rest, whole = rest[:size], rest[size:], len(rest) >= size
        else:
            body, rest = rest, b""
    found = Answer(version=version, status=int(status), phrase=phrase, headers=headers, body=body, whole=whole)
    return found, rest


def read_answers(data: bytes) -> list[Answer]:
    """Reads all of them."""
    found = []
    while data:
        answer, data = read_answer(data)
        found.append(answer)
    return found


def _field(text: bytes) -> tuple[bytes, bytes]:
    name, mark, value = text.partition(b": ")
    assert mark, text
    assert name, text
    assert name.strip() == name, text
    assert b" " not in name, text
    return name, value


def _chunks(data: bytes) -> tuple[bytes, bytes, bool]:
    body = b""
    while True:
        size, mark, rest = data.partition(b"\r\n")
        if not mark:
            return body, b"", False
        count = int(size, 16)
        assert size == b"%x" % count, size
        if count == 0:
            return body, rest[2:], rest[:2] == b"\r\n"
        if len(rest) < count + 2:
            return body + rest[:count], b"", False
        assert rest[count : count + 2] == b"\r\n"
        body, data = body + rest[:count], rest[count + 2 :]


class Visitor:
    """A client that writes bytes as it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Writes, and waits while the server is slow."""
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, marker: bytes) -> bytes:
        """Reads up to a marker."""
        return await self.reader.readuntil(marker)

    async def answer(self, *, head: bool = False) -> Answer:
        """Reads one answer that has a length."""
        top = await self.reader.readuntil(b"\r\n\r\n")
        size = 0
        for line in top.lower().split(b"\r\n"):
            if line.startswith(b"content-length: ") and not head:
                size = int(line[16:])
        return read_answer(top + await self.reader.readexactly(size), head=head)[0]

    async def rest(self) -> bytes:
        """Reads to the end of the connection; a reset ends it too."""
        pieces = []
        try:
            while piece := await self.reader.read(1 << 16):
                pieces.append(piece)
        except ConnectionError:
            pass
        return b"".join(pieces)

    def fin(self) -> None:
        """Closes the sending side."""
        self.writer.write_eof()

    def leave(self) -> None:
        """Closes the connection."""
        self.writer.close()

    def reset(self) -> None:
        """Ends the connection by RST."""
        bound: socket.socket = self.writer.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.writer.transport.abort()


@asynccontextmanager
async def visiting(port: int, *, patience: float = PATIENCE_SECONDS) -> AsyncIterator[Visitor]:
    """A client's connection, for so many seconds of its event loop."""
    visitor = Visitor(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
    try:
        async with asyncio.timeout(patience):
            yield visitor
    finally:
        visitor.writer.close()


async def talk(port: int, data: bytes) -> bytes:
    """Writes and reads to the end of the connection, which the server must bring about."""
    async with visiting(port) as visitor:
        await visitor.send(data)
        return await visitor.rest()


class Served:
    """A server under test and what it was asked."""

    def __init__(self, handler: Handler, *, most: int = MOST_CONNECTIONS) -> None:
        self._handler = handler
        self.protocols = ConnectionServer(self._record, most=most)
        self.port = 0
        self.arrivals: list[Arrival] = []
        self.cancelled = 0

    @property
    def targets(self) -> list[str]:
        return [arrival.target for arrival in self.arrivals]

    async def _record(self, arrival: Arrival) -> bool:
        self.arrivals.append(arrival)
        try:
            return await self._handler(arrival)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@asynccontextmanager
async def serving(handler: Handler, *, most: int = MOST_CONNECTIONS) -> AsyncIterator[Served]:
    """Serves on a port of its own, at most so many connections at once."""
    served = Served(handler, most=most)
    sockets = bind(ListenAddress(host="127.0.0.1", port=0))
    served.protocols.listen(sockets)
    served.port = sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        served.protocols.close()
        await until(lambda: not served.protocols.connections)


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
