"""A model server at socket level: each request is answered by a coroutine that may do anything to the connection."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.integration.caller import HOST, Body, Headers, latin, packed

_LIMIT = 1 << 22
_LITTLE = 1 << 16


@dataclass(slots=True, kw_only=True)
class Received:
    """One request as it came; `at` is monotonic, `connection` counts connections from 0."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    head: bytes
    connection: int
    body: bytes = b""
    at: float = field(default_factory=time.monotonic)

    def all(self, name: str) -> list[bytes]:
        """Returns the values of every line with this name."""
        return [value for key, value in self.headers if key.lower() == name.encode()]

    def header(self, name: str) -> str | None:
        """Returns the value of the first line with this name."""
        found = self.all(name)
        return found[0].decode("latin-1") if found else None

    @property
    def names(self) -> list[str]:
        """The header names in order and lower case."""
        return [name.decode("latin-1").lower() for name, _ in self.headers]

    def json(self) -> Any:
        """Returns the body's document."""
        return json.loads(self.body)


class Ears(asyncio.StreamReader):
    """A reader that also says when the other side has gone."""

    def __init__(self) -> None:
        super().__init__(limit=_LIMIT)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: BaseException) -> None:
        self.gone.set()
        super().set_exception(exc)  # type: ignore[arg-type]


class Exchange:
    """One request under way, as its script sees it; `number` counts the provider's requests from 0."""

    def __init__(self, request: Received, number: int, ears: Ears, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self.number = number
        self.ears = ears
        self.writer = writer
        self.ended = False

    async def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, status: int = 200, body: Body = b"", *, headers: Headers = (), phrase: str = "Said") -> None:
        """Answers with a length."""
        data = packed(body)
        lines = [f"HTTP/1.1 {status} {phrase}".encode()]
        lines += [latin(name) + b": " + latin(value) for name, value in headers]
        if not isinstance(body, bytes):
            lines.append(b"content-type: application/json")
        lines.append(b"content-length: %d" % len(data))
        await self.send(b"\r\n".join(lines) + b"\r\n\r\n" + data)

    async def begin(self, kind: str = "text/event-stream", *, headers: Headers = ()) -> None:
        """Begins a chunked answer."""
        lines = [b"HTTP/1.1 200 OK", b"content-type: " + kind.encode(), b"transfer-encoding: chunked"]
        lines += [latin(name) + b": " + latin(value) for name, value in headers]
        await self.send(b"\r\n".join(lines) + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        """Sends one piece of a chunked answer."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Ends a chunked answer well."""
        await self.send(b"0\r\n\r\n")

    async def stream(self, events: Iterable[bytes], *, gap: float = 0.0) -> None:
        """Answers with events, from the head to the end."""
        await self.begin()
        for event in events:
            await self.chunk(event)
            await asyncio.sleep(gap)
        await self.end()

    def reset(self) -> None:
        """Ends the connection by a reset."""
        self.ended = True
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Ends the connection by closing it."""
        self.ended = True
        self.writer.close()

    async def read_body(self) -> None:
        """Reads the request's body, for providers that do not do it by themselves."""
        self.request.body = await _read_body(self.ears, self.request)


Script = Callable[[Exchange], Awaitable[None]]


class ScriptedProvider:
    """Listens on a port of its own, also while its script changes.

    `left_at`: when the proxy ended a connection under a running script. `reads_bodies` False: scripts start at the
    head.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.script: Script = _answers_nothing
        self.reads_bodies = True
        self.seen: list[Received] = []
        self.left_at: list[float] = []
        self.active = self.peak = self.accepted = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self._protocol, HOST, self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def take_little(self) -> None:
        """From the next connection on its system keeps little of what its scripts have not read: else up to 32 MiB."""
        assert self._server is not None
        for listening in self._server.sockets:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE)

    def refuse(self) -> None:
        """Takes no more connections."""
        if self._server is not None:
            self._server.close()

    async def listen_again(self) -> None:
        """Takes connections again, on the same port."""
        await self.__aenter__()

    def forget(self) -> None:
        """Forgets what was seen."""
        self.seen.clear()
        self.left_at.clear()
        self.peak = self.active

    @property
    def only(self) -> Received:
        """The one request that came."""
        assert len(self.seen) == 1, f"{len(self.seen)} requests came"
        return self.seen[0]

    async def has_seen(self, count: int, *, within: float = 5.0) -> None:
        """Waits until so many requests came."""
        async with asyncio.timeout(within):
            while len(self.seen) < count:
                await asyncio.sleep(0.005)

    async def was_left(self, count: int = 1, *, within: float = 5.0) -> float:
        """Waits until the proxy ended so many calls; returns when it ended the last of them."""
        async with asyncio.timeout(within):
            while len(self.left_at) < count:
                await asyncio.sleep(0.005)
        return self.left_at[count - 1]

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        ears = Ears()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(ears, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return asyncio.StreamReaderProtocol(ears, connected)

    async def _serve(self, ears: Ears, writer: asyncio.StreamWriter) -> None:
        number, self.accepted = self.accepted, self.accepted + 1
        try:
            while (request := await self._read(ears, number)) is not None:
                exchange = Exchange(request, len(self.seen), ears, writer)
                self.seen.append(request)
                if not await self._run(exchange) or exchange.ended:
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left_at.append(time.monotonic())
        finally:
            writer.close()

    async def _run(self, exchange: Exchange) -> bool:
        """Runs the script; False when the proxy went away meanwhile."""
        self.active += 1
        self.peak = max(self.peak, self.active)
        script = asyncio.ensure_future(self._scripted(exchange))
        gone = asyncio.ensure_future(exchange.ears.gone.wait())
        try:
            await asyncio.wait({script, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not script.done():
                self.left_at.append(time.monotonic())
                return False
            await script
            return True
        finally:
            script.cancel()
            gone.cancel()

    async def _scripted(self, exchange: Exchange) -> None:
        """Counts down in the step in which the script ends: the proxy may send its next call at once."""
        try:
            await self.script(exchange)
        finally:
            self.active -= 1

    async def _read(self, ears: Ears, number: int) -> Received | None:
        try:
            head = await ears.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None
        lines = head[:-4].split(b"\r\n")
        method, target, _ = lines[0].split(b" ", 2)
        pairs = (line.partition(b":") for line in lines[1:])
        headers = [(name, value.strip()) for name, _, value in pairs]
        request = Received(method=method.decode(), target=target, headers=headers, head=head, connection=number)
        if self.reads_bodies:
            request.body = await _read_body(ears, request)
        return request


async def _read_body(ears: asyncio.StreamReader, request: Received) -> bytes:
    if (length := request.header("content-length")) is not None:
        return await ears.readexactly(int(length))
    if "chunked" not in (request.header("transfer-encoding") or ""):
        return b""
    pieces = []
    while size := int((await ears.readuntil(b"\r\n")).split(b";")[0], 16):
        pieces.append((await ears.readexactly(size + 2))[:-2])
    await ears.readexactly(2)
    return b"".join(pieces)


async def _answers_nothing(exchange: Exchange) -> None:
    await exchange.reply(200, {"said": "nothing"})
