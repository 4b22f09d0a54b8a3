"""How long a client's connection lasts: idle ones end after a while, and so do heads that never become whole.

One timer serves a connection for all its requests: it looks again when it fires, and is set earlier only for a head
that comes in pieces. A request that stands unread in the socket is never cut off (RFC 9112 §9.6).
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

from proxy.downstream.departure import Departing
from proxy.downstream.socket_state import half_close, has_unread, unsent_bytes

KEEP_ALIVE_SECONDS: Final = 310.0
"""Longer than the pools of known clients keep theirs (300 s at most), so that they end it, and none asks meanwhile."""
HEAD_SECONDS: Final = 10.0
"""From the first byte of a head to its last."""
AGAIN_SECONDS: Final = 1.0
FAREWELL_SECONDS: Final = 2.0
"""How long a client may take to close its half after ours."""
NEWCOMER_SECONDS: Final = 0.25
"""Who has been here for less, and asked nothing yet, is about to."""
TAKING_SECONDS: Final = 30.0
"""Who has not taken an answer by then may go."""

SILENT, KEPT, ASKING, TAKING = range(4)
"""The order in which connections go when there are too many: they never asked; or did; or half; or take no answer."""
_STAYS: Final = {SILENT: NEWCOMER_SECONDS, KEPT: 0.0, ASKING: NEWCOMER_SECONDS, TAKING: TAKING_SECONDS}


C = TypeVar("C", contravariant=True)


class Known(Protocol[C]):
    """Where connections say that they have come and left."""

    def append(self, one: C, /) -> None:
        """This one has come."""
        ...

    def remove(self, one: C, /) -> None:
        """This one has left."""
        ...


class Lasting(Departing):
    """A connection that does not last for ever. Who inherits it tells whether it is `busy`, and becomes deaf."""

    __slots__ = ("_head_due", "_idle_due", "_loop", "_silent", "_spared", "_timer")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._head_due = self._idle_due = self._spared = 0.0
        self._silent = True

    @property
    def busy(self) -> bool:
        """Whether it is the server's turn."""
        raise NotImplementedError

    def turn_deaf(self) -> None:
        """Takes no further request."""
        raise NotImplementedError

    @property
    def asking(self) -> bool:
        """True while a head is in in part, for `HEAD_SECONDS`: it is worth waiting for."""
        return self._head_due > 0.0

    @property
    def unread(self) -> bool:
        """Whether bytes have come that the event loop has not brought yet."""
        return self.transport is not None and has_unread(self.transport)

    def rank(self, now: float) -> tuple[int, float] | None:
        """Returns where it stands among those that may go, the lowest first; None: it stays."""
        transport = self.transport
        if self.busy or transport is None:
            return None
        since = self._idle_due - KEEP_ALIVE_SECONDS
        if unsent_bytes(transport):
            kind = TAKING
        elif self._head_due:
            kind, since = ASKING, self._head_due - HEAD_SECONDS
        else:
            kind = SILENT if self._silent else KEPT
        return None if now < since + _STAYS[kind] else (kind, since)

    def end_now(self) -> None:
        """Ends it, whatever was not taken."""
        self.turn_deaf()
        if self.transport is not None:
            self.transport.abort()

    def take_leave(self) -> None:
        """Ends it when its client has ended its half, too, or has had the time to.

        A close while the client still sends would be a reset, which takes the answer with it (RFC 9112 §9.6).
        """
        self.turn_deaf()
        if self.transport is None:
            return
        if half_close(self.transport):
            self._goes()
            self._timer = self._loop.call_at(self._loop.time() + FAREWELL_SECONDS, self.end_now)
        else:
            self.transport.close()

    def _comes(self) -> None:
        self._idle_due = self._loop.time() + KEEP_ALIVE_SECONDS
        self._timer = self._loop.call_at(self._idle_due, self._look)

    def _goes(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_next(self) -> None:
        """A request has been answered."""
        self._idle_due = self._loop.time() + KEEP_ALIVE_SECONDS
        self._silent = False

    def _head_begins(self) -> None:
        due = self._head_due = self._loop.time() + HEAD_SECONDS
        if self._timer is not None and self._timer.when() > due:
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        """Ends what is due, and else looks again later."""
        self._timer = None
        if self.transport is None:
            return
        now = self._loop.time()
        due = self._due(now)
        if now < due:
            self._timer = self._loop.call_at(due, self._look)
        elif self._spared != due and self.unread:
            # This event loop is late, not the client; once.
            self._spared = due
            self._timer = self._loop.call_at(now + AGAIN_SECONDS, self._look)
        elif self._head_due or not half_close(self.transport):
            self.end_now()
        else:
            self.turn_deaf()
            self._timer = self._loop.call_at(now + FAREWELL_SECONDS, self.end_now)

    def _due(self, now: float) -> float:
        if not self.busy:
            return self._head_due or self._idle_due
        if self._head_due:
            # Nobody needs the next request before this one is answered; perhaps nobody reads either.
            self._head_due = now + HEAD_SECONDS
        return max(self._idle_due, now + AGAIN_SECONDS)
