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

from aiohttp import HttpVersion11, StreamReader, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import ERROR, RequestHandler, _ErrInfo

from proxy.exchange import CancelCause, Exchange, ReaderGone

RequestHead = RawRequestMessage

MAX_FIELD: Final = 65536
MAX_HEADERS: Final = 256
KEEP_ALIVE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 2.0


class Arrival:
    """One request of a connection, as aiohttp's server hands it over."""

    __slots__ = ("_protocol", "exchange", "malformed", "message", "payload")

    def __init__(
        self, message: RawRequestMessage, payload: StreamReader, protocol: Connection, *, malformed: bool = False
    ) -> None:
        self.malformed = malformed
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
        """Makes this the connection's last request; its body may still be read."""
        self._protocol.last = True

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

    __slots__ = ("_malformed", "last")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._malformed = b""
        self.last = False

    def data_received(self, data: bytes) -> None:
        """Parses what came; who reads a body is told when its framing breaks, which aiohttp does not do."""
        super().data_received(data)
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            self._malformed = data
            serving = cast(Any, self._current_request)
            broken = [payload for _, payload in self._messages]
            for payload in (serving.payload, *broken) if serving is not None else broken:
                if not payload.is_eof():
                    payload.set_exception(web.RequestPayloadError("the body's framing is broken"))

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

    def _process_keepalive(self) -> None:
        """Ends a connection that asks for nothing any more, and waits for none that does not take its answer."""
        transport = self.transport
        super()._process_keepalive()
        if self._force_close and transport is not None:
            transport.abort()

    @property
    def ends(self) -> bool:
        """True when this connection takes no further request."""
        return self.last or self._close or self._force_close

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
                arrival = self._arrival(message, payload)
                self._current_request = cast(Any, arrival)
                try:
                    keep_alive = await handle(arrival)
                finally:
                    self._served(arrival)
                if not payload.is_eof():
                    await self._linger(payload)
                if not keep_alive or self.ends:
                    break
                self._await_next()
        except BaseException:
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

    def _arrival(self, message: RawRequestMessage | _ErrInfo, payload: StreamReader) -> Arrival:
        """Wraps a request; bytes that are none become one that can only be refused, of which just the path is told."""
        if not isinstance(message, _ErrInfo):
            return Arrival(message, payload, self)
        # What came last may begin in the middle of a head: only a whole request line has a path to tell.
        words = self._malformed.partition(b"\r\n")[0].split(b" ")
        target = words[1] if len(words) == 3 and words[2].startswith(b"HTTP/") else b""
        path = target.partition(b"?")[0].decode("latin-1") if target.startswith(b"/") else "/"
        return Arrival(ERROR._replace(path=path, version=HttpVersion11), payload, self, malformed=True)

    def _served(self, arrival: Arrival) -> None:
        """Lets go of a request: else arrival, exchange and reply would wait for the garbage collector."""
        arrival.exchange = None
        self._current_request = None
        if self._upgraded and self._payload_parser is None:
            self._decline_upgrade()

    async def _linger(self, payload: StreamReader) -> None:
        """Reads on for a while after an early answer, so that the client can read it before its writes fail."""
        # A stopped upload lets go of the reader in its own next step.
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError, web.RequestPayloadError, ConnectionError):
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


def whole(payload: StreamReader) -> bytes:
    """Returns a body that has arrived to its end: no reader waits, and nothing is to be resumed."""
    buffer = payload._buffer
    if len(buffer) == 1 and not payload._buffer_offset:
        payload._size = 0
        return buffer.popleft()
    return payload.read_nowait(-1)


def _unsent_bytes(transport: asyncio.Transport | None) -> int:
    return transport.get_write_buffer_size() if transport is not None else 0


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

    @property
    def unsent(self) -> int:
        """Connections whose client has not taken all of what was written."""
        return sum(1 for connection in self.connections if _unsent_bytes(connection.transport))

    def close_idle(self) -> None:
        """Closes connections that wait for a request; the others close after their answer, or when it is taken."""
        for connection in self.connections:
            if not cast(Connection, connection).idle:
                cast(Connection, connection).last = True
            elif connection.transport is not None and _unsent_bytes(connection.transport):
                connection.transport.close()
            else:
                connection.force_close()
