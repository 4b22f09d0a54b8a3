"""A request as its connection hands it over: the head, the body on its way, and the way back."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from proxy.body import Body
from proxy.exchange import Exchange
from proxy.request import Fields, RawHeaders

_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class RequestHead:
    """The head of a request; `path` is its target as written. `should_close`: the client wants no other answer."""

    __slots__ = ("headers", "method", "path", "raw_headers", "should_close", "version")

    def __init__(
        self, method: str, path: str, version: tuple[int, int], raw_headers: RawHeaders, *, should_close: bool
    ) -> None:
        self.method = method
        self.path = path
        self.version = version
        self.raw_headers = raw_headers
        self.headers = Fields(raw_headers)
        self.should_close = should_close

    def __repr__(self) -> str:
        # A target may carry a secret.
        return f"<RequestHead {self.method}>"


def only_framing(head: RequestHead) -> bytes:
    """Returns the bytes of another head whose body is framed as this one's, and that says nothing else."""
    lines = [b"%b: %b\r\n" % field for field in head.raw_headers if field[0].lower() in _FRAMING]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)


def unknown_head(data: bytes) -> RequestHead:
    """Returns a head for bytes that are none: they may begin anywhere, and only a whole request line has a path."""
    words = data.partition(b"\r\n")[0].split(b" ")
    target = words[1] if len(words) == 3 and words[2].startswith(b"HTTP/") else b""
    path = target.partition(b"?")[0].decode("latin-1") if target.startswith(b"/") else "/"
    return RequestHead("UNKNOWN", path, (1, 1), (), should_close=True)


class ClientLink(Protocol):
    """What a request needs of its connection."""

    transport: asyncio.Transport | None
    paused: bool
    last: bool

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        ...

    def cancel(self) -> None:
        """Cancels what is served."""
        ...


class Arrival:
    """One request of a connection. `malformed`: bytes that are none, which can only be refused."""

    __slots__ = ("_connection", "exchange", "malformed", "message", "payload")

    def __init__(self, message: RequestHead, payload: Body, connection: ClientLink, *, malformed: bool = False) -> None:
        self.message = message
        self.payload = payload
        self.malformed = malformed
        self.exchange: Exchange | None = None
        self._connection = connection

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None once it is lost."""
        return self._connection.transport

    @property
    def paused(self) -> bool:
        """True while the client does not take what is written."""
        return self._connection.paused

    @property
    def closing(self) -> bool:
        """True when the server takes no further request on this connection."""
        return self._connection.last

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        await self._connection.drain()

    def end(self) -> None:
        """Makes this the connection's last request; its body may still be read."""
        self._connection.last = True

    def cancel(self) -> None:
        """Cancels whatever handles this request; its connection ends with it."""
        self._connection.cancel()
