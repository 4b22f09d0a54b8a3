"""One timer per attempt for all its phases; when a limit passes, it ends the connection and says which limit it was."""

from __future__ import annotations

from collections.abc import Callable

from proxy.clock import Clock, Timer
from proxy.outcome import OutcomeKind


class Watch:
    """Ends what `on_expiry` ends when `due` passes. Re-arming to a later time costs an assignment."""

    __slots__ = ("_clock", "_on_expiry", "_timer", "_timer_at", "due", "expired", "kind")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._on_expiry: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self.due = 0.0
        self.kind = OutcomeKind.FIRST_BYTE_TIMEOUT
        self.expired: OutcomeKind | None = None

    def guard(self, on_expiry: Callable[[], None]) -> None:
        """Sets what ends the connection."""
        self._on_expiry = on_expiry

    def arm(self, due: float, kind: OutcomeKind, *, deadline_at: float = float("inf")) -> None:
        """Starts a phase that must end by `due`; the exchange's deadline binds it too."""
        if deadline_at < due:
            due, kind = deadline_at, OutcomeKind.TOTAL_TIMEOUT
        self.due = due
        self.kind = kind
        if self._timer is None or due < self._timer_at:
            self._start(due)

    def stop(self) -> None:
        """Watches no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._clock.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._clock.now() < self.due:
            self._start(self.due)
            return
        self.expired = self.kind
        if self._on_expiry is not None:
            self._on_expiry()
