"""Spread: which of several equals is asked first, and who next if that one cannot (`policy.md`, tiers).

By what is left, the equal with the largest part left goes first: so each carries load in proportion to what it can
give, whatever its size. By weight, each gets its part of the calls, as long as it can go at all. Who can not go now
stands last either way. Ties take turns by smooth weighted choice: nothing is left to chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.outcome import Outcome


class Spread:
    """The order of equals, call by call; `weights` are positive, one for each."""

    __slots__ = ("_by_weight", "_due", "_weights")

    def __init__(self, weights: Sequence[float], *, by_weight: bool = False) -> None:
        self._weights = tuple(weights)
        self._by_weight = by_weight
        self._due = [0.0] * len(self._weights)

    def __repr__(self) -> str:
        return f"<Spread by {'weight' if self._by_weight else 'what is left'}, {self._weights}>"

    def order(self, parts: Sequence[float]) -> list[int]:
        """Returns all equals, as indices, in the order in which they are to be asked now.

        `parts` says what is left of each (0-1); 0: it cannot go now.
        """
        left = [float(part > 0) for part in parts] if self._by_weight else parts
        most = max(left)
        first = self._turn([index for index, part in enumerate(left) if part == most])
        rest = (index for index in range(len(left)) if index != first)
        return [first, *sorted(rest, key=lambda index: (-left[index], -self._due[index]))]

    def _turn(self, ties: Iterable[int]) -> int:
        """Returns whose turn it is among those who are alike, and notes it."""
        due, total = self._due, 0.0
        first = -1
        for index in ties:
            weight = self._weights[index]
            total += weight
            due[index] += weight
            if first < 0 or due[index] > due[first]:
                first = index
        due[first] -= total
        return first


def soonest(told: Outcome, other: Outcome) -> None:
    """Of two equals that refused, lets the caller know when the first of them can go again."""
    if told.local and other.local and told.retry_after is not None and other.retry_after is not None:
        told.retry_after = min(told.retry_after, other.retry_after)
