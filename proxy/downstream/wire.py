"""Everything of aiohttp that is not public, for the downstream side: its server below `web.Application`.

aiohttp's C parser and connection handling stay; `web.Request` and `web.Response` are replaced by the slotted objects
here. The contract test of this file runs against real sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import StreamReader, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, _ErrInfo

from proxy.dialects.lookup import dialect_named, operation_of
from proxy.exchange import CancelCause, Exchange, ReaderGone

RequestHead = RawRequestMessage

MAX_FIELD: Final = 65536
MAX_HEADERS: Final = 256
KEEP_ALIVE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 2.0
MALFORMED: Final = "the request is not well-formed HTTP/1.1; send it again correctly framed"
_MALFORMED_HEAD: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nx-sponson-reason: bad_request\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n"
)


class Arrival:
    """One request of a connection, as aiohttp's server hands it over."""

    __slots__ = ("_protocol", "exchange", "message", "payload")

    def __init__(self, message: RawRequestMessage, payload: StreamReader, protocol: Connection) -> None:
        self.message = message
        self.payload = payload
        self.exchange: Exchange | None = None
        self._protocol = protocol

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

    def end(self) -> None:
        """Makes this the connection's last request."""
        self._protocol.close()

    def cancel(self) -> None:
        """Cancels whatever handles this request; its connection ends with it."""
        if (task := self._protocol._task_handler) is not None:
            task.cancel()

    def _cancel(self, exc: BaseException) -> None:
        """Ends the body of a lost connection; aiohttp's protocol calls it."""
        if not self.payload.is_eof():
            self.payload.set_exception(exc)


class Connection(RequestHandler):
    """A client's connection. A lost one says so to its exchange before the handler is cancelled."""

    __slots__ = ("_malformed",)

    def data_received(self, data: bytes) -> None:
        """Parses what came; who reads a body is told when its framing breaks, which aiohttp does not do."""
        super().data_received(data)
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            self._malformed = data
            arrival = cast(Any, self._current_request)
            waiting = self._messages[-2][1] if len(self._messages) > 1 else arrival.payload if arrival else None
            if waiting is not None and not waiting.is_eof():
                waiting.set_exception(web.RequestPayloadError("the body's framing is broken"))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Marks who has left, then lets aiohttp cancel the handler."""
        arrival = cast(Any, self._current_request)
        if arrival is not None and arrival.exchange is not None and arrival.exchange.cancel_cause is None:
            arrival.exchange.cancel_cause = CancelCause.CLIENT_LEFT
        super().connection_lost(exc)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp's reader asks for this after every read; only a paused connection has anything to resume."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    @property
    def ends(self) -> bool:
        """True when this connection takes no further request."""
        return self._close or self._force_close

    @property
    def idle(self) -> bool:
        """True between requests."""
        return self._current_request is None and not self._messages

    async def start(self) -> None:
        """Serves the connection's requests one after the other, in this one task."""
        handle = cast("Handler", self._request_handler)
        try:
            while not self._force_close:
                if not self._messages:
                    await self._arrive()
                message, payload = self._next_message()
                if isinstance(message, _ErrInfo):
                    self._refuse_malformed()
                    break
                arrival = Arrival(message, payload, self)
                self._current_request = cast(Any, arrival)
                try:
                    keep_alive = await handle(arrival)
                finally:
                    self._served(arrival)
                if not payload.is_eof():
                    await self._linger(payload)
                if not keep_alive or self._close or self._force_close:
                    break
                self._await_next()
        except asyncio.CancelledError:
            self.force_close()
            raise
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _arrive(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _next_message(self) -> tuple[RawRequestMessage | _ErrInfo, StreamReader]:
        message, payload = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return message, payload

    def _served(self, arrival: Arrival) -> None:
        """Lets go of a request: else arrival, exchange and reply would wait for the garbage collector."""
        arrival.exchange = None
        self._current_request = None
        if self._upgraded and self._payload_parser is None:
            self._decline_upgrade()

    async def _linger(self, payload: StreamReader) -> None:
        """Reads on for a while after an early answer, so that the client can read it before its writes fail."""
        with contextlib.suppress(TimeoutError, web.RequestPayloadError):
            async with asyncio.timeout(LINGER_SECONDS):
                while await payload.readany():
                    pass
        if not payload.is_eof():
            self.close()

    def _await_next(self) -> None:
        due = self._loop.time() + KEEP_ALIVE_SECONDS
        self._next_keepalive_close_time = due
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(due, self._process_keepalive)

    def _decline_upgrade(self) -> None:
        """An offer to speak another protocol was not taken: what followed it is HTTP/1.1 again."""
        if self._parser is None:
            return
        self._parser.set_upgraded(False)
        self._upgraded = False
        tail, self._message_tail = self._message_tail, b""
        if tail:
            self.data_received(tail)

    def _refuse_malformed(self) -> None:
        """Answers bytes that are no request with our own 400, without echoing or logging any of them."""
        body = malformed_body(self._malformed)
        if (transport := self.transport) is not None:
            transport.write(_MALFORMED_HEAD % len(body) + body)


def malformed_body(data: bytes) -> bytes:
    """Returns the error body in the dialect of the path that the first line names, if it can be read."""
    target = data.partition(b"\r\n")[0].split(b" ")[1:2] or [b""]
    operation = operation_of(target[0].partition(b"?")[0].decode("latin-1"))
    dialect = operation.dialect if operation is not None else dialect_named("openai")
    return dialect.error_body(status=400, reason="bad_request", message=MALFORMED, request_id="")


def whole(payload: StreamReader) -> bytes:
    """Returns a body that has arrived to its end: no reader waits, and nothing is to be resumed."""
    buffer = payload._buffer
    if len(buffer) == 1 and not payload._buffer_offset:
        payload._size = 0
        return buffer.popleft()
    return payload.read_nowait(-1)


Handler = Callable[[Arrival], Awaitable[bool]]
"""Answers one request; returns whether another may follow on its connection."""


class ConnectionServer(web.Server):
    """The protocol factory of a listener; knows its connections."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(
            cast(Any, handler),
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
