"""Fair: whose turn it is: first come, first served within a tenant and a queue; fair between tenants.

Start-time fair queueing. A tenant's next waiter starts when its former one has ended, or now, and ends after its cost.
Who starts earliest goes next, so that in any stretch of time tenants that have something waiting get equal cost,
whatever they have queued. With one tenant it is plain first come, first served, and costs no more than that.

The virtual time, at which newcomers start, moves on with everything that is served, by what each tenant's part of it
is: however many tenants that nobody has seen before come, those who were there get their turn. It may run ahead of
those who wait, when something large has gone; a newcomer starts no more than its own cost after the first of them.

Queues for one and the same share their `Turns`: what a tenant gets in one of them counts in all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """Somebody in a queue; `sequence` grows with every arrival, `cost` is positive."""

    tenant: str
    cost: float
    sequence: int


W = TypeVar("W", bound=Queued)


class Turns:
    """When each tenant that waits for one and the same starts next, in virtual time; several queues may share them."""

    __slots__ = ("_ends", "_now", "_waiting", "starts")

    def __init__(self) -> None:
        self.starts: dict[str, float] = {}
        self._waiting: dict[str, int] = {}
        self._ends: dict[str, float] = {}
        self._now = 0.0

    def __repr__(self) -> str:
        return f"<Turns of {len(self.starts)} tenants>"

    def enters(self, tenant: str, cost: float) -> None:
        """Somebody waits."""
        waiting = self._waiting.get(tenant, 0)
        self._waiting[tenant] = waiting + 1
        if not waiting:
            self.starts[tenant] = self.start(tenant, cost)
            self._ends.pop(tenant, None)

    def leaves(self, tenant: str, cost: float, *, served: bool) -> None:
        """Somebody waits no more: with what was waited for (`served`), or without."""
        starts = self.starts
        if served:
            self._now = max(self._now + cost / len(starts), starts[tenant])
            starts[tenant] += cost
        self._waiting[tenant] -= 1
        if not self._waiting[tenant]:
            del self._waiting[tenant]
            self._ends[tenant] = starts.pop(tenant)
            self._forget()

    def start(self, tenant: str, cost: float) -> float:
        """Returns when a tenant that has nothing waiting starts: after what it had, and where the others are now."""
        return max(self._ends.get(tenant, 0.0), min(self._now, self._earliest() + cost))

    def _earliest(self) -> float:
        """Returns the start of who is next; now when nobody waits."""
        return min(self.starts.values(), default=self._now)

    def _forget(self) -> None:
        """Forgets tenants that start like anybody new; when nobody waits, all do."""
        if not self.starts:
            self._ends.clear()
            self._now = 0.0
        elif len(self._ends) > len(self.starts) + 16:
            earliest = min(self._now, self._earliest())
            self._ends = {tenant: end for tenant, end in self._ends.items() if end > earliest}


class FairQueue(Generic[W]):
    """Who waits, and who is next. `turns` are shared with other queues for the same.

    Who is next, and who came first, is remembered: a start only ever grows while its tenant waits, so that what
    another queue serves makes nobody else the next of this one.
    """

    __slots__ = ("_earliest", "_flows", "_length", "_next", "_turns")

    def __init__(self, turns: Turns | None = None) -> None:
        self._flows: dict[str, deque[W]] = {}
        self._turns = turns or Turns()
        self._length = 0
        self._next: tuple[float, int, W] | None = None
        self._earliest: int | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[W]:
        """Yields all in the order in which they came."""
        if len(self._flows) == 1:
            (flow,) = self._flows.values()
            return iter(flow)
        everybody = [waiter for flow in self._flows.values() for waiter in flow]
        return iter(sorted(everybody, key=_arrival))

    def __repr__(self) -> str:
        return f"<FairQueue {self._length} of {len(self._flows)} tenants>"

    @property
    def next(self) -> W:
        """Whose turn it is; ask only when somebody waits. Stays the same while nobody comes or goes."""
        return self._first()[2]

    @property
    def turn(self) -> tuple[float, int]:
        """When its next one starts, and when that one came: the lowest of the queues that share turns is next."""
        return self._first()[:2]

    @property
    def oldest(self) -> int:
        """The number of the earliest arrival that still waits: it only ever grows."""
        if self._earliest is None:
            self._earliest = min(flow[0].sequence for flow in self._flows.values())
        return self._earliest

    def append(self, waiter: W) -> None:
        """Somebody comes."""
        self._turns.enters(waiter.tenant, waiter.cost)
        flow = self._flows.get(waiter.tenant)
        if flow is None:
            flow = self._flows[waiter.tenant] = deque()
            self._next = None
        if not self._length:
            self._earliest = waiter.sequence
        flow.append(waiter)
        self._length += 1

    def remove(self, waiter: W, *, served: bool) -> None:
        """Somebody goes: with what was waited for (`served`), or without."""
        flow = self._flows[waiter.tenant]
        if flow[0] is waiter:
            flow.popleft()
        else:
            flow.remove(waiter)
        if not flow:
            del self._flows[waiter.tenant]
        if self._next is not None and self._next[2] is waiter:
            self._next = None
        if self._earliest == waiter.sequence:
            self._earliest = None
        self._length -= 1
        self._turns.leaves(waiter.tenant, waiter.cost, served=served)

    def _first(self) -> tuple[float, int, W]:
        starts, known = self._turns.starts, self._next
        if known is None or starts[known[2].tenant] != known[0]:
            known = self._next = min(
                (starts[tenant], flow[0].sequence, flow[0]) for tenant, flow in self._flows.items()
            )
        return known

    def in_turn(self, most: int) -> list[W]:
        """Returns the first `most` waiters, roughly in the order in which they would go."""
        if len(self._flows) == 1:
            (flow,) = self._flows.values()
            return list(islice(flow, most))
        turns: list[tuple[float, int, W]] = []
        for tenant, flow in self._flows.items():
            start = self._turns.starts[tenant]
            for waiter in islice(flow, most):
                turns.append((start, waiter.sequence, waiter))
                start += waiter.cost
        return [waiter for _, _, waiter in sorted(turns)[:most]]

    def before(self, tenant: str, cost: float) -> list[W]:
        """Returns who would go before a newcomer of this tenant: its own, and of the others what a fair part lets."""
        starts, found = self._turns.starts, list(self._flows.get(tenant, ()))
        start = starts[tenant] if tenant in starts else self._turns.start(tenant, cost)
        start += sum(waiter.cost for waiter in found)
        for other, flow in self._flows.items():
            if other == tenant:
                continue
            at = starts[other]
            for waiter in flow:
                if at > start:
                    break
                found.append(waiter)
                at += waiter.cost
        return found


def _arrival(waiter: Queued) -> int:
    return waiter.sequence
