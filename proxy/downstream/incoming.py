"""The request as the wire gave it: framing that two readers could read differently is refused; the body is bounded."""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.body import Body, BodyBroken
from proxy.downstream.arrival import Arrival
from proxy.request import BodyProblem, BodyTooLarge, Request

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
UNBOUNDED: Final = 1 << 62
_SINGLE: Final = frozenset({"host", "content-length", "transfer-encoding"})
STALL_SECONDS: Final = 30.0
"""How long a caller may send nothing of the body that it has announced."""


class IncomingBody:
    """The caller's body while it arrives."""

    __slots__ = ("_arrival", "_expects", "_payload", "_read", "length", "limit")

    def __init__(self, arrival: Arrival, *, length: int | None, expects: bool) -> None:
        self._arrival = arrival
        self._payload: Body = arrival.payload
        self._expects = expects
        self._read = 0
        self.length = length
        self.limit = UNBOUNDED

    async def read(self) -> bytes:
        """Returns the next piece, b"" at the end. Raises `BodyProblem`, `BodyTooLarge`."""
        if self._expects:
            self._proceed()
        try:
            async with asyncio.timeout(STALL_SECONDS):
                piece = await self._payload.readany()
        except TimeoutError as error:
            raise BodyProblem(f"nothing of it came for {STALL_SECONDS:.0f} s; send it again") from error
        except BodyBroken as error:
            raise BodyProblem("it is malformed, or ended too early; send it again whole") from error
        self._read += len(piece)
        if self._read > self.limit:
            raise BodyTooLarge
        return piece

    def _proceed(self) -> None:
        """Answers `Expect: 100-continue`: somebody wants the body."""
        self._expects = False
        transport = self._arrival.transport
        if transport is not None and not self._payload.total_bytes:
            transport.write(CONTINUE)


def request_of(arrival: Arrival) -> Request:
    """Returns the request; target and header bytes as they came. A body that has arrived whole is there at once."""
    payload = arrival.payload
    fields = arrival.fields
    if payload.is_eof():
        request = Request(arrival.method, arrival.target, fields, version=arrival.version)
        if payload.total_bytes:
            request.body = payload.taken()
        return request
    length = fields.get("content-length")
    expects = fields.get("expect", "").lower() == "100-continue" and arrival.version == (1, 1)
    body = IncomingBody(arrival, length=int(length) if length is not None else None, expects=expects)
    return Request(arrival.method, arrival.target, fields, upload=body, version=arrival.version)


def framing_problem(arrival: Arrival) -> str | None:
    """Returns what is wrong with a head that the parser accepts and another reader might read differently.

    RFC 9112 §3.2, §6.1, §6.3: no host or several, a coding other than exactly `chunked`, any coding in HTTP/1.0,
    another version, a target that is not in origin form, a length that is not plain digits.
    """
    version, fields = arrival.version, arrival.fields
    shape = fields.shape
    if version != (1, 1) and version != (1, 0):
        return "this version of HTTP is not spoken here; send the request in version 1.1"
    if shape.repeated and not shape.repeated.isdisjoint(_SINGLE):
        return "Host, Content-Length and Transfer-Encoding may stand there once"
    if "host" not in shape.first and version == (1, 1):
        return "a request without Host; send one"
    if "transfer-encoding" in shape.first:
        if version == (1, 0) or fields["transfer-encoding"].lower() != "chunked":
            return "the only transfer coding is chunked, and only in version 1.1 of HTTP"
    elif "content-length" in shape.first:
        length = fields["content-length"]
        if not (length.isascii() and length.isdigit()):
            return "Content-Length must be plain digits"
    if not arrival.target.startswith("/") or arrival.method == "CONNECT":
        return "the target must be a path; this is no forward proxy (--forward opens one)"
    return None
