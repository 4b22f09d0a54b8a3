"""Fair: whose turn it is in one queue: first come, first served within a tenant; fair between tenants.

Start-time fair queueing. A tenant's next waiter starts when its former one has ended, or now, and ends after its cost.
Who starts earliest goes next, so that in any stretch of time tenants that have something waiting get equal cost,
whatever they have queued. With one tenant it is plain first come, first served, and costs no more than that.

The queue's own virtual time, at which newcomers start, moves on with everything that is served, by what each tenant's
part of it is: however many tenants that nobody has seen before come, those who were there get their turn. It may run
ahead of those who wait, when something large has gone; a newcomer starts no more than its own cost after the first of
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """Somebody in a queue; `sequence` grows with every arrival, `cost` is positive."""

    tenant: str
    cost: float
    sequence: int


W = TypeVar("W", bound=Queued)


class _Flow(Generic[W]):
    """One tenant's waiters, and when its next one starts in virtual time."""

    __slots__ = ("start", "waiters")

    def __init__(self, start: float) -> None:
        self.start = start
        self.waiters: deque[W] = deque()


class FairQueue(Generic[W]):
    """Who waits, and who is next."""

    __slots__ = ("_ends", "_flows", "_length", "_now")

    def __init__(self) -> None:
        self._flows: dict[str, _Flow[W]] = {}
        self._ends: dict[str, float] = {}
        self._now = 0.0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[W]:
        """Yields all in the order in which they came."""
        if len(self._flows) == 1:
            (flow,) = self._flows.values()
            return iter(flow.waiters)
        everybody = [waiter for flow in self._flows.values() for waiter in flow.waiters]
        return iter(sorted(everybody, key=_arrival))

    def __repr__(self) -> str:
        return f"<FairQueue {self._length} of {len(self._flows)} tenants>"

    @property
    def next(self) -> W:
        """Whose turn it is; ask only when somebody waits. Stays the same until it is removed, or an earlier comes."""
        return self._first().waiters[0]

    @property
    def oldest(self) -> int:
        """The number of the earliest arrival that still waits: it only ever grows."""
        return min(flow.waiters[0].sequence for flow in self._flows.values())

    def append(self, waiter: W) -> None:
        """Somebody comes."""
        flow = self._flows.get(waiter.tenant)
        if flow is None:
            flow = self._flows[waiter.tenant] = _Flow(self._start(waiter.tenant, waiter.cost))
            self._ends.pop(waiter.tenant, None)
        flow.waiters.append(waiter)
        self._length += 1

    def remove(self, waiter: W, *, served: bool) -> None:
        """Somebody goes: with what was waited for (`served`), or without."""
        flow = self._flows[waiter.tenant]
        if flow.waiters[0] is waiter:
            flow.waiters.popleft()
        else:
            flow.waiters.remove(waiter)
        self._length -= 1
        if served:
            self._now = max(self._now + waiter.cost / len(self._flows), flow.start)
            flow.start += waiter.cost
        if not flow.waiters:
            del self._flows[waiter.tenant]
            self._ends[waiter.tenant] = flow.start
            self._forget()

    def in_turn(self, most: int) -> list[W]:
        """Returns the first `most` waiters, roughly in the order in which they would go."""
        if len(self._flows) == 1:
            (flow,) = self._flows.values()
            return [waiter for waiter, _ in zip(flow.waiters, range(most), strict=False)]
        turns: list[tuple[float, int, W]] = []
        for flow in self._flows.values():
            start = flow.start
            for waiter, _ in zip(flow.waiters, range(most), strict=False):
                turns.append((start, waiter.sequence, waiter))
                start += waiter.cost
        return [waiter for _, _, waiter in sorted(turns)[:most]]

    def before(self, tenant: str, cost: float) -> list[W]:
        """Returns who would go before a newcomer of this tenant: its own, and of the others what a fair part lets."""
        own = self._flows.get(tenant)
        start = self._start(tenant, cost) if own is None else own.start
        start += sum(waiter.cost for waiter in own.waiters) if own is not None else 0.0
        found: list[W] = list(own.waiters) if own is not None else []
        for flow in self._flows.values():
            if flow is own:
                continue
            at = flow.start
            for waiter in flow.waiters:
                if at > start:
                    break
                found.append(waiter)
                at += waiter.cost
        return found

    def _start(self, tenant: str, cost: float) -> float:
        """Returns when a tenant that has nothing waiting starts: after what it had, and where the others are now."""
        return max(self._ends.get(tenant, 0.0), min(self._now, self._earliest() + cost))

    def _earliest(self) -> float:
        """Returns the start of who is next; now when nobody waits."""
        return min((flow.start for flow in self._flows.values()), default=self._now)

    def _first(self) -> _Flow[W]:
        flows = self._flows
        if len(flows) == 1:
            return next(iter(flows.values()))
        return min(flows.values(), key=_turn)

    def _forget(self) -> None:
        """Forgets tenants that start like anybody new; when nobody waits, all do."""
        if not self._flows:
            self._ends.clear()
            self._now = 0.0
        elif len(self._ends) > len(self._flows) + 16:
            earliest = min(self._now, self._earliest())
            self._ends = {tenant: end for tenant, end in self._ends.items() if end > earliest}


def _arrival(waiter: Queued) -> int:
    return waiter.sequence


def _turn(flow: _Flow[W]) -> tuple[float, int]:
    return flow.start, flow.waiters[0].sequence
