"""Ramp: the ceiling under which a target comes back (`semantics.md` §1).

Owns one limit of admission that stands while its breaker is half-open and for ten seconds after it has closed: N
instances that find a provider healthy again must not return with all their calls at once. It stands in half-open
already, so that probes that still run when the breaker closes are counted.
"""

from __future__ import annotations

from math import inf

from proxy.decisions.places import Places

RAMP_SECONDS = 10.0
"""From the probe count to the full share (`semantics.md` §1, Ramp)."""


class Ramp:
    """The ceiling of one breaker: `places` binds its target's calls while `size` is a number.

    `since` is when it began to rise, infinity while the probes decide, and None when there is nothing to move.
    """

    __slots__ = ("_first", "_share", "places", "since", "size")

    def __init__(self) -> None:
        self.places = Places("breaker", 0)
        self.size: int | None = None
        self.since: float | None = None
        self._first = self._share = 0

    def __repr__(self) -> str:
        return f"<Ramp {'off' if self.size is None else f'{self.places.used}/{self.size}'}, share {self._share}>"

    def reconfigure(self, *, first: int, share: int) -> None:
        """Takes where it begins (the probes) and ends; a ramp that is under way goes on by the new numbers."""
        self._first = first
        self._share = share

    def hold(self) -> None:
        """The probes decide: no more calls than they are."""
        self.since = inf

    def rise(self, now: float) -> None:
        """The breaker has closed."""
        self.since = now

    def end(self) -> None:
        """The breaker has opened: nobody goes anyway."""
        self.since = None

    def advance(self, now: float) -> bool:
        """Moves the ceiling to where time has brought it; returns whether it appeared, moved or went."""
        size = self._due(now)
        if size == self.size:
            return False
        self.size = size
        if size is not None:
            self.places.reconfigure(size)
        return True

    def _due(self, now: float) -> int | None:
        if self.since is None:
            return None
        seconds = max(now - self.since, 0.0)
        if seconds >= RAMP_SECONDS:
            self.since = None
            return None
        if self._share <= self._first:
            return None
        return self._first + int((self._share - self._first) * seconds / RAMP_SECONDS)
