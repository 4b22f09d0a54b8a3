"""A request as its connection hands it over: the head, the body on its way, and the way back."""

from __future__ import annotations

import asyncio
from typing import Protocol

from proxy.body import Body
from proxy.exchange import Exchange
from proxy.request import Fields, RawHeaders


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
