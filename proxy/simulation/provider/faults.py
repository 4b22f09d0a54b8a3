"""What can go wrong, and for which requests: facts only; `grammar` reads them, `schedule` applies them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class FaultKind(StrEnum):
    """The ways in which a simulated provider fails; each is also the key that names it in a script."""

    STATUS = "status"
    RESET = "reset"
    SILENCE = "silence"
    CUT = "cut"
    ERROR_IN_200 = "error-in-200"
    DRIP = "drip"
    SLOW = "slow"
    REFUSE = "refuse"
    LOST = "lost"


class CutBy(StrEnum):
    """How a cut answer ends: connection closed, reset, or ended as if it were complete."""

    CLOSE = "close"
    RESET = "reset"
    END = "end"


class Place(StrEnum):
    """Where in a stream the error event stands: before the content, or after half of it."""

    BEFORE = "before"
    AFTER = "after"


class RetryForm(StrEnum):
    """The headers that can tell a caller when to come back."""

    SECONDS = "seconds"
    FRACTION = "fraction"
    DATE = "date"
    MS = "ms"
    RESET = "reset"
    RESET_SECONDS = "reset-seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryHint:
    """How many seconds to wait, and in which headers that is said."""

    seconds: float
    forms: tuple[RetryForm, ...] = (RetryForm.SECONDS,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """The requests a fault meets: all conditions that are given must hold.

    `from_seconds`..`to_seconds` count from the moment the fault list was set; `model` may hold `*`;
    `first` and `every` count the requests that fulfil the other conditions; `rate` is drawn last.
    """

    from_seconds: float = 0.0
    to_seconds: float | None = None
    provider: str | None = None
    model: str | None = None
    key: str | None = None
    first: int | None = None
    every: int | None = None
    rate: float | None = None

    def edges(self, set_at: float) -> tuple[float, float]:
        """Returns when the time window opens and when it closes, for a list set at `set_at`."""
        return set_at + self.from_seconds, math.inf if self.to_seconds is None else set_at + self.to_seconds

    def in_window(self, now: float, set_at: float) -> bool:
        """Tells whether the time window is open; compares with the very numbers that `edges` returns."""
        opens, closes = self.edges(set_at)
        return opens <= now < closes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong; the fields that its kind does not use keep their defaults."""

    kind: FaultKind
    status: int = 0
    code: str | None = None
    retry: RetryHint | None = None
    delay_seconds: float = 0.0
    events: int = 0
    by: CutBy = CutBy.CLOSE
    place: Place = Place.BEFORE
    select: Selector = field(default_factory=Selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens to one request: waits add up, one drip, and at most one fault that decides the end."""

    extra_seconds: float = 0.0
    drip_seconds: float | None = None
    fault: Fault | None = None

    @property
    def name(self) -> str | None:
        """The kinds that take part, such as `slow+status`; None for a request that nothing befalls."""
        parts = [
            *([FaultKind.SLOW] if self.extra_seconds else []),
            *([FaultKind.DRIP] if self.drip_seconds is not None else []),
            *([self.fault.kind] if self.fault is not None else []),
        ]
        return "+".join(parts) or None
