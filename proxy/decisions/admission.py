"""Admission: the one place that waits for capacity (`semantics.md` §3).

Owns every queue. A waiter holds nothing; on its turn it takes, in one synchronous step, a place in every limit that
binds it and a key, or it stays. Order: class, then arrival. A head that lacks something only its own target is short
of does not block others.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from proxy.decisions.keys import Key, Lack
from proxy.decisions.queues import Ask, Line, Permit, Refusal, Waiter
from proxy.outcome import Reason


class Admission:
    """Every queue of the process. All methods are synchronous and are told the time."""

    __slots__ = ("_lines", "_sequence", "waiting")

    def __init__(self) -> None:
        self._lines: dict[Line, None] = {}
        self._sequence = 0
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<Admission {self.waiting} waiting in {len(self._lines)} lines>"

    def enter_at_once(self, line: Line, tried: Collection[str] | None, now: float) -> Permit | None:
        """Lets a call go when nobody waits anywhere and everything has a place for it; None: `enter` decides."""
        if self.waiting:
            return None
        taken = self._lacking(line, tried, now)
        return taken if isinstance(taken, Permit) else None

    def enter(self, line: Line, ask: Ask, now: float) -> Permit | Waiter | Refusal:
        """Lets a call go, or queues it, or refuses it at once: a newcomer never overtakes a waiter of its line."""
        first = line.first_waiter(ask.klass) if self.waiting else None
        lack = first.lack if first is not None else self._lacking(line, ask.tried, now)
        if isinstance(lack, Permit):
            return lack
        if lack is Lack.NO_KEY:
            return Refusal(reason=Reason.KEYS_UNUSABLE, retry_after=None)
        if lack is Lack.KEY and (hopeless := self._rests_too_long(line, ask, now)) is not None:
            return hopeless
        room = line.room
        if room.waiting >= room.max_waiters or room.bytes + ask.bytes > room.max_bytes:
            return Refusal(reason=Reason.QUEUE_FULL, retry_after=room.expected_wait())
        return self._queue(line, lack, ask, now)

    def returned(self, now: float) -> None:
        """Something came free."""
        if self.waiting:
            self.pump(now)

    def pump(self, now: float) -> None:
        """Lets every head go that can, by class and then by arrival, until none can."""
        heads = [
            (klass, waiters[0].sequence, line)
            for line in self._lines
            for klass, waiters in enumerate(line.waiters)
            if waiters
        ]
        heapq.heapify(heads)
        while heads:
            klass, _, line = heapq.heappop(heads)
            if self._serve_head(line, klass, now) and line.waiters[klass]:
                heapq.heappush(heads, (klass, line.waiters[klass][0].sequence, line))

    def tick(self, now: float) -> None:
        """Moves on what time alone decides: keys that have rested, waiters whose time is over."""
        if not self.waiting:
            return
        self.pump(now)
        late = [w for line in self._lines for queue in line.waiters for w in queue if w.expires_at <= now]
        for waiter in late:
            self._refuse(waiter, self._why_late(waiter, now))

    def leave(self, waiter: Waiter, now: float) -> None:
        """The waiter's caller has gone: what was handed to it meanwhile goes to the next."""
        self.goes_on(waiter)
        if waiter.permit is not None:
            waiter.permit.release(now)
        elif waiter.refusal is None:
            self._remove(waiter)
            self.returned(now)

    def flush(self, line: Line, refusal: Refusal, now: float) -> None:
        """Refuses everybody in a line at once (its breaker has opened), also who has a permit but has not gone on."""
        for queue in line.waiters:
            for waiter in tuple(queue):
                self._refuse(waiter, refusal)
        handed, line.handed = line.handed, set()
        for waiter in handed:
            permit, waiter.permit, waiter.refusal = waiter.permit, None, refusal
            if permit is not None:
                permit.release(now)

    def goes_on(self, waiter: Waiter) -> None:
        """The waiter's task runs again: what was handed to it is in use from now on."""
        waiter.line.handed.discard(waiter)

    def _serve_head(self, line: Line, klass: int, now: float) -> bool:
        """Decides about the first waiter of a class; False when it stays."""
        waiter = line.waiters[klass][0]
        taken = self._lacking(line, waiter.tried, now)
        if isinstance(taken, Permit):
            self._remove(waiter)
            waiter.permit = taken
            line.handed.add(waiter)
            waiter.wake()
            return True
        if taken is Lack.NO_KEY:
            self._refuse(waiter, Refusal(reason=Reason.KEYS_UNUSABLE, retry_after=None))
            return True
        if taken is not waiter.lack:
            for other in line.waiters[klass]:
                other.lacks(taken, now)
        return False

    def _lacking(self, line: Line, tried: Collection[str] | None, now: float) -> Permit | Lack:
        """Takes everything, or says what is missing and takes nothing."""
        for places in line.limits:
            if places.used >= places.size:
                return Lack.PERMIT
        if line.ring is None:
            return Permit(line, None, now, self.returned)
        key = line.ring.choose(now, tried)
        return Permit(line, key, now, self.returned) if isinstance(key, Key) else key

    def _rests_too_long(self, line: Line, ask: Ask, now: float) -> Refusal | None:
        assert line.ring is not None
        usable_at = line.ring.usable_at(now)
        if usable_at is None or usable_at <= min(now + ask.limits.quota_wait, ask.deadline_at):
            return None
        return Refusal(reason=Reason.KEYS_RESTING, retry_after=usable_at - now)

    def _queue(self, line: Line, lack: Lack, ask: Ask, now: float) -> Waiter:
        self._sequence += 1
        waiter = Waiter(line, lack, ask, now, self._sequence)
        line.waiters[ask.klass].append(waiter)
        self._lines[line] = None
        line.room.waiting += 1
        line.room.bytes += ask.bytes
        self.waiting += 1
        return waiter

    def _remove(self, waiter: Waiter) -> None:
        line = waiter.line
        queue = line.waiters[waiter.klass]
        if queue[0] is waiter:
            queue.popleft()
        else:
            queue.remove(waiter)
        line.room.waiting -= 1
        line.room.bytes -= waiter.bytes
        self.waiting -= 1
        if not any(line.waiters):
            del self._lines[line]

    def _refuse(self, waiter: Waiter, refusal: Refusal) -> None:
        self._remove(waiter)
        waiter.refusal = refusal
        waiter.wake()

    def _why_late(self, waiter: Waiter, now: float) -> Refusal:
        if waiter.lack is Lack.KEY and waiter.line.ring is not None:
            usable_at = waiter.line.ring.usable_at(now)
            after = None if usable_at is None else max(usable_at - now, 0.0)
            return Refusal(reason=Reason.KEYS_RESTING, retry_after=after)
        return Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=waiter.line.room.expected_wait())
