"""A client's connection: requests read by llhttp (httptools), served one after the other in one task.

Owns what a connection does between and after its requests: pipelining, lingering after an early answer, and what
becomes of bytes that are no request (RFC 9112 §9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from proxy.body import Body
from proxy.downstream.arrival import VERSIONS, Arrival, excess_of, linger, only_framing, unknown
from proxy.downstream.lasting import Known, Lasting
from proxy.exchange import CancelCause, ReaderGone
from proxy.fields import MAX_FIELD, MAX_HEAD, Fields, Shapes, check_lines
from proxy.tasks import start_task
from proxy.websocket.handshake import asks

MOST_WAITING: Final = 32
"""Requests of a connection that wait behind the one that is served, before no more is read; of large heads, one."""
_NO_HEAD: Final = -1

Handler = Callable[[Arrival], Awaitable[bool]]
"""Answers one request; returns whether another may follow on its connection."""


class Connection(Lasting):
    """A client's connection. A lost one says so to its exchange before the handler is cancelled.

    A close and a half-close cannot be told apart: both lose it.
    """

    __slots__ = (
        "_body", "_brim", "_deaf", "_declining", "_fed", "_framing_size", "_handler", "_head_size", "_in_head",
        "_known", "_large", "_lines", "_names", "_parser", "_shapes", "_synthetic", "_target", "_task",
        "_waiter", "last", "serving", "waiting",
    )  # fmt: skip

    def __init__(self, handler: Handler, known: Known[Connection], shapes: Shapes) -> None:
        super().__init__()
        self._shapes = shapes
        self._handler = handler
        self._known = known
        self._parser: HttpRequestParser | None = HttpRequestParser(self)
        self.waiting: list[Arrival] = []
        """Requests that have arrived and are not served yet."""
        self.serving: Arrival | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._body: Body | None = None
        self._names: list[bytes] = []
        self._lines: list[bytes] = []
        self._target = b""
        self._head_size = self._framing_size = self._brim = 0
        self._in_head = True
        self.last = self._deaf = self._declining = self._synthetic = self._large = self._fed = False

    def __repr__(self) -> str:
        return f"<Connection {'idle' if self.idle else 'busy'}, {len(self.waiting)} waiting>"

    @property
    def idle(self) -> bool:
        """True between requests."""
        return self.serving is None and not self.waiting and not self.asking

    @property
    def busy(self) -> bool:
        """True while it is the server's turn, not the client's to ask or to take an answer."""
        return self.serving is not None or (bool(self.waiting) and not self.paused)

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        if self.transport is None:
            raise ReaderGone
        await self.drained()

    def cancel(self) -> None:
        """Cancels what is served; the connection ends with it."""
        if self._task is not None:
            self._task.cancel()

    def turn_deaf(self) -> None:
        """Takes no further request."""
        self.last = self._deaf = True

    def force_close(self) -> None:
        """Ends the connection as soon as what was written is delivered."""
        self.turn_deaf()
        if self._waiter is not None:
            self._waiter.cancel()
        if self.transport is not None:
            self.transport.close()

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        super().connection_made(transport)
        self._known.append(self)
        self._comes()
        self._task = start_task(self._serve(), name="connection")

    def data_received(self, data: bytes) -> None:
        """Parses what came."""
        if self._deaf or self._parser is None:
            if not self._deaf:
                self.beyond(data)
            return
        # Else no field can be too large, unless its head comes in several pieces.
        self._large = len(data) > MAX_FIELD
        while data:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                data = self._decline(data[upgrade.args[0] :])
                continue
            except HttpParserError as error:
                self._malformed(data, excess_of(error.__context__))
            else:
                if self._in_head and self._head_size < 0 and not self._target:
                    self._head_size = 0
                else:
                    self._grows(data)
            return

    def connection_lost(self, exc: BaseException | None) -> None:
        """Marks who has left, and cancels the handler."""
        self._parser = None
        self._deaf = True
        self.last = True
        self._known.remove(self)
        exchange = self.serving.exchange if self.serving is not None else None
        if exchange is not None and exchange.cancel_cause is None:
            exchange.cancel_cause = CancelCause.CLIENT_LEFT
        if self._body is not None:
            self._body.fail("the client has left")
        self.end_writing(ReaderGone())
        self._goes()
        self.cancel()
        # All of these refer to their connection; it must not wait for the garbage collector.
        self._task = self._body = None
        self.waiting.clear()

    # What the parser tells.

    def on_url(self, part: bytes) -> None:
        """A part of the target."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailer, which goes no further."""
        if self._in_head:
            self._names.append(name)
            self._lines.append(value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        names, lines, target = self._names, self._lines, self._target
        large = self._large or self._head_size > 0
        self._names, self._lines, self._target, self._head_size, self._in_head = [], [], b"", _NO_HEAD, False
        self._framing_size = 0
        self._head_due = 0.0
        if self._synthetic:
            self._synthetic = False
            return
        parser = cast(HttpRequestParser, self._parser)
        if large:
            check_lines(lines, target)
        fields = Fields(self._shapes.of(names), lines)
        body = self._body = Body(self)
        arrival = Arrival(
            self, parser.get_method().decode("ascii"), target.decode("utf-8", "surrogateescape"), fields, body
        )
        arrival.version = VERSIONS.get(parser.get_http_version(), (0, 0))
        arrival.should_close = not parser.should_keep_alive()
        self._declining = parser.should_upgrade()
        if self._declining and asks(arrival.method, arrival.version, fields):
            arrival.switching = arrival.should_close = True
            self._declining = False
        self._add(arrival, large=large)

    def on_body(self, piece: bytes) -> None:
        """A piece of the body."""
        if self._body is not None:
            self._fed = True
            self._body.feed(piece)

    def on_message_complete(self) -> None:
        """The request has come to its end."""
        if self._declining:
            return
        self._in_head = True
        if self._body is not None:
            self._body.end()
            self._body = None

    def _grows(self, data: bytes) -> None:
        """Bounds what came without an end: heads, and the framing of bodies, chunk extensions and trailers."""
        if not self._in_head:
            self._framing_size = 0 if self._fed else self._framing_size + len(data)
            self._fed = False
        else:
            if not self._head_due and (self._target or data.strip(b"\r\n")):
                self._head_begins()
            # What came may begin with the end of the request before this head.
            self._head_size = len(self._target) if self._head_size < 0 else self._head_size + len(data)
        if self._head_size > MAX_HEAD:
            self._malformed(data, 414 if len(self._target) > MAX_FIELD else 431)
        elif self._framing_size > MAX_HEAD:
            self._malformed(data)

    def _decline(self, rest: bytes) -> bytes:
        """An offer to speak another protocol is not taken: what follows its head is HTTP/1.1 again.

        The parser takes the end of such a head for the end of the request; another one reads the body. Returns what
        that one is to be fed.
        """
        self._declining = False
        asked = self.waiting[-1] if self.waiting else self.serving
        if asked is not None and asked.switching:
            self._parser = None
            self.beyond(rest)
            return b""
        if asked is None or asked.method == "CONNECT":
            self._deaf = True
            if self._body is not None:
                self._body.end()
            return b""
        self._parser = HttpRequestParser(self)
        self._synthetic = self._in_head = True
        return only_framing(asked) + rest

    def _malformed(self, data: bytes, excess: int = 0) -> None:
        """Bytes that are no request become one that can only be refused; whoever reads a broken body is told."""
        self._deaf = True
        self._head_due = 0.0
        body, self._body = self._body, None
        if body is not None:
            body.fail("the body's framing is broken")
            if self.waiting and self.waiting[-1].payload is body:
                self.waiting[-1].malformed = self.waiting[-1].should_close = True
            return
        self._add(unknown(self, data, excess=excess))

    def _add(self, arrival: Arrival, *, large: bool = False) -> None:
        self.waiting.append(arrival)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        elif large or len(self.waiting) == MOST_WAITING:
            if not self._brim:
                self.pause_reading()
            self._brim = 1 if large else self._brim or MOST_WAITING

    async def _serve(self) -> None:
        """Serves the connection's requests one after the other, in this one task."""
        expected = False
        try:
            while not self.last:
                if not self.waiting:
                    await self._arrive()
                arrival = self._next()
                try:
                    keep_alive = await self._handler(arrival)
                finally:
                    # Else arrival, exchange and reply would wait for the garbage collector.
                    arrival.exchange = self.serving = None
                self._await_next()
                whole = arrival.payload.at_eof() or await linger(arrival.payload)
                if not (whole and keep_alive):
                    expected = whole and arrival.should_close and not (arrival.malformed or arrival.switching)
                    break
                if self.paused:
                    await self.drained()
        except BaseException:
            self.force_close()
            raise
        self._task = None
        self.waiting.clear()
        if expected and self.transport is not None:
            self.transport.close()
        self.take_leave()

    async def _arrive(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _next(self) -> Arrival:
        if len(self.waiting) <= self._brim:
            self._brim = 0
            self.resume_reading()
        self.serving = arrival = self.waiting.pop(0)
        return arrival
