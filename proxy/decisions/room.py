"""Room: a provider's waiting room: how many may wait, and whether P2 may run now (`policy.md` rule 8)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from proxy.decisions.fair import Turns

IDLE_AFTER_SECONDS = 1.0
"""Capacity is idle when no P0 or P1 has run for so long."""
CLASSES = 3
LOWEST = 2
"""The class that runs in idle capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """`queue`: most waiters of a provider (0: max(8, 2 × share)) and most bytes of bodies that wait.

    For each call they count those of its class and of higher ones: whoever waits with a low one takes no room from it.
    """

    max: int = 0
    bytes: int = 64 * 1024 * 1024


class Room:
    """How many wait and run at a provider, and the bounds; `observes`: nobody waits for a place in it.

    `pressing` counts the waiters of P0 and P1. `turns` are those of the tenants that wait, by class.
    """

    __slots__ = (
        "_bodies", "_classes", "_ended_at", "_idle_below", "_running", "max_bytes", "max_waiters", "name", "observes",
        "pressing", "turns", "waiting",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiting = self.pressing = 0
        self._classes = [0] * CLASSES
        self._bodies = [0] * CLASSES
        self.turns = tuple(Turns() for _ in range(CLASSES))
        self.max_waiters = self.max_bytes = 0
        self.observes = False
        self._running = [0] * CLASSES
        self._ended_at = [-inf] * CLASSES
        self._idle_below = 0.0

    def reconfigure(
        self, settings: QueueSettings, *, share: int, observes: bool = False, idle_below: float = 0.7
    ) -> None:
        """Takes new bounds, `share` being the provider's; who waits already keeps its place."""
        self.max_waiters = settings.max or max(8, 2 * share)
        self.max_bytes = settings.bytes
        self.observes = observes
        self._idle_below = idle_below * share

    @property
    def bytes(self) -> int:
        """How many bytes of bodies wait."""
        return sum(self._bodies)

    def has_room(self, klass: int, body_bytes: int) -> bool:
        """Whether one more of this class may wait, with a body of so many bytes."""
        before = slice(klass + 1)
        return (
            sum(self._classes[before]) < self.max_waiters and sum(self._bodies[before]) + body_bytes <= self.max_bytes
        )

    def enters(self, klass: int, body_bytes: int) -> None:
        """Somebody waits."""
        self.waiting += 1
        self._classes[klass] += 1
        self._bodies[klass] += body_bytes
        self.pressing += klass < LOWEST

    def leaves(self, klass: int, body_bytes: int) -> None:
        """Somebody waits no more."""
        self.waiting -= 1
        self._classes[klass] -= 1
        self._bodies[klass] -= body_bytes
        self.pressing -= klass < LOWEST

    @property
    def running(self) -> int:
        """How many permits are out."""
        return sum(self._running)

    def starts(self, klass: int) -> None:
        """A call of this class runs."""
        self._running[klass] += 1

    def ends(self, klass: int, now: float) -> None:
        """A call of this class runs no more."""
        self._running[klass] -= 1
        self._ended_at[klass] = now

    def idle(self, now: float) -> bool:
        """Whether a P2 may run: nobody of P0 or P1 waits, and none ran lately or few permits are in use."""
        if self.pressing:
            return False
        return self.running < self._idle_below or now >= self._quiet_at()

    def idle_at(self, now: float) -> float:
        """Returns when time alone lets a P2 run; endless while a P0 or P1 waits or runs."""
        if self.idle(now):
            return now
        return inf if self.pressing else self._quiet_at()

    def _quiet_at(self) -> float:
        """Returns when no P0 or P1 has run lately; endless while one runs."""
        busy = any(self._running[:LOWEST])
        return inf if busy else max(self._ended_at[:LOWEST]) + IDLE_AFTER_SECONDS

    def __repr__(self) -> str:
        return f"<Room {self.name} {self.waiting}/{self.max_waiters} waiting>"
