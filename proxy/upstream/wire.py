"""Everything of aiohttp that is not public, for the upstream side: dialling and parsing below `ClientSession`.

aiohttp's connector gives TCP, TLS, DNS and happy eyeballs; its C parser reads answers. `ClientSession`, `ClientRequest`
and `ClientResponse` cost more than the rest of the proxy together. The contract test of this file runs its whole table
against real sockets and notices when another aiohttp changes something.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from aiohttp import ClientTimeout, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection as AiohttpConnection
from aiohttp.http_parser import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

READ_BUFFER: Final = 65536
MAX_FIELD: Final = 65536
MAX_HEADERS: Final = 256
DNS_SECONDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a provider listens; the identity of its connection pool."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class _CountingHandler(ResponseHandler):
    """aiohttp's response protocol, counting bytes: zero means that the provider has said nothing at all."""

    received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)


class _DialTarget:
    """What the connector reads of a request; one per address."""

    def __init__(self, address: Address) -> None:
        self.url = URL.build(scheme=address.scheme, host=address.host, port=address.port)
        self.host, self.port = address.host, address.port
        self._tls = address.scheme == "https"
        self.ssl = True
        self.proxy = self.proxy_auth = self.proxy_headers = self.server_hostname = None
        self.connection_key = ConnectionKey(address.host, address.port, self._tls, True, None, None, None, None)

    def is_ssl(self) -> bool:
        return self._tls


class UpstreamConnection:
    """One connection to a provider, held for one attempt at a time. End every use with `Pool.put` or `kill`."""

    __slots__ = ("_connection", "_protocol", "idle_since", "received_before", "uses")

    def __init__(self, connection: AiohttpConnection) -> None:
        self._connection = connection
        self._protocol = cast(_CountingHandler, connection.protocol)
        self.idle_since = 0.0
        self.received_before = 0
        self.uses = 0

    @property
    def usable(self) -> bool:
        """False when the peer has closed, or said something that nobody asked for."""
        protocol = self._protocol
        return protocol.is_connected() and not protocol.should_close

    @property
    def received(self) -> int:
        """Bytes that came since `expect`."""
        return self._protocol.received - self.received_before

    @property
    def paused(self) -> bool:
        """True while the peer does not take what is written."""
        return self._protocol.writing_paused

    def expect(self, *, body: bool) -> None:
        """Prepares for one answer; without `body` (HEAD) a Content-Length is not waited for."""
        self.uses += 1
        self.received_before = self._protocol.received
        self._protocol.set_response_params(
            skip_payload=not body,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            max_line_size=MAX_FIELD,
            max_field_size=MAX_FIELD,
            max_headers=MAX_HEADERS,
        )

    def write(self, head: bytes, body: bytes) -> None:
        """Writes both at once; a lost connection shows at the next read."""
        if (transport := self._protocol.transport) is not None:
            transport.writelines((head, body))

    async def drain(self) -> None:
        """Returns when the peer has taken enough. Raises what ended the connection."""
        await self._protocol._drain_helper()

    async def head(self) -> tuple[RawResponseMessage, StreamReader]:
        """Returns the next head and its body's reader; interim answers (1xx) come one by one too."""
        return await self._protocol.read()

    def kill(self) -> None:
        """Ends the connection at once, whatever is under way. Never close(): TLS would wait for its peer."""
        if (transport := self._protocol.transport) is not None:
            transport.abort()
        self._connection.close()

    def abort(self) -> None:
        """Ends the transport only; a reader that waits is woken with an error."""
        if (transport := self._protocol.transport) is not None:
            transport.abort()


class Dialer:
    """Opens connections to one address; keeps aiohttp's connector and its resolver's cache."""

    __slots__ = ("_connector", "_target", "address")

    def __init__(self, address: Address, *, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._target = _DialTarget(address)
        self._connector = TCPConnector(
            limit=0, ttl_dns_cache=DNS_SECONDS, force_close=False, ssl=tls if tls is not None else True
        )
        self._connector._factory = cast(Any, partial(_CountingHandler, loop=asyncio.get_running_loop()))

    async def dial(self, seconds: float) -> UpstreamConnection:
        """Opens a connection within `seconds`, name look-up and TLS included. Raises aiohttp's errors, TimeoutError."""
        timeout = ClientTimeout(total=None, connect=seconds, sock_connect=seconds, ceil_threshold=float("inf"))
        connection = await self._connector.connect(cast(Any, self._target), traces=[], timeout=timeout)
        return UpstreamConnection(connection)

    async def close(self) -> None:
        """Closes what the connector itself still holds."""
        await self._connector.close()


def salvage(payload: StreamReader) -> bytes:
    """Returns what a reader still holds after its connection broke: those bytes did arrive."""
    return payload._read_nowait(-1) if payload._buffer else b""
