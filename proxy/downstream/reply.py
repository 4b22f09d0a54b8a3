"""The answer's bytes on a client's connection: one head, one framing, our stamps, and breaks that can be seen."""

from __future__ import annotations

from typing import Final

from proxy.downstream.arrival import Arrival
from proxy.downstream.cut import reset
from proxy.downstream.socket_state import half_close
from proxy.exchange import Attempt, Facts
from proxy.link import Link
from proxy.request import Request
from proxy.websocket.handshake import SWITCH

SMALL_PIECE: Final = 16384
LAST_CHUNK: Final = b"0\r\n\r\n"
NO_BODY: Final = frozenset({204, 304})
END: Final = b"\r\n"


class HttpReply:
    """Writes one answer straight to the transport."""

    __slots__ = (
        "_arrival",
        "_chunked",
        "_close",
        "_delimited_by_close",
        "_ended",
        "_facts",
        "_request",
        "_silent",
        "_trail",
        "started",
    )

    def __init__(self, arrival: Arrival, request: Request, facts: Facts, *, closing: bool) -> None:
        self._arrival = arrival
        self._request = request
        self._facts = facts
        self._close = closing or arrival.should_close
        self._chunked = self._delimited_by_close = self._ended = self._silent = False
        self._trail = "x-sponson-trail" in request.fields
        self.started = False

    @property
    def keeps_alive(self) -> bool:
        """Whether another request may follow on this connection."""
        return not self._close

    @property
    def paused(self) -> bool:
        """True while the client does not take what is written."""
        return self._arrival.paused

    @property
    def open_ended(self) -> bool:
        """True when no length was promised."""
        return self._chunked or self._delimited_by_close

    def start(
        self,
        status: int,
        phrase: bytes,
        lines: bytes,
        *,
        length: int | None,
        body: bytes | None = None,
    ) -> None:
        """Writes the head, and the whole answer with it when `body` is given."""
        self.started = True
        self._facts.status = status
        self._silent = self._request.method == "HEAD" or status in NO_BODY
        head = b"HTTP/1.1 %d %b\r\n%b%b%b" % (status, phrase, lines, self._frame(status, length), self._stamp())
        if body is None or self._silent:
            self._send(head)
            return
        self._ended = True
        self._facts.answer_bytes += len(body)
        if len(body) > SMALL_PIECE:
            self._send_all((head, body))
        else:
            self._send(head + body)

    def switch(self, lines: bytes) -> Link:
        """Agrees to speak WebSocket, with these fields; the connection is for the caller of this to take over."""
        self.started = self._ended = self._close = True
        self._facts.status = 101
        self._send(b"HTTP/1.1 101 Switching Protocols\r\n%b%b%b" % (SWITCH, lines, self._stamp()))
        return self._arrival.link

    def establish(self, lines: bytes) -> Link:
        """Agrees to a tunnel (RFC 9110 §9.3.6: no length, no body); the connection is for the caller of this."""
        self.started = self._ended = self._close = True
        self._facts.status = 200
        self._send(b"HTTP/1.1 200 Connection established\r\n%b%b" % (lines, self._stamp()))
        return self._arrival.link

    def write(self, piece: bytes) -> None:
        """Passes a piece on, in a chunk of its own where the answer is chunked."""
        if self._silent or not piece:
            return
        self._facts.answer_bytes += len(piece)
        if not self._chunked:
            self._send(piece)
        elif len(piece) <= SMALL_PIECE:
            transport = self._arrival.transport
            if transport is not None and not transport.is_closing():
                transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        else:
            self._send_all((b"%x\r\n" % len(piece), piece, END))

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        await self._arrival.drain()

    def finish(self) -> None:
        """Ends the answer cleanly."""
        if not self._ended and self._chunked and not self._silent:
            self._send(LAST_CHUNK)
        self._ended = True

    def abort(self) -> None:
        """Ends the connection without ending the answer: its reader sees that it is not whole.

        What was written is still delivered, unless the client has stopped reading or could take the end of the
        connection for the end of the answer. A client that still sends is listened to, as after any early answer:
        a close would be a reset, which takes along what it has not read.
        """
        self._ended = self._close = True
        transport = self._arrival.transport
        if transport is None:
            return
        if self._delimited_by_close:
            reset(transport)
        elif self.paused:
            transport.abort()
        elif self._arrival.payload.is_eof() or not half_close(transport):
            transport.close()

    def _frame(self, status: int, length: int | None) -> bytes:
        """Decides how the body is framed and what becomes of the connection; returns the lines that say so."""
        request = self._request
        line = b""
        if status == 204 or status < 200:
            pass
        elif length is not None:
            line = b"content-length: %d\r\n" % length
        elif self._silent:
            pass
        elif request.version == (1, 1):
            self._chunked = True
            line = b"transfer-encoding: chunked\r\n"
        else:
            self._delimited_by_close = self._close = True
        if request.upload is not None and not self._arrival.payload.is_eof():
            self._close = True
        if self._close or self._arrival.closing:
            self._close = True
            return line + b"connection: close\r\n"
        return line if request.version == (1, 1) else line + b"connection: keep-alive\r\n"

    def _stamp(self) -> bytes:
        facts = self._facts
        attempts = len(facts.attempts)
        if facts.provider:
            stamp = (
                f"x-sponson-request-id: {facts.request_id}\r\nx-sponson-provider: {facts.provider}\r\n"
                f"x-sponson-tier: {facts.tier}\r\nx-sponson-attempts: {attempts}\r\n"
            )
        else:
            stamp = f"x-sponson-request-id: {facts.request_id}\r\nx-sponson-attempts: {attempts}\r\n"
            if facts.tier:
                stamp += f"x-sponson-tier: {facts.tier}\r\n"
        if facts.cache is not None:
            stamp += f"x-sponson-cache: {facts.cache}\r\n"
        if self._trail:
            stamp += f"x-sponson-trail: {trail(facts)}\r\n"
        return f"{stamp}\r\n".encode("ascii", "replace")

    def _send(self, data: bytes) -> None:
        transport = self._arrival.transport
        if transport is not None and not transport.is_closing():
            transport.write(data)

    def _send_all(self, pieces: tuple[bytes, ...]) -> None:
        transport = self._arrival.transport
        if transport is not None and not transport.is_closing():
            transport.writelines(pieces)


def trail(facts: Facts) -> str:
    """Returns one entry an attempt: tier, provider, key id, status, reason and milliseconds (`policy.md` rule 9)."""
    return ", ".join(_entry(attempt, facts) for attempt in facts.attempts)


def _entry(attempt: Attempt, facts: Facts) -> str:
    end = attempt.ended_at or facts.first_byte_at or attempt.head_at or attempt.started_at
    milliseconds = round((end - attempt.started_at) * 1000)
    said = "ok" if attempt.ended_at == 0.0 or attempt.kind is None else attempt.kind.value
    return (
        f"tier={attempt.tier};provider={attempt.provider};key={attempt.key_id or '-'};"
        f"status={attempt.status or '-'};reason={said};ms={milliseconds}"
    )
