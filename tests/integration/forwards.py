"""A proxy with a forward listener, and servers behind its tunnels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.integration.caller import HOST, Answer, Wire, call
from tests.integration.harness import Lab
from tests.integration.messages import CHAT
from tests.ports import free_port


class Forward:
    """A lab with a forward proxy; `port` is that of the forward listener, `url` a provider's whole address."""

    def __init__(self, lab: Lab, port: int) -> None:
        self.lab = lab
        self.port = port

    def url(self, name: str, path: str = "/v1/chat/completions") -> str:
        return f"http://{HOST}:{self.lab[name].port}{path}"

    async def ask(self, target: str, body: Any = CHAT, *, method: str = "POST", headers: Any = ()) -> Answer:
        return await call(self.port, target, body, method=method, headers=headers)

    async def connect(self, wire: Wire, target: str) -> bytes:
        """Asks for a tunnel; returns the head of the answer."""
        await wire.send(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
        async with asyncio.timeout(10):
            return await wire.reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def forward(policy: dict[str, Any]) -> AsyncIterator[Forward]:
    port = free_port()
    async with Lab(policy, flags=["--forward", f"{HOST}:{port}"]) as lab:
        yield Forward(lab, port)


@asynccontextmanager
async def peer(serve: Any) -> AsyncIterator[int]:
    """A server that is no HTTP server."""
    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def lists(port: int, **more: Any) -> dict[str, Any]:
    return {"version": 1, "providers": {"a": {"hosts": [f"{HOST}:{port}", f"localhost:{port}"], **more}}}


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says back what comes; after the end of that, how much it was."""
    size = 0
    while data := await reader.read(65536):
        size += len(data)
        writer.write(data)
        await writer.drain()
    writer.write(b"in all %d" % size)
    writer.close()
