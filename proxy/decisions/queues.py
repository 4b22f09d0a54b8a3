"""Queues: what a call brings, where it waits, and what it gets in the end (`semantics.md` §3).

`Line`s (one per target, with a `Queue` for each class) stand in a provider's `Room`, which bounds how many may wait.
Who goes when is decided in `admission`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Key, KeyRing, Lack
from proxy.decisions.places import Places
from proxy.decisions.shortage import Shortage
from proxy.outcome import Reason

CLASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """`queue`: most waiters of a provider (0: max(8, 2 × share)) and most bytes of bodies that wait."""

    max: int = 0
    bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call may not go, and after how many seconds it is worth another try; `detail` is for people."""

    reason: Reason
    retry_after: float | None
    detail: str = ""


class Room:
    """A provider's waiting room: how many wait, and the bounds; `observes`: nobody waits for a place in it."""

    __slots__ = ("bytes", "max_bytes", "max_waiters", "name", "observes", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = self.bytes = 0
        self.max_waiters = self.max_bytes = 0
        self.observes = False

    def reconfigure(self, settings: QueueSettings, *, share: int, observes: bool = False) -> None:
        """Takes new bounds, `share` being the provider's; who waits already keeps its place."""
        self.max_waiters = settings.max or max(8, 2 * share)
        self.max_bytes = settings.bytes
        self.observes = observes

    def has_room(self, body_bytes: int) -> bool:
        """Whether one more may wait, with a body of so many bytes."""
        return self.waiting < self.max_waiters and self.bytes + body_bytes <= self.max_bytes

    def __repr__(self) -> str:
        return f"<Room {self.name} {self.waiting}/{self.max_waiters} waiting>"


class Queue:
    """Who waits in one line, of one class. While anybody does, all lack the same: `lack`, in `shortage`."""

    __slots__ = ("klass", "lack", "line", "shortage", "waiters")

    def __init__(self, line: Line, klass: int) -> None:
        self.line = line
        self.klass = klass
        self.waiters: deque[Waiter] = deque()
        self.lack = Lack.PERMIT
        self.shortage: Shortage[Queue] | None = None

    def __len__(self) -> int:
        return len(self.waiters)

    def __repr__(self) -> str:
        return f"<Queue {self.klass} of {self.line.name}, {len(self)} waiting>"

    @property
    def first(self) -> int:
        """The number of its first waiter."""
        return self.waiters[0].sequence

    def going(self, rounds: int) -> int:
        """How many of its waiters all its limits would let go while each place is used so many times."""
        return min([len(self.waiters), *(rounds * places.size for places in self.line.limits)])

    def stand_in(self, shortage: Shortage[Queue] | None) -> None:
        """Leaves the shortage in which it stands for another one, or for none."""
        if shortage is self.shortage:
            return
        if self.shortage is not None:
            self.shortage.discard(self)
        self.shortage = shortage
        if shortage is not None:
            shortage.add(self)


class Line:
    """The queues of one target, one for each class, and what binds its calls.

    `waiters` are those of each queue. `handed` are the waiters that were given a permit and have not gone on yet.
    A line that observes, by itself or with its room, counts its calls in every limit and lets them go though a limit
    is full (`mode: observe`).
    """

    __slots__ = ("_observes", "handed", "limits", "name", "queues", "ring", "room", "waiters")

    def __init__(self, name: str, room: Room, *, observes: bool = False) -> None:
        self.name = name
        self.room = room
        self._observes = observes
        self.limits: tuple[Places, ...] = ()
        self.ring: KeyRing | None = None
        self.queues = tuple(Queue(self, klass) for klass in range(CLASSES))
        self.waiters = tuple(queue.waiters for queue in self.queues)
        self.handed: set[Waiter] = set()

    @property
    def observes(self) -> bool:
        """Whether nobody waits for a place here."""
        return self._observes or self.room.observes

    def reconfigure(self, limits: tuple[Places, ...], ring: KeyRing | None) -> None:
        """Takes the limits that now bind this target, the widest first.

        Permits that are out stay counted where they were taken; who waits is judged by the new limits at the next
        `Admission.pump`.
        """
        self.limits = limits
        self.ring = ring

    def queue_before(self, klass: int) -> Queue | None:
        """Returns the queue behind which a newcomer of this class stands, its own if possible; None: it is first."""
        for queue in self.queues[klass::-1]:
            if queue.waiters:
                return queue
        return None

    def __repr__(self) -> str:
        return f"<Line {self.name} {sum(map(len, self.waiters))} waiting>"


class Permit:
    """Leave for one attempt. `release` gives everything back, once, however often it is called.

    `taken_at` is infinity for one that came back unused.
    """

    __slots__ = ("_returned", "key", "limits", "line", "released", "taken_at")

    def __init__(self, line: Line, key: Key | None, now: float, returned: Callable[[Permit, float], None]) -> None:
        self._returned = returned
        self.line = line
        limits = line.limits
        if key is not None and key.places is not None:
            limits = (*limits, key.places)
        for places in limits:
            places.used += 1
        self.limits = limits
        self.key = key
        self.taken_at = now
        self.released = False

    def release(self, now: float) -> None:
        """Gives the places back and lets the next waiters go."""
        if self.released:
            return
        self.released = True
        for places in self.limits:
            places.used -= 1
        self._returned(self, now)

    def give_back(self, now: float) -> None:
        """Releases what was never used: how long it was held tells nothing."""
        self.taken_at = inf
        self.release(now)

    def __repr__(self) -> str:
        key = f" with key {self.key.id}" if self.key is not None else ""
        return f"<Permit{key} of {self.line.room.name}{' released' * self.released}>"


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
        self._due()

    def __repr__(self) -> str:
        return f"<Waiter {self.sequence} of {self.line.name}, lacks a {self.lack}>"

    def lacks(self, lack: Lack, now: float) -> None:
        """Notes what is missing now; time that went by while another thing was missing counts for that one."""
        if lack is not self.lack:
            self.spent, self.lack_since = now - self.lack_since, now - self.spent
            self.lack = lack
            self._due()

    def _due(self) -> None:
        limit = self.limits.quota_wait if self.lack is Lack.KEY else self.limits.queue
        self.expires_at = min(self.lack_since + limit, self.deadline_at)


@dataclass(slots=True, kw_only=True)
class Ask:
    """What a call brings to admission: class (0-2), bytes of its body, how long it may wait, which keys it tried."""

    klass: int = 1
    bytes: int = 0
    limits: WaitLimits
    deadline_at: float = inf
    tried: Collection[str] | None = None


def _nobody() -> None:
    """A waiter before somebody listens."""
