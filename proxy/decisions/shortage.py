"""Shortage: the queues that lack one and the same thing, in their order, and how long it will take them.

A queue stands in the shortage of the thing that its first waiter was found to lack. Until that comes back it could
not go, so nobody looks at it; when it does come back, only the queues that stand here are looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from math import inf
from typing import Generic, Protocol, TypeVar

from proxy.decisions.holds import Holds
from proxy.decisions.keys import KeyRing
from proxy.decisions.places import Places
from proxy.decisions.quota import Bucket
from proxy.decisions.room import LOWEST, Room

MARGIN = 2.0
"""How many times longer than it may wait a call must have to wait to be refused at once: holds are never equal."""
SHORTEST_RETRY_AFTER = 1.0

Thing = Places | KeyRing | Bucket | Room


class Queued(Protocol):
    """A queue as a shortage sees it; `klass` 0 goes first, then the lowest `first`; among kin the lowest `turn`."""

    klass: int

    @property
    def first(self) -> int:
        """When its first waiter came, as a number that grows; asked only of a queue in which somebody waits."""
        ...

    @property
    def kin(self) -> object:
        """What queues have in common among which tenants take turns; never the same for two classes."""
        ...

    @property
    def turn(self) -> tuple[float, int]:
        """When it has its turn among its kin; asked only of a queue in which somebody waits."""
        ...

    @property
    def plain(self) -> bool:
        """Whether only one tenant waits among its kin: then they go as they came."""
        ...

    def going(self, rounds: int) -> int:
        """How many of its waiters all its limits would let go while each place is used so many times."""
        ...

    def __len__(self) -> int: ...


Q = TypeVar("Q", bound=Queued)


class Shortage(Generic[Q]):
    """Who lacks `thing`."""

    __slots__ = ("_entered", "_heap", "holds", "members", "thing")

    def __init__(self, thing: Thing) -> None:
        self.thing = thing
        self.members: set[Q] = set()
        self.holds = Holds()
        # A member's entry may be older than its first waiter, and that of a queue that left stays until it is met.
        self._heap: list[tuple[int, int, Q]] = []
        self._entered: set[Q] = set()

    def __repr__(self) -> str:
        return f"<Shortage of {self.thing!r}, {len(self.members)} queues>"

    def add(self, queue: Q) -> None:
        """A queue in which somebody waits was found to lack this."""
        self.members.add(queue)
        if queue not in self._entered:
            self._entered.add(queue)
            heapq.heappush(self._heap, (queue.klass, queue.first, queue))

    def discard(self, queue: Q) -> None:
        """The queue lacks something else now, or nobody waits in it any more."""
        self.members.discard(queue)
        if not self.members:
            self._heap.clear()
            self._entered.clear()

    def first(self) -> Q | None:
        """Returns the queue whose turn it is; None when nobody lacks this."""
        earliest = self.earliest()
        if earliest is None or len(self.members) == 1 or earliest.plain:
            return earliest
        kin = earliest.kin
        return min((queue for queue in self.members if queue.kin is kin), key=_turn)

    def earliest(self) -> Q | None:
        """Returns the queue of the lowest class whose earliest waiter came first: its kin have their turn."""
        heap = self._heap
        while heap:
            klass, sequence, queue = heap[0]
            if queue not in self.members:
                heapq.heappop(heap)
                self._entered.discard(queue)
            elif queue.first != sequence:
                heapq.heapreplace(heap, (klass, queue.first, queue))
            else:
                return queue
        return None

    def in_order(self) -> list[Q]:
        """Returns all queues that stand here, in their order."""
        return sorted(self.members, key=lambda queue: (queue.klass, queue.first))

    def certain(self, now: float) -> bool:
        """Whether nothing of it is there, so that looking at anybody would be in vain."""
        match self.thing:
            case Places() as places:
                return places.used >= places.size
            case Room() as room:
                first = self.earliest()
                # Who was promoted while it stood here needs no idle capacity any more.
                return not room.observes and not room.idle(now) and (first is None or first.klass == LOWEST)
        return False

    def idle_at(self, now: float) -> float:
        """Returns when time alone makes idle what is lacked; endless where that is not what is lacked."""
        return self.thing.idle_at(now) if isinstance(self.thing, Room) else inf

    @property
    def divisible(self) -> bool:
        """Whether somebody may have of it what is not enough, or not meant, for the first."""
        thing = self.thing
        return isinstance(thing, Bucket | KeyRing) or (isinstance(thing, Places) and bool(thing.reserves))

    @property
    def at_once(self) -> int:
        """How many calls can have this at once; 0 when none can or nobody knows."""
        thing = self.thing
        if isinstance(thing, Places):
            return max(thing.size, thing.used)
        if not isinstance(thing, KeyRing):
            return 0
        keys = [key for key in thing.keys if key.usable]
        sizes = [key.places.size for key in keys if key.places is not None]
        return sum(sizes) if len(sizes) == len(keys) else 0

    def hold_ended(self, seconds: float, now: float) -> None:
        """Counts how long somebody had this."""
        self.holds.add(seconds, now, size=self.at_once)

    def hopeless(self, klass: int, seconds: float, now: float) -> bool:
        """Whether a newcomer of this class could not go within twice the `seconds` that it may wait.

        In that time each place is given away once now and again after every hold. Those who stand before the newcomer
        take all of that, if every hold is a typical one. False while there are too few holds to tell.
        """
        places = self.at_once
        hold = self.holds.typical(now, size=places)
        if not places or not hold:
            return False
        rounds = int(MARGIN * seconds / hold) + 1
        ahead = 0
        for queue in self.members:
            if queue.klass <= klass:
                ahead += queue.going(rounds)
                if ahead >= rounds * places:
                    return True
        return False

    def expected_wait(self, klass: int, now: float) -> float:
        """Returns a fair Retry-After: the seconds until those before a newcomer have gone, 1 at least."""
        standing = sum(len(queue) for queue in self.members if queue.klass <= klass)
        return max(SHORTEST_RETRY_AFTER, self.holds.mean(now) * (standing + 1) / max(self.at_once, 1))


def whose_turn(shortages: Iterable[Shortage[Q]]) -> Q | None:
    """Returns which queue of several shortages has its turn; None when nobody stands in any."""
    standing = [(earliest, shortage) for shortage in shortages if (earliest := shortage.earliest()) is not None]
    if len(standing) < 2:
        return standing[0][1].first() if standing else None
    kin = min((earliest for earliest, _ in standing), key=_place).kin
    firsts = (shortage.first() for earliest, shortage in standing if earliest.kin is kin)
    return min((queue for queue in firsts if queue is not None), key=_turn)


def _place(queue: Queued) -> tuple[int, int]:
    return queue.klass, queue.first


def _turn(queue: Queued) -> tuple[float, int]:
    return queue.turn
