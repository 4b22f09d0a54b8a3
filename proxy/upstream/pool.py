"""Idle connections of one address: the newest is used first, so that the rest may age and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.moves import Moves
from proxy.upstream.vigil import has_news
from proxy.upstream.wire import UpstreamConnection

LONGEST_USE: Final = 10_000
LONGEST_LIFE_SECONDS: Final = 300.0
"""So that traffic reaches where a name has moved to, and what a service was scaled out by."""
EARLIEST: Final = 0.8
"""The part of the longest life after which the first of the connections that were opened together retires."""
GOLDEN: Final = 0.6180339887498949


class Pool:
    """Connections that wait for their next request. Admission bounds them: a waiter here would be invisible.

    `alone`: its provider has no other address, so that a dial that cannot succeed is not worth another attempt.
    """

    __slots__ = ("_closed", "_idle", "_moves", "alone", "dialer", "dials", "idle_seconds", "peer", "reuses")

    def __init__(self, dialer: Dialer, *, idle_seconds: float) -> None:
        self.dialer = dialer
        self.peer = (dialer.address.host, dialer.address.port)
        self.idle_seconds = idle_seconds
        self._idle: deque[UpstreamConnection] = deque()
        self._moves = Moves()
        self._closed = False
        self.alone = True
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
            if connection.usable and connection.idle_since > oldest and connection.retire_at > now:
                self.reuses += 1
                return connection
            connection.kill()
        return None

    def take_silent(self, now: float) -> UpstreamConnection | None:
        """Does as `take`, and asks the system too what has come: a peer may have closed, unheard of by the event loop.

        For requests that must not be sent twice; it costs a system call.
        """
        while (connection := self.take(now)) is not None:
            if not has_news(connection):
                return connection
            self.reuses -= 1
            connection.kill()
        return None

    def opened(self, connection: UpstreamConnection, now: float) -> None:
        """Gives a new connection its longest life: those that were opened together do not end together."""
        part = self.dials * GOLDEN % 1.0
        connection.retire_at = now + LONGEST_LIFE_SECONDS * (EARLIEST + (1.0 - EARLIEST) * part)

    def put(self, connection: UpstreamConnection, now: float) -> None:
        """Takes a connection back whose answer was read to its end; `take` looks whether it is still good."""
        if not self._closed and self.idle_seconds > 0 and connection.uses < LONGEST_USE:
            connection.rest(now)
            self._idle.append(connection)
        else:
            connection.kill()

    def sweep(self, now: float) -> None:
        """Closes what has been idle for too long, is too old, was closed by its peer, or leads where its name left."""
        self.dialer.end_vanished(now)
        oldest = now - self.idle_seconds
        while self._idle and self._idle[0].idle_since <= oldest:
            self._idle.popleft().kill()
        remotes = {connection.remote for connection in self._idle}
        gone = self._moves.gone(remotes, self.dialer.hosts, now)
        self._drop(lambda each: not each.usable or each.retire_at <= now or each.remote in gone)

    def distrust(self, vanished: UpstreamConnection, since: float) -> None:
        """Closes what leads to a peer that has vanished, unless it was in use after `since`: that one is alive."""
        remote = vanished.remote
        self._drop(lambda connection: connection.remote == remote and connection.idle_since <= since)

    def _drop(self, ends: Callable[[UpstreamConnection], bool]) -> None:
        for connection in [connection for connection in self._idle if ends(connection)]:
            self._idle.remove(connection)
            connection.kill()

    async def close(self) -> None:
        """Closes every idle connection, and those in use when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().kill()
        await self.dialer.close()
