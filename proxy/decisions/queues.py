"""Queues: what a call brings, where it waits, and what it gets in the end (`semantics.md` §3).

`Line`s (one per target, with a `Queue` for each class) stand in a provider's `Room`, which bounds how many may wait.
Who goes when is decided in `admission`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.fair import FairQueue
from proxy.decisions.keys import KeyRing, Lack
from proxy.decisions.permits import Permit
from proxy.decisions.places import URGENT, Places
from proxy.decisions.quota import Bucket
from proxy.decisions.room import CLASSES, LOWEST, Room
from proxy.decisions.shortage import Shortage, Thing
from proxy.outcome import Reason

TIMED = frozenset({Lack.KEY, Lack.QUOTA})
"""What is waited for under `quota_wait`: time alone brings it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call may not go, and after how many seconds it is worth another try; `detail` is for people."""

    reason: Reason
    retry_after: float | None
    detail: str = ""


class Queue:
    """Who waits in one line, of one class. While anybody does, all lack the same: `lack`, in `shortage`."""

    __slots__ = ("klass", "lack", "line", "shortage", "waiters")

    def __init__(self, line: Line, klass: int) -> None:
        self.line = line
        self.klass = klass
        self.waiters: FairQueue[Waiter] = FairQueue(line.room.turns[klass])
        self.lack = Lack.PERMIT
        self.shortage: Shortage[Queue] | None = None

    def __len__(self) -> int:
        return len(self.waiters)

    def __repr__(self) -> str:
        return f"<Queue {self.klass} of {self.line.name}, {len(self)} waiting>"

    @property
    def first(self) -> int:
        """The number of its earliest waiter."""
        return self.waiters.oldest

    @property
    def kin(self) -> object:
        """What the queues have in common among which tenants take turns."""
        return self.line.room.turns[self.klass]

    @property
    def turn(self) -> tuple[float, int]:
        """When its next waiter's tenant has its turn, among the queues of the same kin."""
        return self.waiters.turn

    @property
    def plain(self) -> bool:
        """Whether only one tenant waits among its kin."""
        return len(self.line.room.turns[self.klass].starts) < 2

    def goes_before(self, other: Queue) -> bool:
        """Whether its turn comes before another queue's: by class, among kin by tenants' turns, else by arrival."""
        if self.kin is other.kin:
            return self.turn < other.turn
        return (self.klass, self.first) < (other.klass, other.first)

    @property
    def groups(self) -> Collection[str]:
        """Whose reserves its calls may use."""
        return self.line.groups[self.klass]

    @property
    def needs_quota(self) -> bool:
        """Whether tokens would let its next waiter go: a bucket's, or a key's while others have no place."""
        if self.lack is not Lack.PERMIT or self.shortage is None:
            return self.lack is Lack.QUOTA
        thing = self.shortage.thing
        return isinstance(thing, KeyRing) and thing.has_place(self.groups)

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
    `requests` and `tokens` are the buckets that every call takes one, and its tokens, from. `groups` are, by class,
    those whose reserves its calls may use. A line that observes, by itself or with its room, counts its calls in every
    limit and lets them go though a limit is full (`mode: observe`).
    """

    __slots__ = (
        "_observes", "groups", "handed", "limits", "name", "queues", "requests", "ring", "room", "tokens", "waiters",
    )  # fmt: skip

    def __init__(self, name: str, room: Room, *, observes: bool = False, lanes: Collection[str] = ()) -> None:
        self.name = name
        self.room = room
        self._observes = observes
        self.limits: tuple[Places, ...] = ()
        self.ring: KeyRing | None = None
        self.requests: tuple[Bucket, ...] = ()
        self.tokens: tuple[Bucket, ...] = ()
        self.groups = _groups(lanes)
        self.queues = tuple(Queue(self, klass) for klass in range(CLASSES))
        self.waiters = tuple(queue.waiters for queue in self.queues)
        self.handed: set[Waiter] = set()

    @property
    def observes(self) -> bool:
        """Whether nobody waits for a place here."""
        return self._observes or self.room.observes

    def reconfigure(
        self,
        limits: tuple[Places, ...],
        ring: KeyRing | None,
        *,
        requests: tuple[Bucket, ...] = (),
        tokens: tuple[Bucket, ...] = (),
    ) -> None:
        """Takes what now binds this target, of the limits the widest first.

        Permits that are out stay counted where they were taken; who waits is judged by the new limits at the next
        `Admission.pump`.
        """
        self.limits = limits
        self.ring = ring
        self.requests = requests
        self.tokens = tokens

    def serve(self, lanes: Collection[str]) -> None:
        """Stands for other lanes, whose reserves its calls may use from now on."""
        self.groups = _groups(lanes)

    def bind(self, limits: tuple[Places, ...]) -> None:
        """Takes other limits; keys and quotas stay."""
        self.limits = limits

    @property
    def timed(self) -> tuple[Thing, ...]:
        """What time alone brings back of what binds it."""
        quotas = (*self.requests, *self.tokens)
        return quotas if self.ring is None else (*quotas, self.ring)

    def queue_before(self, klass: int) -> Queue | None:
        """Returns the queue behind which a newcomer of this class stands, its own if possible; None: it is first."""
        for queue in self.queues[klass::-1]:
            if queue.waiters:
                return queue
        return None

    def part(self, now: float) -> float:
        """Returns how much is left (0-1) of what binds this target: of its narrowest limit; 0 when no call can go."""
        parts = [places.part for places in self.limits]
        parts += [bucket.part(now) for bucket in (*self.requests, *self.tokens)]
        if self.ring is not None:
            parts.append(self.ring.part(now))
        return min(parts, default=1.0)

    def __repr__(self) -> str:
        return f"<Line {self.name} {sum(map(len, self.waiters))} waiting>"


class Waiter:
    """One call in a queue. `wake` is called once, when `permit` or `refusal` has been set."""

    __slots__ = (
        "bytes", "cost", "deadline_at", "expires_at", "klass", "lack", "lack_since", "limits", "line", "permit",
        "promote_at", "refusal", "sequence", "since", "spent", "tenant", "tokens", "tried", "wake",
    )  # fmt: skip

    def __init__(self, line: Line, lack: Lack, ask: Ask, now: float, sequence: int) -> None:
        self.line = line
        self.klass = ask.klass
        self.tried = ask.tried
        self.tenant = ask.tenant
        self.tokens = ask.tokens
        self.cost = ask.tokens or 1.0
        self.promote_at = now + ask.promote_after if ask.klass == LOWEST else inf
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
        """Notes what is missing now; of its two clocks, for what time brings and for the rest, only one runs.

        A clock that has run out stays so.
        """
        if self.expires_at <= now:
            return
        if (lack in TIMED) is not (self.lack in TIMED):
            self.spent, self.lack_since = now - self.lack_since, now - self.spent
        self.lack = lack
        self._due()

    def promoted(self, sequence: int) -> None:
        """Counts as a newcomer of the class above from here on; how long it may wait in all stays."""
        self.klass -= 1
        self.sequence = sequence
        self.promote_at = inf

    def _due(self) -> None:
        limit = self.limits.quota_wait if self.lack in TIMED else self.limits.queue
        self.expires_at = min(self.lack_since + limit, self.deadline_at)


@dataclass(slots=True, kw_only=True)
class Ask:
    """What a call brings to admission: class (0-2), bytes of its body, how long it may wait, which keys it tried.

    `tokens` is what it will probably use, 0 where nobody counts; `tenant` whose it is. A P2 that has waited
    `promote_after` seconds queues as P1.
    """

    klass: int = 1
    bytes: int = 0
    limits: WaitLimits
    deadline_at: float = inf
    tried: Collection[str] | None = None
    tokens: float = 0.0
    tenant: str = ""
    promote_after: float = inf


def _groups(lanes: Collection[str]) -> tuple[frozenset[str], ...]:
    """Returns by class whose reserves the calls in these lanes may use."""
    own = frozenset(lanes)
    return own | {URGENT}, own, own


def _nobody() -> None:
    """A waiter before somebody listens."""
