"""Everything of aiohttp that is not public, for the downstream side: its server below `web.Application`.

aiohttp's C parser and connection handling stay; `web.Request` and `web.Response` are replaced by the slotted objects
here. The contract test of this file runs against real sockets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from proxy.exchange import CancelCause, Exchange, ReaderGone

MAX_FIELD: Final = 65536
MAX_HEADERS: Final = 256
KEEP_ALIVE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 2.0
MALFORMED: Final = (
    b'{"error":{"message":"the request is not well-formed HTTP/1.1; send it again correctly framed",'
    b'"type":"invalid_request_error","param":null,"code":"bad_request"}}'
)
_MALFORMED_HEAD: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nx-sponson-reason: bad_request\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n"
)


class Written(web.StreamResponse):
    """What the server is given back: everything is on the wire already."""

    def __init__(self, status: int, *, keep_alive: bool) -> None:
        self._status = status
        self._reason = ""
        self._keep_alive = keep_alive
        self._eof_sent = True
        self._state = {}
        self._headers = cast(Any, {})
        self._body_length = 0

    async def prepare(self, request: Any) -> None:
        """Has nothing to prepare."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Has nothing to write."""


class Arrival:
    """One request of a connection, as aiohttp's server hands it over."""

    __slots__ = ("_protocol", "_task", "exchange", "message", "payload")

    def __init__(self, message: RawRequestMessage, payload: StreamReader, protocol: Connection, task: Any) -> None:
        self.message = message
        self.payload = payload
        self.exchange: Exchange | None = None
        self._protocol = protocol
        self._task = task

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None once it is lost."""
        return self._protocol.transport

    @property
    def paused(self) -> bool:
        """True while the client does not take what is written."""
        return self._protocol.writing_paused

    @property
    def closing(self) -> bool:
        """True when the server takes no further request on this connection."""
        return self._protocol.ends

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        try:
            await self._protocol._drain_helper()
        except ConnectionError:
            raise ReaderGone from None
        if self._protocol.transport is None:
            raise ReaderGone

    def _finish(self) -> None:
        self.exchange = None

    def _cancel(self, exc: BaseException) -> None:
        if not self.payload.is_eof():
            self.payload.set_exception(exc)


class Connection(RequestHandler):
    """A client's connection. A lost one says so to its exchange before the handler is cancelled."""

    __slots__ = ()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Marks who has left, then lets aiohttp cancel the handler."""
        arrival = cast(Any, self._current_request)
        if arrival is not None and arrival.exchange is not None and arrival.exchange.cancel_cause is None:
            arrival.exchange.cancel_cause = CancelCause.CLIENT_LEFT
        super().connection_lost(exc)

    @property
    def ends(self) -> bool:
        """True when this connection takes no further request."""
        return self._close or self._force_close

    @property
    def idle(self) -> bool:
        """True between requests."""
        return self._current_request is None and not self._messages

    def handle_error(
        self, request: Any, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answers bytes that are no request: our own 400, without echoing or logging any of them."""
        if (transport := self.transport) is not None:
            transport.write(_MALFORMED_HEAD % len(MALFORMED) + MALFORMED)
        return Written(status, keep_alive=False)


Handler = Callable[[Arrival], Awaitable[web.StreamResponse]]


class ConnectionServer(web.Server):
    """The protocol factory of a listener; knows its connections."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(
            cast(Any, handler),
            request_factory=cast(Any, self._arrived),
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_FIELD,
            max_field_size=MAX_FIELD,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER_SECONDS,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            logger=logging.getLogger("sponson.downstream"),
        )

    def __call__(self) -> RequestHandler:
        """Makes the protocol of one new connection."""
        return Connection(self, loop=self._loop, **self._kwargs)

    def close_idle(self) -> None:
        """Closes connections that wait for a request; the others close after their answer."""
        for connection in self.connections:
            if cast(Connection, connection).idle:
                connection.force_close()
            else:
                connection.close()

    @staticmethod
    def _arrived(
        message: RawRequestMessage, payload: StreamReader, protocol: Connection, writer: Any, task: Any
    ) -> Arrival:
        return Arrival(message, payload, protocol, task)
