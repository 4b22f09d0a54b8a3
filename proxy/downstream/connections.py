"""The protocol factory of a listener; knows its connections, so that a shutdown can close them."""

from __future__ import annotations

import asyncio

from proxy.downstream.wire import Connection, Handler
from proxy.fields import Shapes


class ConnectionServer:
    """Makes a connection of every client that comes."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._shapes = Shapes()
        self.connections: list[Connection] = []

    def __call__(self) -> Connection:
        """Makes the protocol of one new connection."""
        return Connection(self._handler, self.connections, self._shapes)

    @property
    def unsent(self) -> int:
        """Connections whose client has not taken all of what was written, or is about to ask."""
        return sum(1 for one in self.connections if one.asking or _unsent_bytes(one.transport))

    def close_idle(self) -> None:
        """Closes connections that wait for a request; the others close after their answer, or when it is taken."""
        for connection in tuple(self.connections):
            if connection.idle:
                connection.force_close()
            else:
                connection.last = True


def _unsent_bytes(transport: asyncio.Transport | None) -> int:
    return transport.get_write_buffer_size() if transport is not None else 0
