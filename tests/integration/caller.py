"""The application's side of the wire: raw requests, and answers with every byte and when it came."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

HOST = "127.0.0.1"
PATIENCE = 15.0
_LIMIT = 1 << 22

Headers = Iterable[tuple[str | bytes, str | bytes]]
Body = bytes | Mapping[str, Any] | list[Any] | None


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came back. `status` 0: no head. `complete`: the framing says that nothing is missing."""

    status: int = 0
    version: str = ""
    phrase: str = ""
    head: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    interim: list[int] = field(default_factory=list)
    complete: bool = False
    seconds: float = 0.0

    def all(self, name: str) -> list[str]:
        """Returns the values of every line with this name."""
        return [value.decode("latin-1") for key, value in self.headers if key.lower() == name.encode()]

    def header(self, name: str) -> str | None:
        """Returns the value of the first line with this name."""
        return next(iter(self.all(name)), None)

    def json(self) -> Any:
        """Returns the body's document."""
        return json.loads(self.body)

    @property
    def reason(self) -> str | None:
        """Why the proxy answered itself; None for a provider's answer."""
        return self.header("x-sponson-reason")

    @property
    def provider(self) -> str | None:
        """Who answered."""
        return self.header("x-sponson-provider")

    @property
    def attempts(self) -> int:
        """How many upstream calls it took."""
        return int(self.header("x-sponson-attempts") or -1)

    @property
    def tier(self) -> int:
        """Which tier answered."""
        return int(self.header("x-sponson-tier") or -1)


def packed(body: Body) -> bytes:
    """Returns the body's bytes."""
    if body is None or isinstance(body, bytes):
        return body or b""
    return json.dumps(body).encode()


def latin(text: str | bytes) -> bytes:
    """Returns header text as bytes."""
    return text if isinstance(text, bytes) else text.encode("latin-1")


def request_bytes(method: str, path: str | bytes, *, headers: Headers = (), body: Body = None) -> bytes:
    """Returns a request with a Host, these headers, and a length when there is a body to speak of."""
    data = packed(body)
    lines = [latin(method) + b" " + latin(path) + b" HTTP/1.1", b"host: proxy.test"]
    lines += [latin(name) + b": " + latin(value) for name, value in headers]
    given = {latin(name).lower() for name, _ in headers}
    if body is not None and not isinstance(body, bytes) and b"content-type" not in given:
        lines.append(b"content-type: application/json")
    if body is not None and not given & {b"content-length", b"transfer-encoding"}:
        lines.append(b"content-length: %d" % len(data))
    return b"\r\n".join(lines) + b"\r\n\r\n" + data


class Wire:
    """One connection to the proxy."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=_LIMIT)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    @property
    def reader(self) -> asyncio.StreamReader:
        """What comes back."""
        assert self._reader is not None
        return self._reader

    @property
    def writer(self) -> asyncio.StreamWriter:
        """What is sent."""
        assert self._writer is not None
        return self._writer

    async def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    def leave(self, *, reset: bool = True) -> None:
        """Goes away, by a reset or by closing."""
        if reset:
            sock: socket.socket = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()

    async def closed(self, *, within: float = 3.0) -> bool:
        """Whether the proxy ends the connection without another byte."""
        try:
            async with asyncio.timeout(within):
                return await self.reader.read(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    async def answer(
        self, *, method: str = "POST", within: float = PATIENCE, on_piece: Callable[[bytes], None] | None = None
    ) -> Answer:
        """Reads one answer; what did not come in time, or was cut off, is missing from it."""
        began, answer = time.monotonic(), Answer()
        try:
            async with asyncio.timeout(within):
                await self._head(answer)
                await self._body(answer, method, on_piece)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass
        answer.body = b"".join(data for _, data in answer.pieces)
        answer.seconds = time.monotonic() - began
        return answer

    async def _head(self, answer: Answer) -> None:
        while True:
            raw = await self.reader.readuntil(b"\r\n\r\n")
            lines = raw[:-4].split(b"\r\n")
            version, status, *phrase = lines[0].decode("latin-1").split(" ", 2)
            if int(status) >= 200:
                break
            answer.interim.append(int(status))
        answer.head, answer.version, answer.status, answer.phrase = raw, version, int(status), "".join(phrase)
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            answer.headers.append((name, value.strip()))

    async def _body(self, answer: Answer, method: str, on_piece: Callable[[bytes], None] | None) -> None:
        def came(data: bytes) -> None:
            answer.pieces.append((time.monotonic(), data))
            if on_piece is not None:
                on_piece(data)

        length = answer.header("content-length")
        if method == "HEAD" or answer.status in (204, 304):
            answer.complete = True
        elif "chunked" in (answer.header("transfer-encoding") or ""):
            while data := await self._chunk():
                came(data)
            answer.complete = True
        elif length is not None:
            left = int(length)
            while left and (data := await self.reader.read(min(left, 1 << 16))):
                left -= len(data)
                came(data)
            answer.complete = not left
        else:
            while data := await self.reader.read(1 << 16):
                came(data)
            answer.complete = True

    async def _chunk(self) -> bytes:
        line = await self.reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        return (await self.reader.readexactly(size + 2))[:-2]


async def call(
    port: int,
    path: str | bytes = "/v1/chat/completions",
    body: Body = None,
    *,
    method: str = "POST",
    headers: Headers = (),
    within: float = PATIENCE,
) -> Answer:
    """Makes one call on a connection of its own; `seconds` counts from the dial."""
    began = time.monotonic()
    async with Wire(port) as wire:
        await wire.send(request_bytes(method, path, headers=headers, body=body))
        answer = await wire.answer(method=method, within=within)
    answer.seconds = time.monotonic() - began
    return answer
