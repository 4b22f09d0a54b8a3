"""What is told of a breaker: its state, its changes, a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BreakerState(StrEnum):
    """The field's three states."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChange:
    """One transition, and why: failure_ratio, consecutive, slow, probe_failed, probe_neutral, probes_ok, waited."""

    old: BreakerState
    new: BreakerState
    why: str
    open_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatistics:
    """A snapshot for `/status` and gauges; `ceiling` is the most calls that may run now, None when nothing ramps."""

    state: BreakerState
    calls: int
    failures: int
    slow: int
    consecutive: int
    probes_running: int
    retry_after: float
    generation: int
    ceiling: int | None
