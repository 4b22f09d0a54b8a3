"""The connections of one address: its doors, the room behind them, and what becomes of all at a shutdown."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from proxy.downstream.door import Door, Spare
from proxy.downstream.room import MOST_CONNECTIONS, Room
from proxy.downstream.socket_state import unsent_bytes
from proxy.downstream.wire import Connection, Handler
from proxy.fields import Shapes

BACKLOG: Final = 2048


class ConnectionServer:
    """Makes a connection of every client that comes, at most `most` at once."""

    def __init__(self, handler: Handler, *, most: int = MOST_CONNECTIONS) -> None:
        self._handler = handler
        self._shapes = Shapes()
        self._doors: list[Door] = []
        self._spare = Spare()
        self.connections: Room[Connection] = Room(most, now=lambda: asyncio.get_running_loop().time())
        self.connections.on_leave = self._one_left

    def __call__(self) -> Connection:
        """Makes the protocol of one new connection."""
        return Connection(self._handler, self.connections, self._shapes)

    def listen(self, sockets: list[socket.socket], *, spare_files: int = 0) -> None:
        """Starts to accept; `spare_files` are kept for these connections when all others are in use."""
        self._spare = Spare(spare_files)
        for bound in sockets:
            bound.listen(BACKLOG)
            self._doors.append(Door(bound, self, self.connections, spare=self._spare))

    def stop_listening(self) -> None:
        """Takes no new connection, and closes those that are idle."""
        for door in self._doors:
            door.close()
        self._spare.close()
        self.close_idle()

    def close(self) -> None:
        """Ends every connection as soon as what was written is delivered."""
        self.stop_listening()
        for connection in tuple(self.connections):
            connection.force_close()

    def status(self) -> dict[str, int]:
        """Returns how many clients are connected, how many are idle, and how many went so that others could come."""
        room = self.connections
        idle = sum(1 for one in room if one.idle)
        return {"connected": len(room), "idle": idle, "most": room.most, "sent_away": room.sent_away}

    @property
    def unsent(self) -> int:
        """Connections whose client has not taken all of what was written, or is about to ask."""
        return sum(1 for one in self.connections if one.asking or unsent_bytes(one.transport))

    def close_idle(self) -> None:
        """Closes connections that wait for a request; the others close after their answer, or when it is taken."""
        for connection in tuple(self.connections):
            if connection.idle and not connection.unread:
                connection.force_close()
            else:
                connection.last = True

    def _one_left(self) -> None:
        for door in self._doors:
            door.go_on()
