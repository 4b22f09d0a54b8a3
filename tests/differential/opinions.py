"""What h11, which shares no line with the product's parser, makes of bytes."""

from __future__ import annotations

from dataclasses import dataclass

import h11


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: what must be the same for whoever reads it."""

    method: bytes
    target: bytes
    body: bytes


def requests_by_h11(data: bytes) -> list[Asked]:
    """Reads requests until it doubts, or has no whole one."""
    found: list[Asked] = []
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    try:
        while (asked := _next_request(connection)) is not None:
            found.append(asked)
            connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
    except h11.ProtocolError:
        pass
    return found


def _next_request(connection: h11.Connection) -> Asked | None:
    head: h11.Request | None = None
    pieces: list[bytes] = []
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return Asked(method=head.method, target=head.target, body=b"".join(pieces))
        else:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer; `whole` is False when it ended before its end, `status` 0 when it is none."""

    status: int
    body: bytes = b""
    whole: bool = False
    rest: bytes = b""


NONE = Said(status=0)


def answer_by_h11(data: bytes, *, method: str) -> Said:
    """Reads the final answer to a request, from a connection that ends after these bytes."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    if data:
        connection.receive_data(b"")
    status, pieces = 0, []
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                rest = connection.trailing_data[0]
                return Said(status=status, body=b"".join(pieces), whole=True, rest=bytes(rest))
            elif not isinstance(event, h11.InformationalResponse):
                break
    except h11.ProtocolError:
        pass
    return Said(status=status, body=b"".join(pieces))
