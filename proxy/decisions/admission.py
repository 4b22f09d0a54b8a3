"""Admission: the one place that waits for capacity (`semantics.md` §3).

Owns every queue. A waiter holds nothing; on its turn it takes, in one synchronous step, a place in every limit that
binds it and a key, or it stays. Lines (one per target) stand in a provider's `Room`, which bounds how many may wait.
Order: class, then arrival. A head that lacks something only its own target is short of does not block others.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Key, KeyRing, Lack
from proxy.decisions.places import Places
from proxy.outcome import Reason

CLASSES = 3
HOLD_SMOOTHING = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """`queue`: most waiters of a provider (0: max(8, 2 × share)) and most bytes of bodies that wait."""

    max: int = 0
    bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call may not go, and after how many seconds it is worth another try."""

    reason: Reason
    retry_after: float | None


class Room:
    """A provider's waiting room: how many wait, and the bounds; `size` is the provider's share."""

    __slots__ = ("bytes", "hold_seconds", "max_bytes", "max_waiters", "name", "size", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = self.bytes = 0
        self.max_waiters = self.max_bytes = self.size = 0
        self.hold_seconds = 0.0

    def reconfigure(self, settings: QueueSettings, *, share: int) -> None:
        """Takes new bounds; who waits already keeps its place."""
        self.max_waiters = settings.max or max(8, 2 * share)
        self.max_bytes = settings.bytes
        self.size = share

    def expected_wait(self) -> float:
        """Returns a fair Retry-After in seconds: how long the queue before a newcomer will take, 1 at least."""
        return max(1.0, self.hold_seconds * (self.waiting + 1) / max(self.size, 1))

    def __repr__(self) -> str:
        return f"<Room {self.name} {self.waiting}/{self.max_waiters} waiting>"


class Line:
    """The queue of one target: what binds its calls, and who waits, by class."""

    __slots__ = ("limits", "name", "ring", "room", "waiters")

    def __init__(self, name: str, room: Room) -> None:
        self.name = name
        self.room = room
        self.limits: tuple[Places, ...] = ()
        self.ring: KeyRing | None = None
        self.waiters: tuple[deque[Waiter], ...] = tuple(deque() for _ in range(CLASSES))

    def reconfigure(self, limits: tuple[Places, ...], ring: KeyRing | None) -> None:
        """Takes the limits that now bind this target; permits that are out stay counted where they were taken."""
        self.limits = limits
        self.ring = ring

    def first_waiter(self, klass: int) -> Waiter | None:
        """Returns who stands before a newcomer of this class, if anybody does."""
        return next((queue[0] for queue in self.waiters[: klass + 1] if queue), None)

    def __repr__(self) -> str:
        return f"<Line {self.name} {sum(map(len, self.waiters))} waiting>"


class Permit:
    """Leave for one attempt. `release` gives everything back, once, however often it is called."""

    __slots__ = ("_admission", "_limits", "_room", "key", "released", "taken_at")

    def __init__(self, admission: Admission, line: Line, key: Key | None, now: float) -> None:
        self._admission = admission
        self._room = line.room
        limits = line.limits
        if key is not None and key.places is not None:
            limits = (*limits, key.places)
        for places in limits:
            places.used += 1
        self._limits = limits
        self.key = key
        self.taken_at = now
        self.released = False

    def release(self, now: float) -> None:
        """Gives the places back and lets the next waiters go."""
        if self.released:
            return
        self.released = True
        for places in self._limits:
            places.used -= 1
        room = self._room
        room.hold_seconds += HOLD_SMOOTHING * (now - self.taken_at - room.hold_seconds)
        self._admission.returned(now)


class Waiter:
    """One call in a queue. `wake` is called once, when `permit` or `refusal` has been set."""

    __slots__ = (
        "bytes",
        "deadline_at",
        "expires_at",
        "klass",
        "lack",
        "lack_since",
        "limits",
        "line",
        "permit",
        "refusal",
        "sequence",
        "since",
        "spent",
        "tried",
        "wake",
    )

    def __init__(self, line: Line, lack: Lack, ask: Ask, now: float, sequence: int) -> None:
        self.line = line
        self.klass = ask.klass
        self.tried = ask.tried
        self.bytes = ask.bytes
        self.limits = ask.limits
        self.deadline_at = ask.deadline_at
        self.sequence = sequence
        self.permit: Permit | None = None
        self.refusal: Refusal | None = None
        self.wake: Callable[[], None] = _nobody
        self.since = self.lack_since = now
        self.spent = 0.0
        self.lack = lack
        self.expires_at = 0.0
        self._due(now)

    @property
    def waits(self) -> bool:
        """True while neither a permit nor a refusal has been given."""
        return self.permit is None and self.refusal is None

    def lacks(self, lack: Lack, now: float) -> None:
        """Notes what is missing now; time that went by while another thing was missing counts for that one."""
        if lack is not self.lack:
            self.spent, self.lack_since = now - self.lack_since, now - self.spent
            self.lack = lack
            self._due(now)

    def _due(self, now: float) -> None:
        limit = self.limits.quota_wait if self.lack is Lack.KEY else self.limits.queue
        self.expires_at = min(self.lack_since + limit, self.deadline_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a call brings to admission: class (0-2), bytes of its body, how long it may wait, which keys it tried."""

    klass: int = 1
    bytes: int = 0
    limits: WaitLimits
    deadline_at: float = float("inf")
    tried: Collection[str] | None = None


def _nobody() -> None:
    """A waiter before somebody listens."""


class Admission:
    """Every queue of the process. All methods are synchronous and are told the time."""

    __slots__ = ("_lines", "_sequence", "waiting")

    def __init__(self) -> None:
        self._lines: dict[Line, None] = {}
        self._sequence = 0
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<Admission {self.waiting} waiting in {len(self._lines)} lines>"

    def enter(self, line: Line, ask: Ask, now: float) -> Permit | Waiter | Refusal:
        """Lets a call go, or queues it, or refuses it at once: a newcomer never overtakes a waiter of its line."""
        first = line.first_waiter(ask.klass)
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
        if waiter.permit is not None:
            waiter.permit.release(now)
        elif waiter.refusal is None:
            self._remove(waiter)
            self.returned(now)

    def flush(self, line: Line, refusal: Refusal) -> None:
        """Refuses everybody in a line at once (its breaker has opened)."""
        for queue in line.waiters:
            for waiter in tuple(queue):
                self._refuse(waiter, refusal)

    def _serve_head(self, line: Line, klass: int, now: float) -> bool:
        """Decides about the first waiter of a class; False when it stays."""
        waiter = line.waiters[klass][0]
        taken = self._lacking(line, waiter.tried, now)
        if isinstance(taken, Permit):
            self._remove(waiter)
            waiter.permit = taken
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
            return Permit(self, line, None, now)
        key = line.ring.choose(now, tried)
        return Permit(self, line, key, now) if isinstance(key, Key) else key

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
        if now >= waiter.deadline_at:
            return Refusal(reason=Reason.TOTAL_TIMEOUT, retry_after=None)
        return Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=waiter.line.room.expected_wait())
