"""A raw client: what really stands on the wire, and how the connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello brave world"}]}
MESSAGE = {**CHAT, "max_tokens": 100}
STREAM = {**CHAT, "stream": True}
Headers = list[tuple[str, str]]


def request(target: str, body: Any = None, headers: Headers | None = None, method: str | None = None) -> bytes:
    """Returns the bytes of a request; a body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"{method or ('POST' if data else 'GET')} {target} HTTP/1.1", "Host: sim"]
    lines += [f"{name}: {value}" for name, value in headers or []]
    if data:
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + data


@contextlib.asynccontextmanager
async def connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Opens a connection and closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Answer:
    """Status, headers and the body as far as it came; `whole` tells whether its framing was completed."""

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        pairs = [line.split(": ", 1) for line in lines if line]
        self.headers = {name.lower(): value for name, value in pairs}
        self.body = b""
        self.whole = False

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)

    @property
    def events(self) -> list[str]:
        """The complete server-sent events of the body."""
        return self.body.decode().split("\n\n")[:-1]


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Reads one answer up to its end or to the end of the connection; ConnectionResetError passes through."""
    answer = Answer(await reader.readuntil(b"\r\n\r\n"))
    try:
        if "content-length" in answer.headers:
            left = int(answer.headers["content-length"])
            while left > 0:
                piece = await reader.read(left)
                if not piece:
                    return answer
                answer.body += piece
                left -= len(piece)
        else:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                answer.body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
    except asyncio.IncompleteReadError:
        return answer
    answer.whole = True
    return answer


async def call(
    port: int, target: str, body: Any = None, headers: Headers | None = None, method: str | None = None
) -> Answer:
    """One request on a connection of its own."""
    async with connection(port) as (reader, writer):
        writer.write(request(target, body, headers, method))
        return await asyncio.wait_for(read_answer(reader), 10)


async def chat(port: int, fault: str | None = None, body: Any = None) -> Answer:
    """A chat call, with an `x-sim-fault` header if one is given."""
    headers = [] if fault is None else [("X-Sim-Fault", fault)]
    return await call(port, "/v1/chat/completions", body or CHAT, headers)


async def eventually(condition: Callable[[], bool], seconds: float = 5) -> None:
    """Returns when the condition holds; TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
