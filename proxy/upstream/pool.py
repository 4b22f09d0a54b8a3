"""Idle connections of one address: the newest is used first, so that the rest may age and go."""

from __future__ import annotations

from collections import deque

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.wire import UpstreamConnection

LONGEST_USE = 10_000


class Pool:
    """Connections that wait for their next request. Admission bounds them: a waiter here would be invisible."""

    __slots__ = ("_closed", "_idle", "dialer", "dials", "idle_seconds", "peer", "reuses")

    def __init__(self, dialer: Dialer, *, idle_seconds: float) -> None:
        self.dialer = dialer
        self.peer = (dialer.address.host, dialer.address.port)
        self.idle_seconds = idle_seconds
        self._idle: deque[UpstreamConnection] = deque()
        self._closed = False
        self.dials = self.reuses = 0

    @property
    def address(self) -> Address:
        """Where its connections lead."""
        return self.dialer.address

    @property
    def idle(self) -> int:
        """How many connections wait."""
        return len(self._idle)

    @property
    def busy(self) -> int:
        """How many connections are in use or dialled: a provider that was removed drains before it goes."""
        return self.dialer.open - len(self._idle)

    def __repr__(self) -> str:
        return f"<Pool {self.address} {self.idle} idle, {self.dials} dials, {self.reuses} reuses>"

    def take(self, now: float) -> UpstreamConnection | None:
        """Returns a connection that is alive and silent, or None: then dial."""
        oldest = now - self.idle_seconds
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since > oldest:
                self.reuses += 1
                return connection
            connection.kill()
        return None

    def put(self, connection: UpstreamConnection, now: float) -> None:
        """Takes a connection back whose answer was read to its end; `take` looks whether it is still good."""
        if not self._closed and self.idle_seconds > 0 and connection.uses < LONGEST_USE:
            connection.rest(now)
            self._idle.append(connection)
        else:
            connection.kill()

    def sweep(self, now: float) -> None:
        """Closes what has been idle for too long, or was closed by its peer."""
        oldest = now - self.idle_seconds
        while self._idle and (self._idle[0].idle_since <= oldest or not self._idle[0].usable):
            self._idle.popleft().kill()

    async def close(self) -> None:
        """Closes every idle connection, and those in use when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().kill()
        await self.dialer.close()
