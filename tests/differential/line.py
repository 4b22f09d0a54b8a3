"""The product in this event loop, a provider that keeps every byte, and a caller that sends what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import h11

from tests.differential.opinions import Asked
from tests.downstream.visitor import Answer, read_answer
from tests.runtime.traffic import LocalProxy

POLICY: Final = """\
version: 1
providers:
  alpha: {{base_url: "http://127.0.0.1:{port}", breaker: "off", connections: {{idle: 1h}}}}
routes:
  - {{name: all, match: {{path: "*"}}, tiers: [{{provider: alpha}}], retry: {{attempts: 1}}}}
"""
PATIENCE_SECONDS: Final = 20.0
BODILESS: Final = frozenset({204, 304})
TURNS: Final = 40
"""Of the event loop, after which everything that can happen has happened."""


class Provider:
    """Answers requests as h11 reads them; `raw` is what came on each connection since it was last looked at."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Asked]] = []
        self.raw: dict[int, bytes] = {}
        self.answer: Callable[[Asked], tuple[bytes, bool, bool]] | None = None
        """Returns an answer's bytes, whether the connection ends with them, and whether it is good for more."""
        self.misread: list[str] = []
        self.connections = self.open = 0

    def __call__(self) -> asyncio.Protocol:
        self.connections += 1
        return _Heard(self, self.connections)

    def forget(self) -> None:
        """Forgets what was asked; connections stay."""
        self.asked.clear()
        self.raw.clear()
        self.misread.clear()
        self.answer = None


class _Heard(asyncio.Protocol):
    """One connection to the provider."""

    def __init__(self, provider: Provider, number: int) -> None:
        self._provider = provider
        self._number = number
        self._reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        self._head: h11.Request | None = None
        self._pieces: list[bytes] = []
        self._good = True
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._provider.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._provider.open -= 1

    def data_received(self, data: bytes) -> None:
        provider, number = self._provider, self._number
        provider.raw[number] = provider.raw.get(number, b"") + data
        if not self._good:
            provider.misread.append("asked again after a doubt")
        self._reader.receive_data(data)
        try:
            while self._next():
                pass
        except h11.ProtocolError as error:
            provider.misread.append(repr(error))

    def _next(self) -> bool:
        event = self._reader.next_event()
        if isinstance(event, h11.Request):
            self._head, self._pieces = event, []
        elif isinstance(event, h11.Data):
            self._pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._answer()
        else:
            return False
        return True

    def _answer(self) -> None:
        head, provider = self._head, self._provider
        assert head is not None
        asked = Asked(method=head.method, target=head.target, body=b"".join(self._pieces))
        provider.asked.append((self._number, asked))
        said, ends = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" + b"ok" * (asked.method != b"HEAD"), False
        if provider.answer is not None:
            said, ends, self._good = provider.answer(asked)
        self._transport.write(said)
        if ends:
            self._transport.close()
            return
        self._reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        self._reader.send(h11.EndOfMessage())
        self._reader.start_next_cycle()


class Line:
    """A provider, the product in front of it, and callers."""

    def __init__(self, folder: Path) -> None:
        self.provider = Provider()
        self._policy = folder / "policy.yaml"
        self._server: asyncio.Server
        self._proxy: LocalProxy
        self._port = 0

    async def start(self) -> None:
        """Listens."""
        self._server = await asyncio.get_running_loop().create_server(self.provider, "127.0.0.1", 0)
        self._policy.write_text(POLICY.format(port=self._server.sockets[0].getsockname()[1]))
        self._proxy = LocalProxy(self._policy)
        self._port = await self._proxy.start()

    async def stop(self) -> None:
        """Ends everything."""
        await self._proxy.stop()
        self._server.close()
        while self.provider.open:
            await asyncio.sleep(0)

    async def call(self, pieces: list[bytes], *, methods: list[bytes], to_the_end: bool) -> Caller:
        """Sends pieces on a connection of their own; returns who has heard what came back.

        Waits for as many answers as there are `methods`, and the end of the connection if the product has to bring it
        about; else it goes when nothing more can come.
        """
        loop = asyncio.get_running_loop()
        transport, caller = await loop.create_connection(lambda: Caller(methods), "127.0.0.1", self._port)
        try:
            for piece in pieces:
                if caller.ended:
                    break
                transport.write(piece)
                await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (caller.ended or (caller.satisfied and not to_the_end)):
                    await asyncio.sleep(0)
        finally:
            transport.abort()
            await self._all_gone(caller)
        return caller

    async def _all_gone(self, caller: Caller) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not caller.ended or self._proxy.server.busy or len(self._proxy.server.protocols.connections):
                await asyncio.sleep(0)


class Caller(asyncio.Protocol):
    """Reads final answers; `rest` is what follows the last whole one. `satisfied`: nothing more comes by itself."""

    def __init__(self, methods: list[bytes]) -> None:
        self._methods = methods
        self._quiet = 0
        self.found: list[Answer] = []
        self.raw = self.rest = b""
        self.ended = self.broken = False

    def data_received(self, data: bytes) -> None:
        self._quiet = 0
        self.raw += data
        self.rest += data
        self._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended, self.broken = True, exc is not None
        self._read()

    def _read(self) -> None:
        while b"\r\n\r\n" in self.rest:
            count = len(self.found)
            head = count < len(self._methods) and self._methods[count] == b"HEAD"
            answer, rest = read_answer(self.rest, head=head)
            delimited = head or answer.all("content-length") or answer.all("transfer-encoding")
            if not answer.whole or not (self.ended or delimited or answer.status in BODILESS or answer.status < 200):
                break
            self.rest = rest
            if answer.status >= 200:
                self.found.append(answer)

    @property
    def satisfied(self) -> bool:
        self._quiet += 1
        return len(self.found) >= len(self._methods) and self._quiet > TURNS
