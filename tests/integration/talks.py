"""Both ends of WebSockets through the proxy, in the test's hands: handshakes, raw frames, and how each end goes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.caller import Headers, Wire, latin, request_bytes
from tests.integration.harness import Lab
from tests.integration.scripted import Exchange, Received, ScriptedProvider
from tests.websocket.encoding import (
    CLOSE,
    KEY,
    MASK,
    PING,
    PONG,
    TEXT,
    Frame,
    accept_of,
    closing,
    decoded,
    encoded,
)

WAIT = 15.0


class End:
    """One end of a WebSocket; a client's masks what it sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, masks: bool) -> None:
        self.reader = reader
        self.writer = writer
        self._mask = MASK if masks else None
        self.data = b""
        self.request: Received | None = None
        self.answer = b""

    async def write(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    def encoded(self, opcode: int, payload: bytes = b"", *, final: bool = True, packed: bool = False) -> bytes:
        """Returns a frame as this end sends it."""
        return encoded(opcode, payload, final=final, packed=packed, mask=self._mask)

    async def send(self, opcode: int, payload: bytes = b"", *, final: bool = True, packed: bool = False) -> None:
        """Sends a frame."""
        await self.write(self.encoded(opcode, payload, final=final, packed=packed))

    async def say(self, text: bytes) -> None:
        """Sends a text message."""
        await self.send(TEXT, text)

    async def close(self, code: int | None = 1000, reason: str = "") -> None:
        """Sends a close frame."""
        await self.send(CLOSE, closing(code, reason))

    async def frame(self, *, within: float = WAIT) -> Frame:
        """Returns the next frame, whatever it is."""
        async with asyncio.timeout(within):
            while (one := decoded(self.data)) is None:
                piece = await self.reader.read(1 << 18)
                if not piece:
                    raise EOFError(f"the connection ended after {self.data[:60]!r}")
                self.data += piece
        self.data = self.data[one[1] :]
        return one[0]

    async def hears(self, text: bytes, *, opcode: int = TEXT, within: float = WAIT) -> None:
        """Checks that this is what comes next."""
        assert await self.frame(within=within) == Frame(opcode, text, masked=self._mask is None)

    async def answers_pings(self, *, within: float = WAIT) -> Frame:
        """Returns the next frame that is no ping; pings are answered."""
        while (one := await self.frame(within=within)).opcode == PING:
            await self.send(PONG, one.payload)
        return one

    async def told(self, *, within: float = WAIT) -> tuple[int | None, bytes]:
        """Returns code and reason of the close frame that must come next."""
        one = await self.frame(within=within)
        assert one.opcode == CLOSE, one
        return (int.from_bytes(one.payload[:2], "big") if one.payload else None), one.payload[2:]

    async def over(self, *, within: float = WAIT) -> bytes:
        """Reads to the connection's end; returns what came."""
        async with asyncio.timeout(within):
            try:
                while piece := await self.reader.read(1 << 18):
                    self.data += piece
            except ConnectionError:
                pass
        return self.data

    async def has(self, size: int) -> None:
        """Waits until so many bytes have come that no frame was made of."""
        async with asyncio.timeout(WAIT):
            while len(self.data) < size:
                piece = await self.reader.read(1 << 16)
                assert piece, self.data
                self.data += piece

    def half_close(self) -> None:
        """Sends nothing more."""
        self.writer.write_eof()

    def leave(self) -> None:
        """Closes the connection."""
        self.writer.close()

    def reset(self) -> None:
        """Ends the connection by a reset."""
        bound: socket.socket = self.writer.get_extra_info("socket")
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def pause(self) -> None:
        """Takes nothing."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Takes what comes."""
        self._transport.resume_reading()

    @property
    def _transport(self) -> Any:
        return self.writer.transport


def agreed(exchange: Exchange, *, headers: Headers = ()) -> bytes:
    """Returns the head by which a provider agrees."""
    lines = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
    lines.append(b"Sec-WebSocket-Accept: " + accept_of(exchange.request.header("sec-websocket-key") or ""))
    lines += [latin(name) + b": " + latin(value) for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Talks:
    """A provider that agrees to every WebSocket; `headers` and `first` come with its agreement."""

    def __init__(self, provider: ScriptedProvider, *, headers: Headers = (), first: bytes = b"") -> None:
        self._headers = headers
        self._first = first
        self._ends: asyncio.Queue[End] = asyncio.Queue()
        self.provider = provider
        provider.script = self._script

    async def _script(self, exchange: Exchange) -> None:
        end = End(exchange.ears, exchange.writer, masks=False)
        end.request = exchange.request
        exchange.writer.write(agreed(exchange, headers=self._headers) + self._first)
        self._ends.put_nowait(end)
        await asyncio.Event().wait()

    async def next(self) -> End:
        """Returns the provider's end of the next one."""
        async with asyncio.timeout(WAIT):
            return await self._ends.get()


def asks(path: str = "/v1/realtime?model=talk", *, headers: Headers = (), method: str = "GET") -> bytes:
    """Returns a handshake, with these headers besides its own."""
    own = [("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-version", "13")]
    return request_bytes(method, path, headers=[*own, ("sec-websocket-key", KEY), *headers])


@asynccontextmanager
async def opened(
    lab: Lab, path: str = "/v1/realtime?model=talk", *, headers: Headers = (), early: bytes = b""
) -> AsyncIterator[End]:
    """A client's end; `early` is sent together with its handshake."""
    async with lab.wire() as wire:
        await wire.send(asks(path, headers=headers) + early)
        yield await entered(wire)


async def entered(wire: Wire) -> End:
    """Returns the client's end, when it was agreed to."""
    async with asyncio.timeout(WAIT):
        head = await wire.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"), head
    assert (b"sec-websocket-accept", accept_of(KEY)) in fields(head)
    end = End(wire.reader, wire.writer, masks=True)
    end.answer = head
    return end


async def ends(client: End, provider: End) -> None:
    """Ends one as both sides should."""
    await client.close(1000)
    await provider.told()
    await provider.close(1000)
    await client.told()
    provider.leave()
    await client.over()


def fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """Returns a head's lines, their names in lower case."""
    pairs = (line.partition(b": ") for line in head[:-4].split(b"\r\n")[1:])
    return [(name.lower(), value) for name, _, value in pairs]


@asynccontextmanager
async def talking(
    lab: Lab, *, provider: str = "talk", path: str = "/v1/realtime?model=talk", headers: Headers = ()
) -> AsyncIterator[tuple[End, End]]:
    """The client's end and the provider's of one WebSocket."""
    talks = Talks(lab[provider])
    async with opened(lab, path, headers=headers) as client:
        yield client, await talks.next()
