"""Idle connections of one address: the newest is used first, so that the rest may age and go."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.moves import Moves
from proxy.upstream.promises import Promises
from proxy.upstream.vigil import has_news
from proxy.upstream.wire import UpstreamConnection

if TYPE_CHECKING:
    from proxy.upstream.warmth import Warmth

LONGEST_USE: Final = 10_000
LONGEST_LIFE_SECONDS: Final = 300.0
"""So that traffic reaches where a name has moved to, and what a service was scaled out by."""
EARLIEST: Final = 0.8
"""The part of the longest life after which the first of the connections that were opened together retires."""
GOLDEN: Final = 0.6180339887498949
RECENT_SECONDS: Final = 0.5
"""No server ends a connection that rested for less: the event loop's word is enough."""
LEAD_SECONDS: Final = 2.0
"""What ends within this is replaced already, where connections are kept ready."""
LEAD_PART: Final = 0.2
"""Of a short idle time, this is the lead."""


class Ending(StrEnum):
    """Why a connection ended that no request was using."""

    AGED = "aged"
    RETIRED = "retired"
    PEER = "peer"
    MOVED = "moved"
    VANISHED = "vanished"


class Pool:
    """Connections that wait for their next request. Admission bounds them: a waiter here would be invisible.

    `alone`: its provider has no other address, so that a dial that cannot succeed is not worth another attempt.
    """

    __slots__ = (
        "_closed", "_idle", "_idle_seconds", "_moves", "_promises", "_rests",
        "alone", "dialer", "dials", "ended", "peer", "reuses", "warmth",
    )  # fmt: skip

    def __init__(self, dialer: Dialer, *, idle_seconds: float) -> None:
        self.dialer = dialer
        self.peer = (dialer.address.host, dialer.address.port)
        self._idle_seconds = self._rests = idle_seconds
        self._idle: deque[UpstreamConnection] = deque()
        self._moves = Moves()
        self._promises = Promises()
        self._closed = False
        self.alone = True
        self.dials = self.reuses = 0
        self.ended: Counter[Ending] = Counter()
        self.warmth: Warmth | None = None

    @property
    def idle_seconds(self) -> float:
        """For how long a connection may be idle, by the policy."""
        return self._idle_seconds

    @idle_seconds.setter
    def idle_seconds(self, seconds: float) -> None:
        self._idle_seconds = seconds
        self._bound()

    @property
    def rests(self) -> float:
        """For how long a connection may be idle, by the policy and by what its servers say."""
        return self._rests

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
        """How many connections are in use or dialled: a provider that was removed drains before it goes.

        Those that are dialled to be kept ready are nobody's yet.
        """
        nobodys = self.warmth.begun if self.warmth is not None else 0
        return self.dialer.open - len(self._idle) - nobodys

    def __repr__(self) -> str:
        return f"<Pool {self.address} {self.idle} idle, {self.dials} dials, {self.reuses} reuses>"

    def take(self, now: float) -> UpstreamConnection | None:
        """Returns a connection that is alive and silent, or None: then dial.

        Of one that has rested for a while the system is asked too: its server's own idle time may just have ended.
        """
        oldest, recent = now - self._rests, now - RECENT_SECONDS
        while self._idle:
            connection = self._idle.pop()
            since = connection.idle_since
            if connection.usable and since > oldest and connection.retire_at > now:
                if since > recent or not has_news(connection):
                    self.reuses += 1
                    return connection
                self._end(connection, Ending.PEER, now)
            else:
                self._end(connection, self._why(connection, now), now)
        return None

    def take_silent(self, now: float) -> UpstreamConnection | None:
        """Does as `take`, and asks the system too what has come: a peer may have closed, unheard of by the event loop.

        For requests that must not be sent twice; it costs a system call.
        """
        while (connection := self.take(now)) is not None:
            if not has_news(connection):
                return connection
            self.reuses -= 1
            self._end(connection, Ending.PEER, now)
        return None

    def opened(self, connection: UpstreamConnection, now: float) -> None:
        """Gives a new connection its longest life: those that were opened together do not end together."""
        dials = self.dials + (self.warmth.dials if self.warmth is not None else 0)
        part = dials * GOLDEN % 1.0
        connection.retire_at = now + LONGEST_LIFE_SECONDS * (EARLIEST + (1.0 - EARLIEST) * part)

    def put(self, connection: UpstreamConnection, now: float) -> None:
        """Takes a connection back whose answer was read to its end; `take` looks whether it is still good."""
        if not self._closed and self._rests > 0 and connection.uses < LONGEST_USE:
            connection.rest(now)
            self._idle.append(connection)
        else:
            connection.kill()

    def sweep(self, now: float) -> None:
        """Closes what has been idle for too long, is too old, was closed by its peer, or leads where its name left."""
        self.dialer.end_vanished(now)
        if self._promises.forget(now):
            self._bound()
        oldest = now - self._rests
        while self._idle and self._idle[0].idle_since <= oldest:
            connection = self._idle.popleft()
            self._end(connection, self._why(connection, now), now)
        remotes = {connection.remote for connection in self._idle}
        gone = self._moves.gone(remotes, self.dialer.hosts, now)
        self._drop(lambda each: not each.usable or each.retire_at <= now, None, now)
        if gone:
            self._drop(lambda each: each.remote in gone, Ending.MOVED, now)

    def keep_warm(self, now: float) -> None:
        """Lets dial what is missing of those that are to be kept ready."""
        if self.warmth is not None:
            self.warmth.look(now)

    def ready(self, now: float) -> int:
        """Returns how many of the idle ones will serve for a while still."""
        lead = min(LEAD_SECONDS, self._rests * LEAD_PART)
        oldest, retires = now + lead - self._rests, now + lead
        return sum(each.usable and each.idle_since > oldest and each.retire_at > retires for each in self._idle)

    def told(self, line: bytes) -> None:
        """Takes the Keep-Alive field of an answer: no connection is kept for longer than a server says."""
        if self._promises.heard(line):
            self._bound()

    def distrust(self, vanished: UpstreamConnection, since: float) -> None:
        """Closes what leads to a peer that has vanished, unless it was in use after `since`: that one is alive."""
        remote = vanished.remote
        self._drop(lambda each: each.remote == remote and each.idle_since <= since, Ending.VANISHED, since)

    def _bound(self) -> None:
        self._rests = min(self._idle_seconds, self._promises.seconds)

    def _drop(self, ends: Callable[[UpstreamConnection], bool], why: Ending | None, now: float) -> None:
        for connection in [connection for connection in self._idle if ends(connection)]:
            self._idle.remove(connection)
            self._end(connection, why or self._why(connection, now), now)

    @staticmethod
    def _why(connection: UpstreamConnection, now: float) -> Ending:
        if not connection.usable:
            return Ending.PEER
        return Ending.RETIRED if connection.retire_at <= now else Ending.AGED

    def _end(self, connection: UpstreamConnection, why: Ending, now: float) -> None:
        self.ended[why] += 1
        if self.warmth is not None:
            unused = why is Ending.PEER and not connection.uses
            self.warmth.over(unused=unused, after=now - connection.idle_since)
        connection.kill()

    async def close(self) -> None:
        """Closes every idle connection, and those in use when they come back."""
        self._closed = True
        if self.warmth is not None:
            await self.warmth.close()
        while self._idle:
            self._idle.pop().kill()
        await self.dialer.close()
