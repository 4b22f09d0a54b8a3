"""The model servers: they count what they have in flight, and know who must not come.

A call ends for them before its last byte leaves: what they count is never more than what the proxy has let go.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.soak.policies import BURST, NUMBER_HEADER, RATE
from tests.soak.promises import Book, Promise

EVENTS = 6
ANSWER_SECONDS = 0.04
STREAM_SECONDS = 0.1
TURN_HEADER = "x-turn"
UNORDERED = -1
HOUR = 3600
BUNCHED = 4.0
"""Calls that were let go one after the other may come together: at most all that can be under way at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call, as far as a server looks at it."""

    fields: Mapping[str, str]
    document: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model that is asked for."""
        return str(self.document["model"])

    @property
    def key(self) -> str:
        """The key that it comes with: what its secret begins with, as a secret may be replaced."""
        return self.fields.get("authorization", "").removeprefix("Bearer ").partition("-")[0]


Judge = Callable[[Asked], "tuple[int, dict[str, str]]"]
"""Returns the status and the headers of the answer."""


class Server:
    """One provider on as many ports as it has addresses."""

    def __init__(self, name: str, book: Book, *, addresses: int = 1, judge: Judge | None = None) -> None:
        self.name = name
        self.received = 0
        self.number = ""
        self.statuses: Counter[int] = Counter()
        self.ports: tuple[int, ...] = ()
        self._addresses = addresses
        self._book = book
        self._judge = judge or (lambda asked: (200, {}))
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listens on every address."""
        for _ in range(self._addresses):
            self._servers.append(await asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.ports = tuple(server.sockets[0].getsockname()[1] for server in self._servers)

    async def stop(self) -> None:
        """Ends everything."""
        for server in self._servers:
            server.close()
        for writer in self._connections:
            writer.close()
        for server in self._servers:
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                await self._answer(writer, await _read(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, asked: Asked) -> None:
        self.received += 1
        self.number = asked.fields.get(NUMBER_HEADER, "")
        status, headers = self._judge(asked)
        self.statuses[status] += 1
        scopes = self._scopes(asked)
        self._book.taken(scopes)
        try:
            if status == 200 and asked.document.get("stream"):
                await self._stream(writer)
            else:
                await asyncio.sleep(ANSWER_SECONDS)
        finally:
            self._book.given(scopes)
        writer.write(_end_of_stream() if status == 200 and asked.document.get("stream") else _answer(status, headers))

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(EVENTS):
            await asyncio.sleep(STREAM_SECONDS / EVENTS)
            writer.write(_chunk(b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number))

    def _scopes(self, asked: Asked) -> list[str]:
        scopes = ["all", self.name, f"{self.name} {asked.model}"]
        if asked.key:
            scopes.append(f"{self.name} key {asked.key}")
        return scopes


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    pairs = (line.partition(": ") for line in head.split("\r\n")[1:] if line)
    fields = {name.lower(): value for name, _, value in pairs}
    return Asked(fields=fields, document=json.loads(await reader.readexactly(int(fields["content-length"]))))


def _answer(status: int, headers: Mapping[str, str]) -> bytes:
    wrong = {"error": {"message": "as scripted", "type": "scripted", "code": "invalid_api_key"}}
    right = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}}]}
    body = json.dumps(right if status == 200 else wrong).encode()
    lines = [f"HTTP/1.1 {status} Said", "content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _end_of_stream() -> bytes:
    return _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@dataclass(slots=True)
class Rules:
    """Who must not come any more, once what is to be seen broken is broken (`closed`)."""

    book: Book
    closed: bool = False
    turn: int = -1
    left: float = BURST + BUNCHED
    last_at: float = 0.0

    def broken(self, asked: Asked) -> tuple[int, dict[str, str]]:
        """Fails every call; once its breaker is open none may come."""
        if self.closed:
            self.book.breach(Promise.BREAKER, "a call reached the provider whose breaker is open")
        return 500, {}

    def keyed(self, asked: Asked) -> tuple[int, dict[str, str]]:
        """Has one key rest for an hour and refuses another; once both are known neither may come."""
        if asked.key in ("good", "other"):
            return 200, {}
        if self.closed:
            self.book.breach(Promise.KEYS, f"a call came with the key that is {asked.key}")
        return (429, {"retry-after": str(HOUR)}) if asked.key == "resting" else (401, {})

    def narrow(self, asked: Asked) -> tuple[int, dict[str, str]]:
        """Has one place: who came first must be served first."""
        turn = int(asked.fields[TURN_HEADER])
        if turn <= self.turn and turn != UNORDERED:
            self.book.breach(Promise.QUEUE, f"number {turn} was served after number {self.turn}")
        self.turn = max(self.turn, turn)
        return 200, {}

    def metered(self, asked: Asked) -> tuple[int, dict[str, str]]:
        """Grants a rate: what comes beyond it and a full bucket was let go by a bucket that had been refilled."""
        now = self.book.now()
        self.left = min(self.left + (now - self.last_at) * RATE, BURST + BUNCHED) - 1.0
        self.last_at = now
        if self.left < 0:
            self.book.breach(Promise.QUOTAS, f"{-self.left:.1f} calls more than the rate has allowed so far")
            self.left = 0.0
        return 200, {}
