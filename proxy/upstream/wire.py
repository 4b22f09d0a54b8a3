"""A connection to a provider: answers read by llhttp (httptools), pieces handed on inside the event that brings them.

Owns what an answer's framing means (RFC 9112 §6), and which bytes belong to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from proxy.body import Body
from proxy.fields import MAX_FIELD, MAX_HEAD, Fields, Shapes, check_lines, cleaned
from proxy.link import Link
from proxy.upstream.answer import AnswerHead, ConnectionEnded, MalformedAnswer
from proxy.upstream.ear import Ear
from proxy.upstream.framing import begin_chunks, end_chunks, has_body, is_chunked, lasts, meant
from proxy.upstream.watch import Watch

BODILESS: Final = frozenset({101, 204, 304})


class UpstreamConnection(Link):
    """One connection to a provider, held for one attempt at a time. End every use with `Pool.put` or `kill`.

    `remote` is the address that it leads to; from `retire_at` on (monotonic seconds) it takes no more requests.
    `switched`: both sides have left HTTP behind.
    """

    __slots__ = (
        "_bodiless", "_body", "_chunks", "_error", "_expecting", "_fed", "_head_size", "_heads", "_in_head",
        "_lines", "_names", "_parser", "_phrase", "_shapes", "_spoiled", "_until_close", "_waiter",
        "ear", "forget", "idle_since", "remote", "retire_at", "switched", "uses", "watch",
    )  # fmt: skip

    closed = None
    """Part of what aiohttp's connector asks of a protocol: nobody has to wait for its end."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self._shapes = shapes
        self.watch: Watch | None = None
        self.ear: Ear | None = None
        self.uses, self.idle_since = 0, 0.0
        self.forget: Callable[[], None] | None = None
        self.remote = ""
        self.retire_at = float("inf")
        self._parser: HttpResponseParser | None = None
        self._waiter: asyncio.Future[tuple[AnswerHead, Body]] | None = None
        self._heads: list[tuple[AnswerHead, Body]] = []
        self._body: Body | None = None
        self._error: Exception | None = None
        self._names: list[bytes] = []
        self._lines: list[bytes] = []
        self._phrase, self._head_size = b"", 0
        self._expecting = self._bodiless = self._in_head = self._fed = False
        self._until_close = self._chunks = self._spoiled = self.switched = False

    def __repr__(self) -> str:
        return f"<UpstreamConnection {'usable' if self.usable else 'ended'}, {self.uses} uses>"

    @property
    def usable(self) -> bool:
        """False when the peer has closed, or said something that nobody asked for."""
        return self.transport is not None and not self._spoiled

    def expect(self, *, body: bool) -> None:
        """Prepares for one answer; without `body` (HEAD) a Content-Length is not waited for."""
        self.uses += 1
        self._bodiless = not body
        self._expecting = self._in_head = True
        self._head_size = 0
        if self._parser is None:
            self._parser = HttpResponseParser(self)
            # Control characters (`cleaned`) and white space before a colon (`headers`) are its own; they end here.
            # An interim answer may announce the end of its connection; whatever follows a final one is seen anyway.
            self._parser.set_dangerous_leniencies(
                lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_keep_alive=True
            )

    def write(self, head: bytes, body: bytes) -> None:
        """Writes both at once; a lost connection shows at the next read."""
        if self.transport is not None:
            self.transport.writelines((head, body))

    async def drain(self) -> None:
        """Returns when the peer has taken enough. Raises what ended the connection."""
        if self.transport is None:
            raise self._error or ConnectionEnded("the connection was closed")
        await self.drained()

    async def head(self) -> tuple[AnswerHead, Body]:
        """Returns the next head and its body, perhaps an interim one's (1xx). Raises what prevented it."""
        if self._heads:
            return self._heads.pop(0)
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def rest(self, now: float) -> None:
        """Its answer was read to the end; it waits for the next request."""
        self.idle_since = now

    def listen(self) -> None:
        """From here on an end of its peer's takes nothing with it that was said before (`ear`)."""
        if self.ear is None and self.transport is not None:
            self.ear = Ear(self.transport)

    def hear_no_more(self) -> None:
        """Nothing is said any more that an end could take with it."""
        if self.ear is not None:
            self.ear.close()
            self.ear = None

    def kill(self) -> None:
        """Ends the connection at once, whatever is under way. Never close(): TLS would wait for its peer."""
        if self.watch is not None:
            self.watch.cancel()
        self.hear_no_more()
        if self.transport is not None:
            self.transport.abort()
        # An error that was raised refers to who used this connection, and so to the connection itself.
        self._error = None
        if self.forget is not None:
            self.forget()

    def abort(self) -> None:
        """Ends the transport only; a reader that waits is woken with an error."""
        if self._body is not None:
            self._body.fail("ended by us")
        if self.transport is not None:
            self.transport.abort()

    # What asyncio tells.

    def data_received(self, data: bytes) -> None:
        """Parses what came; bytes that nobody asked for are nobody's answer, and end the use of their connection."""
        if not self._expecting or self._parser is None:
            if self.switched:
                self.beyond(data)
            self._spoiled = True
            return
        if len(data) > MAX_FIELD:
            # Else no field can be too large, unless its head comes in several pieces.
            self._head_size += 1
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._spoiled = self.switched = True
            self.beyond(data[upgrade.args[0] :])
        except HttpParserError:
            self._malformed()
        else:
            if not self._expecting:
                return
            if self._fed and not self._in_head:
                self._fed, self._head_size = False, 0
                return
            # A head, or a body's framing: chunk extensions and trailers.
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self._malformed()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Ends what is under way; only a clean end can be the end of a body that ends with its connection."""
        if exc is not None and self.ear is not None:
            self.ear.tell(self.data_received)
        self._parser = None
        error = self._error = exc if isinstance(exc, OSError) else ConnectionEnded("the connection was closed")
        body, self._body = self._body, None
        if body is not None:
            if exc is None and self._until_close:
                body.end()
            else:
                body.fail(error.strerror or "the connection broke")
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.end_writing(error)

    # What the parser tells.

    def on_message_begin(self) -> None:
        """An answer begins; a second one was not asked for."""
        if not self._expecting:
            self._spoiled = True

    def on_status(self, phrase: bytes) -> None:
        """A part of the phrase."""
        self._phrase += phrase

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or of the trailer, which goes no further."""
        if self._in_head:
            self._names.append(name)
            self._lines.append(value)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if not self._expecting:
            return
        parser = cast(HttpResponseParser, self._parser)
        code = parser.get_status_code()
        if code < 100:
            raise MalformedAnswer
        lines = cleaned(self._lines)
        if self._head_size:
            check_lines(lines, self._phrase)
        fields = Fields(self._shapes.of(self._names), lines)
        if lines is not self._lines:
            meant(fields, self._lines)
        # No version but 1.1 lasts without a word.
        closes = "connection" in fields.shape.first or not parser.should_keep_alive()
        phrase = self._phrase if self._phrase == b"OK" else cleaned([self._phrase])[0]
        head = AnswerHead(code, phrase, fields, should_close=closes and not lasts(parser, fields))
        if head.should_close:
            self._spoiled = True
        self._phrase, self._names, self._lines = b"", [], []
        body = Body(self)
        if code >= 200 or code == 101:
            self._final(code, fields, body)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result((head, body))
        elif code >= 200 or code == 101:
            self._heads.append((head, body))

    def _final(self, code: int, fields: Fields, body: Body) -> None:
        """No other head is due; a body may be, by length, in chunks, or until the end of the connection."""
        first = fields.shape.first
        self._chunks = "transfer-encoding" in first and is_chunked(fields)
        self._in_head = False
        if self._bodiless or code in BODILESS:
            body.end()
            self._expecting = False
            # The parser may wait for a body that there is none of.
            self._parser = None
            self._spoiled = self._spoiled or (code == 204 and has_body(fields))
            return
        if self._chunks:
            begin_chunks(cast(HttpResponseParser, self._parser))
        elif "content-length" not in first:
            self._until_close = True
        self._body = body

    def on_body(self, piece: bytes) -> None:
        """A piece of the body; none is due after HEAD, 204 or 304."""
        if self._body is not None:
            self._fed = True
            self._body.feed(piece)
        else:
            self._spoiled = True

    def on_message_complete(self) -> None:
        """The answer has come to its end."""
        body = self._body
        if body is not None:
            self._body = None
            self._expecting = False
            if self._chunks:
                self._chunks = False
                end_chunks(cast(HttpResponseParser, self._parser))
            body.end()

    # What aiohttp's connector asks.

    def is_connected(self) -> bool:
        """Whether the connection is open."""
        return self.transport is not None

    @property
    def should_close(self) -> bool:
        """Whether the connector may not keep it: it never does."""
        return True

    def close(self) -> None:
        """Closes the connection."""
        self.abort()

    def _malformed(self) -> None:
        self._spoiled = True
        body, self._body = self._body, None
        if body is not None:
            body.fail("the answer's framing is broken")
        elif self._expecting:
            self._error = MalformedAnswer("the answer is no well-formed HTTP")
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(self._error)
        self._expecting = False
