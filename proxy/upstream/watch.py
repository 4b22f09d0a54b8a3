"""One timer per connection for all phases of all its attempts; says which limit passed, and ends the connection."""

from __future__ import annotations

from collections.abc import Callable

from proxy.clock import Clock, Timer
from proxy.outcome import OutcomeKind


class Watch:
    """Ends what it guards when `due` passes. Re-arming to a later time costs an assignment.

    Between attempts the timer is left to run: the next attempt's limit is later, so most attempts set no timer at all.
    """

    __slots__ = ("_clock", "_on_expiry", "_timer", "_timer_at", "due", "expired", "kind")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._on_expiry: Callable[[], None] | None = None
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self.due = 0.0
        self.kind = OutcomeKind.FIRST_BYTE_TIMEOUT
        self.expired: OutcomeKind | None = None

    def __repr__(self) -> str:
        return f"<Watch {self.kind} {'guards' if self._on_expiry else 'rests'}>"

    def guard(self, on_expiry: Callable[[], None]) -> None:
        """Begins an attempt; `on_expiry` ends its connection."""
        self._on_expiry = on_expiry
        self.expired = None

    def arm(self, due: float, kind: OutcomeKind, *, deadline_at: float = float("inf")) -> None:
        """Starts a phase that must end by `due`; the exchange's deadline binds it too."""
        if deadline_at < due:
            due, kind = deadline_at, OutcomeKind.TOTAL_TIMEOUT
        self.due = due
        self.kind = kind
        if self._timer is None or due < self._timer_at:
            self._start(due)

    def rest(self) -> None:
        """The attempt has ended: nothing is guarded, and nothing of it is kept alive."""
        self._on_expiry = None

    def cancel(self) -> None:
        """The connection has ended."""
        self._on_expiry = None
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
        if self._on_expiry is None:
            return
        if self._clock.now() < self.due:
            self._start(self.due)
            return
        self.expired = self.kind
        self._on_expiry()
