"""Which faults meet which request: pure, told the time and the random numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from proxy.simulation.provider.faults import Fault, FaultKind, Plan, Selector


class FaultSchedule:
    """A fault list from the moment it was set, with the counts that `first` and `every` need.

    Times are those of the clock that `set_at` was read from.
    """

    __slots__ = ("faults", "_set_at", "_matched")

    def __init__(self, faults: Iterable[Fault], *, provider: str, set_at: float) -> None:
        self.faults = tuple(fault for fault in faults if fault.select.provider in (None, provider))
        self._set_at = set_at
        self._matched = [0] * len(self.faults)

    def __repr__(self) -> str:
        return f"FaultSchedule({len(self.faults)} faults, matched={self._matched})"

    def plan(self, *, now: float, model: str | None, key: str | None, rng: random.Random) -> Plan:
        """Returns what happens to the next request; counts it, and draws once for each rate in reach."""
        chosen = [
            fault
            for index, fault in enumerate(self.faults)
            if fault.kind is not FaultKind.REFUSE
            and fault.select.in_window(now, self._set_at)
            and _concerns(fault.select, model, key)
            and self._counted(index, fault.select)
            and (fault.select.rate is None or rng.random() < fault.select.rate)
        ]
        return combine(chosen)

    def _counted(self, index: int, select: Selector) -> bool:
        self._matched[index] += 1
        number = self._matched[index]
        return (select.first is None or number <= select.first) and (select.every is None or number % select.every == 0)

    def refuses(self, now: float) -> bool:
        """Tells whether connections are refused at `now`."""
        return any(fault.select.in_window(now, self._set_at) for fault in self._refusals())

    def next_change(self, now: float) -> float | None:
        """Returns when `refuses` can change next, or None when it cannot."""
        edges = (edge for fault in self._refusals() for edge in fault.select.edges(self._set_at))
        return min((edge for edge in edges if now < edge < math.inf), default=None)

    def _refusals(self) -> Iterable[Fault]:
        return (fault for fault in self.faults if fault.kind is FaultKind.REFUSE)


def combine(faults: Sequence[Fault]) -> Plan:
    """Returns one plan: `slow` adds up, the first `drip` and the first of all other faults win."""
    drips = (fault.delay_seconds for fault in faults if fault.kind is FaultKind.DRIP)
    ends = (fault for fault in faults if fault.kind not in (FaultKind.SLOW, FaultKind.DRIP))
    plan_end = next(ends, None)
    return Plan(
        extra_seconds=sum(fault.delay_seconds for fault in faults if fault.kind is FaultKind.SLOW),
        drip_seconds=next(drips, None),
        fault=plan_end,
    )


def _concerns(select: Selector, model: str | None, key: str | None) -> bool:
    right_model = select.model is None or (model is not None and fnmatchcase(model, select.model))
    return right_model and select.key in (None, key)
