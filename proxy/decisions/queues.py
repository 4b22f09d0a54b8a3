"""Queues: what a call brings, where it waits, and what it gets in the end (`semantics.md` §3).

`Line`s (one per target) stand in a provider's `Room`, which bounds how many may wait. Who goes when is decided in
`admission`.
"""

from __future__ import annotations

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
    """The queue of one target: what binds its calls, and who waits, by class.

    `handed` are the waiters that were given a permit and have not gone on yet.
    """

    __slots__ = ("handed", "limits", "name", "ring", "room", "waiters")

    def __init__(self, name: str, room: Room) -> None:
        self.name = name
        self.room = room
        self.limits: tuple[Places, ...] = ()
        self.ring: KeyRing | None = None
        self.waiters: tuple[deque[Waiter], ...] = tuple(deque() for _ in range(CLASSES))
        self.handed: set[Waiter] = set()

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

    __slots__ = ("_limits", "_returned", "_room", "key", "released", "taken_at")

    def __init__(self, line: Line, key: Key | None, now: float, returned: Callable[[float], None]) -> None:
        self._returned = returned
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
        self._returned(now)

    def __repr__(self) -> str:
        key = f" with key {self.key.id}" if self.key is not None else ""
        return f"<Permit{key} of {self._room.name}{' released' * self.released}>"


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
    deadline_at: float = float("inf")
    tried: Collection[str] | None = None


def _nobody() -> None:
    """A waiter before somebody listens."""
