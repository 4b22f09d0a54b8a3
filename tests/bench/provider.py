"""The model server behind every row: it answers at once, so that only the proxy in front of it is measured.

A request with `"stream":true` gets 51 events, 20 ms apart, each in its own chunk; any other one JSON answer.
Run as a module it serves on a port of its own choice, which it prints.
"""

from __future__ import annotations

import asyncio
from typing import cast

import uvloop

from tests.bench import traffic

BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


class Provider(asyncio.Protocol):
    """One connection of the provider; requests are answered one after another."""

    def __init__(self, *, gap_seconds: float = traffic.EVENT_GAP_SECONDS) -> None:
        self._gap_seconds = gap_seconds
        self._loop = asyncio.get_running_loop()
        self._reader = traffic.MessageReader()
        self._transport: asyncio.WriteTransport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._reader.feed(data):
            return
        body = self._reader.body
        self._reader.forget()
        mark = traffic.find_mark(body)
        if mark is None:
            self._transport.write(BAD_REQUEST)
        elif b'"stream":true' in body:
            self._transport.write(traffic.STREAM_HEAD + traffic.stream_chunk(mark, 0))
            self._send_later(mark, 1, self._loop.time())
        else:
            self._transport.write(traffic.answer(mark))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _send_later(self, mark: bytes, index: int, began: float) -> None:
        due = began + index * self._gap_seconds
        self._timer = self._loop.call_at(due, self._send, mark, index, began)

    def _send(self, mark: bytes, index: int, began: float) -> None:
        chunk = traffic.stream_chunk(mark, index)
        if index == traffic.EVENT_COUNT - 1:
            self._transport.write(chunk + traffic.END_OF_CHUNKS)
        else:
            self._transport.write(chunk)
            self._send_later(mark, index + 1, began)


async def serve() -> None:
    """Serve until cancelled; the port goes to standard output."""
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
