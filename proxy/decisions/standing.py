"""Standing: who waits where, for what, and until when. Bookkeeping of `admission`, which decides who goes."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from proxy.decisions.forecast import why_late
from proxy.decisions.keys import Lack
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Queue, Refusal, Waiter
from proxy.decisions.room import LOWEST
from proxy.decisions.shortage import Shortage, Thing


class Standing:
    """Everybody who waits. `waiting` is their number."""

    __slots__ = ("_due_at", "_lines", "_promote_at", "_sequence", "_shortages", "_to_look_at", "waiting")

    def __init__(self) -> None:
        self._lines: dict[Line, None] = {}
        self._shortages: dict[Thing, Shortage[Queue]] = {}
        self._sequence = 0
        self._due_at = self._promote_at = inf
        self._to_look_at: list[Shortage[Queue]] = []
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<Standing {self.waiting} waiting in {len(self._lines)} lines>"

    @property
    def next_at(self) -> float:
        """When somebody is promoted or its time is over, at the earliest."""
        return min(self._due_at, self._promote_at)

    def join(self, line: Line, ask: Ask, lack: Lack, shortage: Shortage[Queue], now: float) -> Waiter:
        """A newcomer stands behind those of its class."""
        waiter = Waiter(line, lack, ask, now, self._next())
        self._enter(waiter, lack, shortage, now)
        self._promote_at = min(self._promote_at, waiter.promote_at)
        return waiter

    def leave(self, waiter: Waiter, *, served: bool = False) -> None:
        """Somebody waits no more: with what was waited for (`served`), or without."""
        line = waiter.line
        queue = line.queues[waiter.klass]
        queue.waiters.remove(waiter, served=served)
        line.room.leaves(waiter.klass, waiter.bytes)
        if waiter.klass < LOWEST and not line.room.pressing:
            self._to_look_at += self.lacked([line.room])
        self.waiting -= 1
        if not queue.waiters:
            queue.stand_in(None)
            if not any(line.waiters):
                del self._lines[line]

    def lacks(self, queue: Queue, lack: Lack, shortage: Shortage[Queue], now: float) -> None:
        """Notes what everybody in the queue lacks now: it decides which of their clocks runs."""
        if shortage is not queue.shortage and shortage.divisible:
            self._to_look_at.append(shortage)
        queue.stand_in(shortage)
        if lack is queue.lack:
            return
        queue.lack = lack
        for waiter in queue.waiters:
            waiter.lacks(lack, now)
            self._due_at = min(self._due_at, waiter.expires_at)

    def promote(self, now: float) -> None:
        """Lets P2s that have waited long enough queue as P1, behind those who are there."""
        if now < self._promote_at:
            return
        self._promote_at = inf
        for line in list(self._lines):
            queue = line.queues[LOWEST]
            for waiter in [waiter for waiter in queue.waiters if waiter.promote_at <= now]:
                lack, shortage = queue.lack, queue.shortage
                assert shortage is not None
                self.leave(waiter)
                waiter.promoted(self._next())
                self._enter(waiter, lack, shortage, now)
            self._promote_at = min([self._promote_at, *(waiter.promote_at for waiter in queue.waiters)])

    def late(self, now: float) -> list[tuple[Waiter, Refusal]]:
        """Returns those whose time is over, and why each got nothing."""
        if now < self._due_at:
            return []
        self._due_at = inf
        found: list[tuple[Waiter, Refusal]] = []
        for queue in [queue for line in self._lines for queue in line.queues]:
            for waiter in queue.waiters:
                if waiter.expires_at <= now:
                    found.append((waiter, why_late(queue, waiter, now)))
                else:
                    self._due_at = min(self._due_at, waiter.expires_at)
        return found

    def shortage(self, thing: Thing) -> Shortage[Queue]:
        """Returns who lacks this thing."""
        found = self._shortages.get(thing)
        if found is None:
            found = self._shortages[thing] = Shortage(thing)
        return found

    def lacked(self, things: Iterable[Thing]) -> list[Shortage[Queue]]:
        """Returns the shortages of those of these things that somebody lacks."""
        found = (self._shortages.get(thing) for thing in things)
        return [shortage for shortage in found if shortage is not None and shortage.members]

    def all_lacked(self) -> list[Thing]:
        """Returns all things that are or were lacked."""
        return list(self._shortages)

    def to_look_at(self) -> list[Shortage[Queue]]:
        """Returns, once, in which shortages somebody may go though nothing has come back.

        They have a new member, and what is too little for it may do for those behind it; or nobody of a higher class
        waits any more at their provider.
        """
        if not self._to_look_at:
            return []
        found, self._to_look_at = self._to_look_at, []
        return found

    def everybody(self, now: float) -> Shortage[Queue]:
        """Returns all queues as if they lacked one thing that there is plenty of; forgets shortages of the past."""
        everybody: Shortage[Queue] = Shortage(Places("everything", 1))
        for line in self._lines:
            for queue in line.queues:
                if queue.waiters:
                    queue.stand_in(everybody)
        self._shortages = {
            thing: shortage for thing, shortage in self._shortages.items() if not shortage.holds.stale(now)
        }
        return everybody

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _enter(self, waiter: Waiter, lack: Lack, shortage: Shortage[Queue], now: float) -> None:
        line = waiter.line
        queue = line.queues[waiter.klass]
        queue.waiters.append(waiter)
        if len(queue) == 1:
            queue.lack = lack
            queue.stand_in(shortage)
        waiter.lacks(queue.lack, now)
        self._due_at = min(self._due_at, waiter.expires_at)
        self._lines[line] = None
        line.room.enters(waiter.klass, waiter.bytes)
        self.waiting += 1
