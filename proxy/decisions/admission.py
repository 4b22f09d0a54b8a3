"""Admission: the one place that waits for capacity (`semantics.md` §3).

Owns every queue. A waiter holds nothing; on its turn it takes, in one synchronous step, a place in every limit that
binds it and a key, or it stays.

The order: whenever something comes back, of all queues' first waiters (a queue is one target and one class) that now
lack nothing the one with the lowest class goes, and of these the one that came first; and so on until none can. So
nothing is left free that somebody could use: who lacks a place that only its own target needs is passed by others, and
loses no turn, because for what all need (the process's places) it still stands by its arrival. In a class nobody
starves: of those who came before it only finitely many can pass it. A newcomer goes at once only if nobody of its class
or a higher one stands before it at its target, and takes only what no waiter can use.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from math import inf

from proxy.decisions.keys import Key, Lack
from proxy.decisions.observing import least_busy
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Permit, Queue, Refusal, Waiter
from proxy.decisions.shortage import Shortage, Thing
from proxy.outcome import Reason

HOPELESS = "Those who wait already would take longer than this request may wait. Try again later."


class Admission:
    """Every queue of the process. All methods are synchronous and are told the time."""

    __slots__ = ("_due_at", "_lines", "_sequence", "_shortages", "waiting")

    def __init__(self) -> None:
        self._lines: dict[Line, None] = {}
        self._shortages: dict[Thing, Shortage[Queue]] = {}
        self._sequence = 0
        self._due_at = inf
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<Admission {self.waiting} waiting in {len(self._lines)} lines>"

    def enter_at_once(self, line: Line, tried: Collection[str] | None, now: float) -> Permit | None:
        """Lets a call go when nobody waits anywhere and everything has a place for it; None: `enter` decides."""
        if self.waiting:
            return None
        taken = self._take(line, tried, now)
        return taken if isinstance(taken, Permit) else None

    def enter(self, line: Line, ask: Ask, now: float) -> Permit | Waiter | Refusal:
        """Lets a call go, or queues it, or refuses it at once: a newcomer never overtakes a waiter."""
        if self.waiting and line.ring in self._shortages:
            self.pump(now, (line.ring,))  # a key may have rested enough since the last tick
        before = line.queue_before(ask.klass) if self.waiting else None
        if before is not None and before.shortage is not None:
            lack, shortage = before.lack, before.shortage
        else:
            taken = self._take(line, ask.tried, now)
            if isinstance(taken, Permit):
                return taken
            lack, shortage = taken
        return self._in_vain(line, ask, lack, shortage, now) or self._queue(line, ask, lack, shortage, now)

    def returned(self, permit: Permit, now: float) -> None:
        """A permit came back: who lacks one of its places, or a key, may go now."""
        if not self.waiting:
            return
        ring = permit.line.ring
        things: tuple[Thing, ...] = permit.limits if ring is None else (*permit.limits, ring)
        held = now - permit.taken_at
        if held >= 0:
            for thing in things:
                shortage = self._shortages.get(thing)
                if shortage is not None and shortage.members:
                    shortage.hold_ended(held, now)
        self.pump(now, things)

    def pump(self, now: float, things: Iterable[Thing] | None = None) -> None:
        """Lets every first waiter go that can, in their order, until none can.

        `things` are all that may have come back; without them anything may have changed, the policy too.
        """
        looked_at = [self._everybody(now)] if things is None else self._lacking(things)
        turns = [
            (queue.klass, queue.first, shortage) for shortage in looked_at if (queue := shortage.first()) is not None
        ]
        heapq.heapify(turns)
        while turns:
            shortage = heapq.heappop(turns)[2]
            queue = shortage.first()
            if queue is None or (not self._serve(queue, now) and queue.shortage is shortage):
                continue  # nothing is left of it
            if (queue := shortage.first()) is not None:
                heapq.heappush(turns, (queue.klass, queue.first, shortage))

    def tick(self, now: float) -> None:
        """Moves on what time alone decides: keys that have rested, waiters whose time is over."""
        if not self.waiting:
            return
        self.pump(now, self._shortages)
        if now >= self._due_at:
            self._refuse_late(now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """The waiter's caller has gone: what was handed to it meanwhile goes to the next."""
        self.goes_on(waiter)
        if waiter.permit is not None:
            waiter.permit.give_back(now)
        elif waiter.refusal is None:
            self._remove(waiter)

    def flush(self, line: Line, refusal: Refusal, now: float) -> None:
        """Refuses everybody in a line at once (its breaker has opened), also who has a permit but has not gone on.

        Where a line observes, an open breaker refuses nobody.
        """
        if line.observes:
            return
        for queue in line.waiters:
            for waiter in tuple(queue):
                self._refuse(waiter, refusal)
        handed, line.handed = line.handed, set()
        for waiter in handed:
            permit, waiter.permit, waiter.refusal = waiter.permit, None, refusal
            if permit is not None:
                permit.give_back(now)

    def goes_on(self, waiter: Waiter) -> None:
        """The waiter's task runs again: what was handed to it is in use from now on."""
        waiter.line.handed.discard(waiter)

    # Taking

    def _take(self, line: Line, tried: Collection[str] | None, now: float) -> Permit | tuple[Lack, Shortage[Queue]]:
        """Takes everything, or says what is missing (the narrowest limit first) and takes nothing."""
        for places in reversed(line.limits):
            if places.used >= places.size and not line.observes:
                return Lack.PERMIT, self._shortage(places)
        ring = line.ring
        if ring is None:
            return Permit(line, None, now, self.returned)
        key = ring.choose(now, tried)
        if key is Lack.PERMIT and line.observes:
            key = least_busy(ring, tried, now)
        return Permit(line, key, now, self.returned) if isinstance(key, Key) else (key, self._shortage(ring))

    def _serve(self, queue: Queue, now: float) -> bool:
        """Decides about the first waiter of a queue; False when it stays."""
        waiter = queue.waiters[0]
        taken = self._take(queue.line, waiter.tried, now)
        if isinstance(taken, Permit):
            self._remove(waiter)
            waiter.permit = taken
            queue.line.handed.add(waiter)
            waiter.wake()
            return True
        lack, shortage = taken
        if lack is Lack.NO_KEY:
            self._refuse(waiter, _unusable())
            return True
        self._lacks(queue, lack, now)
        queue.stand_in(shortage)
        return False

    # Queueing

    def _in_vain(self, line: Line, ask: Ask, lack: Lack, shortage: Shortage[Queue], now: float) -> Refusal | None:
        """Returns the refusal of a newcomer for whom waiting would be in vain, or has no room."""
        left = ask.deadline_at - now
        if line.ring is not None:
            usable_at = line.ring.usable_at(now)
            if usable_at is None:
                return _unusable()
            rests = usable_at - now
            waits = ask.limits.quota_wait if lack is Lack.KEY else ask.limits.queue + ask.limits.quota_wait
            if rests > 0 and rests > min(waits, left):
                return Refusal(reason=Reason.KEYS_RESTING, retry_after=rests)
        if not line.room.has_room(ask.bytes):
            return Refusal(reason=Reason.QUEUE_FULL, retry_after=shortage.expected_wait(ask.klass, now))
        if lack is Lack.PERMIT:
            seconds = min(ask.limits.queue, left)
            if seconds <= 0 or shortage.hopeless(ask.klass, seconds, now):
                after = shortage.expected_wait(ask.klass, now)
                return Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=after, detail=HOPELESS * (seconds > 0))
        return None

    def _queue(self, line: Line, ask: Ask, lack: Lack, shortage: Shortage[Queue], now: float) -> Waiter:
        self._sequence += 1
        queue = line.queues[ask.klass]
        waiter = Waiter(line, lack, ask, now, self._sequence)
        queue.waiters.append(waiter)
        if len(queue) == 1:
            queue.lack = lack
            queue.stand_in(shortage)
        self._due_at = min(self._due_at, waiter.expires_at)
        self._lines[line] = None
        line.room.waiting += 1
        line.room.bytes += ask.bytes
        self.waiting += 1
        return waiter

    def _lacks(self, queue: Queue, lack: Lack, now: float) -> None:
        """Notes what everybody in the queue lacks now: it decides which of their clocks runs."""
        if lack is queue.lack:
            return
        queue.lack = lack
        for waiter in queue.waiters:
            waiter.lacks(lack, now)
            self._due_at = min(self._due_at, waiter.expires_at)

    def _remove(self, waiter: Waiter) -> None:
        line = waiter.line
        queue = line.queues[waiter.klass]
        if queue.waiters[0] is waiter:
            queue.waiters.popleft()
        else:
            queue.waiters.remove(waiter)
        line.room.waiting -= 1
        line.room.bytes -= waiter.bytes
        self.waiting -= 1
        if not queue.waiters:
            queue.stand_in(None)
            if not any(line.waiters):
                del self._lines[line]

    # Shortages

    def _shortage(self, thing: Thing) -> Shortage[Queue]:
        found = self._shortages.get(thing)
        if found is None:
            found = self._shortages[thing] = Shortage(thing)
        return found

    def _lacking(self, things: Iterable[Thing]) -> list[Shortage[Queue]]:
        """Returns the shortages of these things that may have an end."""
        found = (self._shortages.get(thing) for thing in things)
        return [shortage for shortage in found if shortage is not None and not shortage.certain]

    def _everybody(self, now: float) -> Shortage[Queue]:
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

    # Refusing

    def _refuse(self, waiter: Waiter, refusal: Refusal) -> None:
        self._remove(waiter)
        waiter.refusal = refusal
        waiter.wake()

    def _refuse_late(self, now: float) -> None:
        self._due_at = inf
        for queue in [queue for line in self._lines for queue in line.queues if queue.waiters]:
            late = [waiter for waiter in queue.waiters if waiter.expires_at <= now]
            refusal = self._why_late(queue, now) if late else None
            for waiter in late:
                assert refusal is not None
                self._refuse(waiter, refusal)
            self._due_at = min([self._due_at, *(waiter.expires_at for waiter in queue.waiters)])

    @staticmethod
    def _why_late(queue: Queue, now: float) -> Refusal:
        """Names what was missing when the time was over."""
        ring = queue.line.ring
        usable_at = ring.usable_at(now) if ring is not None else now
        if usable_at is None:
            return _unusable()
        if queue.lack is Lack.KEY:
            return Refusal(reason=Reason.KEYS_RESTING, retry_after=usable_at - now)
        assert queue.shortage is not None
        return Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=queue.shortage.expected_wait(queue.klass, now))


def _unusable() -> Refusal:
    """No key can ever be used by waiting."""
    return Refusal(reason=Reason.KEYS_UNUSABLE, retry_after=None)
