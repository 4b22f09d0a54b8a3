"""Everything of aiohttp that is not public, for the upstream side: dialling and parsing below `ClientSession`.

aiohttp's connector gives TCP, TLS, DNS and happy eyeballs; its C parser reads answers. `ClientSession`, `ClientRequest`
and `ClientResponse` cost more than the rest of the proxy together. The contract test of this file runs its whole table
against real sockets and notices when another aiohttp changes something.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from aiohttp import ClientPayloadError, ClientTimeout, StreamReader, TCPConnector
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection as AiohttpConnection
from aiohttp.helpers import _EXC_SENTINEL
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawResponseMessage
from yarl import URL

from proxy.upstream.address import Address
from proxy.upstream.watch import Watch

AnswerHead = RawResponseMessage
MalformedAnswer = HttpProcessingError
"""What aiohttp's parser raises for bytes that are no answer; not one of its client errors."""

READ_BUFFER: Final = 65536
MAX_FIELD: Final = 65536
BODILESS: Final = frozenset({b"204", b"304"})
MAX_HEADERS: Final = 256
DNS_SECONDS: Final = 10


class _Protocol(ResponseHandler):
    """aiohttp's response protocol; whoever reads a body is told when it breaks, in every way in which it can."""

    resting = False
    """True between answers: what comes then belongs to nobody."""
    awaited = False
    """True until the first bytes of an answer."""

    def data_received(self, data: bytes) -> None:
        """Parses what came; a connection on which something came unasked is not used again."""
        if self.resting and data:
            self._should_close = True
        if self.awaited:
            self.awaited = False
            data = self._without_illegal_body(data)
        super().data_received(data)

    def rest(self) -> None:
        """The answer was read to its end; a part of another head that came along with it is unasked, too."""
        self.resting = True
        try:
            begun = self._parser is None or self._parser.feed_eof() is not None
        except Exception:  # noqa: BLE001 - whatever the parser says of half a head: it is there
            begun = True
        self._should_close = self._should_close or begun

    def _without_illegal_body(self, data: bytes) -> bytes:
        """Cuts off what follows the head of an answer that has no body: the parser would refuse both."""
        if not self._skip_payload and data[9:12] not in BODILESS:
            return data
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or len(data) == end or data[9:10] == b"1":
            return data
        self._should_close = True
        return data[:end]

    def close(self) -> None:
        """Closes the connection; whoever reads a body is told."""
        self.break_body("closed by us")
        super().close()

    def break_body(self, why: str) -> None:
        """Fails the body that is being read; one that ends with its connection would else seem whole."""
        payload = self._payload
        if payload is not None and not payload.is_eof() and payload.exception() is None:
            payload.set_exception(ClientPayloadError(why))

    def set_exception(self, exc: BaseException, exc_cause: BaseException = _EXC_SENTINEL) -> None:
        """Fails the answer; bytes that break its framing fail its body too."""
        if isinstance(exc, HttpProcessingError):
            self.break_body("the answer's framing is broken")
        super().set_exception(exc, exc_cause)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Ends the connection; a reset is no end of a body that ends with its connection."""
        if exc is not None:
            self.break_body("the connection was reset")
        super().connection_lost(exc)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp's reader asks for this after every read; only a paused connection has anything to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)


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

    __slots__ = ("_connection", "_protocol", "_reads_bodies", "idle_since", "uses", "watch")

    def __init__(self, connection: AiohttpConnection) -> None:
        self._connection = connection
        self._protocol = cast(_Protocol, connection.protocol)
        self.idle_since = 0.0
        self._reads_bodies = False
        self.uses = 0
        self.watch: Watch | None = None

    @property
    def usable(self) -> bool:
        """False when the peer has closed, or said something that nobody asked for."""
        protocol = self._protocol
        return protocol.is_connected() and not protocol.should_close

    @property
    def paused(self) -> bool:
        """True while the peer does not take what is written."""
        return self._protocol.writing_paused

    def expect(self, *, body: bool) -> None:
        """Prepares for one answer; without `body` (HEAD) a Content-Length is not waited for.

        The parser of the last answer reads the next one too, unless their kinds differ.
        """
        self.uses += 1
        self._protocol.resting, self._protocol.awaited = False, True
        if body and self._reads_bodies:
            return
        self._reads_bodies = body
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

    def rest(self, now: float) -> None:
        """Its answer was read to the end; it waits for the next request."""
        self.idle_since = now
        self._protocol.rest()

    def kill(self) -> None:
        """Ends the connection at once, whatever is under way. Never close(): TLS would wait for its peer."""
        if self.watch is not None:
            self.watch.cancel()
        if (transport := self._protocol.transport) is not None:
            transport.abort()
        self._connection.close()

    def abort(self) -> None:
        """Ends the transport only; a reader that waits is woken with an error."""
        self._protocol.break_body("ended by us")
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
        self._connector._factory = cast(Any, partial(_Protocol, loop=asyncio.get_running_loop()))

    async def dial(self, seconds: float) -> UpstreamConnection:
        """Opens a connection within `seconds`, name look-up and TLS included. Raises aiohttp's errors, TimeoutError."""
        timeout = ClientTimeout(total=None, connect=seconds, sock_connect=seconds, ceil_threshold=float("inf"))
        connection = await self._connector.connect(cast(Any, self._target), traces=[], timeout=timeout)
        return UpstreamConnection(connection)

    @property
    def open(self) -> int:
        """Connections that are open, idle ones included."""
        return len(self._connector._acquired)

    async def close(self) -> None:
        """Closes what the connector itself still holds."""
        await self._connector.close()


class Flow:
    """Hands the pieces of a body to `take` inside the event that brings them: no task wakes up for a piece.

    Stands in for the future that aiohttp's reader would wake its waiter by. `take` returns False to stop for a while.
    """

    __slots__ = ("_done", "_payload", "_take")

    def __init__(self, payload: StreamReader, take: Callable[[bytes], bool]) -> None:
        self._payload = payload
        self._take = take
        self._done: asyncio.Future[bool] | None = None

    async def run(self) -> bool:
        """Returns True at the end of the body, False when `take` stopped it. Raises what broke the body."""
        self._done = asyncio.get_running_loop().create_future()
        try:
            self._pump()
            return await self._done
        finally:
            if self._payload._waiter is cast(Any, self):
                self._payload._waiter = None

    def done(self) -> bool:
        """Part of a future's interface: may always be woken."""
        return False

    def set_result(self, result: None) -> None:
        """Something has come."""
        self._pump()

    def set_exception(self, exception: BaseException) -> None:
        """The body is broken; what came before is passed on already."""
        self._end(exception)

    def _pump(self) -> None:
        payload, take = self._payload, self._take
        try:
            while payload._buffer:
                if not take(payload._read_nowait_chunk(-1)):
                    self._end(False)
                    return
        except Exception as error:  # noqa: BLE001 - it must reach the exchange's task, not the parser that calls here
            self._end(error)
            return
        if payload._exception is not None:
            self._end(payload._exception)
        elif payload._eof:
            self._end(True)
        else:
            payload._waiter = cast(Any, self)

    def _end(self, result: bool | BaseException) -> None:
        if self._done is None or self._done.done():
            return
        if isinstance(result, bool):
            self._done.set_result(result)
        else:
            self._done.set_exception(result)


def whole(payload: StreamReader) -> bytes:
    """Returns the whole body of an answer that has ended already: no reader waits, and nothing is to be resumed."""
    buffer = payload._buffer
    if len(buffer) == 1 and not payload._buffer_offset:
        payload._size = 0
        return buffer.popleft()
    return payload.read_nowait(-1)


def salvage(payload: StreamReader) -> bytes:
    """Returns what a reader still holds after its connection broke: those bytes did arrive."""
    return payload._read_nowait(-1) if payload._buffer else b""
