"""The request as the wire gave it: framing that two readers could read differently is refused; the body is bounded."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from proxy.body import Body, BodyBroken
from proxy.downstream.arrival import Arrival
from proxy.fields import Fields
from proxy.request import BodyProblem, BodyTooLarge, Request

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
UNBOUNDED: Final = 1 << 62
_SINGLE: Final = frozenset({"host", "content-length", "transfer-encoding"})
_CURRENT: Final = (1, 1)
_NOT_FOR_US: Final = frozenset({"CONNECT", "TRACE"})
_MOST_DIGITS: Final = 19
_NO_PATH: Final = "the target must be a path; this is no forward proxy (--forward opens one)"
_NO_TRACE: Final = "TRACE goes to no provider: its answer would show what is secret; use another method"
_is_host: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?[ \t]*"
).fullmatch
"""RFC 3986 §3.2.2: a name, or an address in brackets; RFC 9112 §3.2 lets it be empty."""
_is_length: Final = re.compile(rb"[0-9]{1,19}[ \t]*").fullmatch
STALL_SECONDS: Final = 30.0
"""How long a caller may send nothing of the body that it has announced."""
SLOWEST: Final = 500
"""Bytes that earn a caller one more second; whoever sends fewer uses up its `STALL_SECONDS`."""


class IncomingBody:
    """The caller's body while it arrives. Only time that we wait for the caller counts against it."""

    __slots__ = ("_arrival", "_expects", "_patience", "_payload", "_read", "length", "limit")

    def __init__(self, arrival: Arrival, *, length: int | None, expects: bool) -> None:
        self._arrival = arrival
        self._payload: Body = arrival.payload
        self._expects = expects
        self._patience = STALL_SECONDS
        self._read = 0
        self.length = length
        self.limit = UNBOUNDED

    async def read(self) -> bytes:
        """Returns the next piece, b"" at the end. Raises `BodyProblem`, `BodyTooLarge`."""
        if self._expects:
            self._proceed()
        try:
            async with asyncio.timeout(self._patience) as limit:
                piece = await self._payload.readany()
        except TimeoutError as error:
            raise BodyProblem(f"it came too slowly, or nothing for {STALL_SECONDS:.0f} s; send it again") from error
        except BodyBroken as error:
            raise BodyProblem("it is malformed, or ended too early; send it again whole") from error
        left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
        self._patience = min(STALL_SECONDS, left + len(piece) / SLOWEST)
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
    if arrival.version != _CURRENT and "close" in _members(fields, "connection"):
        # Whatever else stands there (RFC 9112 §9.3); the parser lets keep-alive win in version 1.0.
        arrival.should_close = True
    if payload.is_eof():
        request = Request(arrival.method, arrival.target, fields, version=arrival.version)
        if payload.total_bytes:
            request.body = payload.taken()
        return request
    length = fields.get("content-length")
    if length is not None and len(length) > _MOST_DIGITS:
        # It will be refused, and is none until then: Python does not read numbers of any length.
        length = None
    # Other expectations are ignored (RFC 9110 §10.1.1).
    expects = "expect" in fields and arrival.version == _CURRENT and "100-continue" in _members(fields, "expect")
    body = IncomingBody(arrival, length=int(length) if length is not None else None, expects=expects)
    return Request(arrival.method, arrival.target, fields, upload=body, version=arrival.version)


def _members(fields: Fields, name: str) -> list[str]:
    """Returns the members of a field that is a list, in lower case."""
    return [member.strip(" \t").lower() for line in fields.getall(name) for member in line.split(",")]


def framing_problem(arrival: Arrival, *, forwards: bool = False) -> str | None:
    """Returns what is wrong with a head that the parser accepts and another reader might read differently.

    RFC 9112 §3.2, §6.1, §6.3: no host or several, a host that is none, a coding other than exactly `chunked`, any
    coding in HTTP/1.0, another version, a target that is not in origin form, a length that is not plain digits.
    And RFC 9110 §9.3.8: TRACE, whose answer would show the caller our credentials. Who `forwards` looks at targets and
    methods itself.
    """
    version, fields = arrival.version, arrival.fields
    shape = fields.shape
    if version != _CURRENT and version != (1, 0):
        return "this version of HTTP is not spoken here; send the request in version 1.1"
    if shape.repeated and not shape.repeated.isdisjoint(_SINGLE):
        return "Host, Content-Length and Transfer-Encoding may stand there once"
    at = shape.first.get("host")
    if at is None and version == _CURRENT:
        return "a request without Host; send one"
    if at is not None and not _is_host(fields.lines[at]):
        return "Host must be a name or an address, and perhaps a port"
    if "transfer-encoding" in shape.first:
        if version == (1, 0) or fields["transfer-encoding"].lower() != "chunked":
            return "the only transfer coding is chunked, and only in version 1.1 of HTTP"
    elif (at := shape.first.get("content-length")) is not None and not _is_length(fields.lines[at]):
        return "Content-Length must be plain digits, and no more than any body could need"
    if forwards:
        return None if arrival.method != "TRACE" else _NO_TRACE
    if not arrival.target.startswith("/") or arrival.method in _NOT_FOR_US:
        return _NO_TRACE if arrival.method == "TRACE" else _NO_PATH
    return None
