"""Adaptive limit: how many calls at once a provider takes, found under the share (`mission.md` L9).

Owns one size. A refusal (429, 529) multiplies it down, at most once per typical latency: the refusals of calls that
were already on their way say nothing new. Answers add to it, about one place per `size` of them, but only where the
limit was really used. Small limits go by whole places, or they would swing between their extremes.

The size at which the provider refused last is remembered as the ceiling. Below it growth is as quick as said; the step
onto it waits for as many answers as `patience` says, which doubles with each such step that is refused again. So a
limit that stands still costs less than one refusal in a hundred calls, and one that was lifted is found after a
single step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

USED = 0.8
"""A call that began with less of the limit in use than this part says nothing about a higher limit."""
FIRST_LATENCY_SECONDS = 1.0
"""Taken for typical while no answer is known."""
LATENCIES = 21
FEWEST_ANSWERS = 8
MOST_ANSWERS = 128
"""Between two steps onto the ceiling: what is wasted by probing stays below one call in a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveSettings:
    """`decrease`: the factor (0-1) after a refusal; `min`: so many calls at once are always tried."""

    decrease: float = 0.8
    min: int = 1


class AdaptiveLimit:
    """The limit of one provider on this instance: `size` calls at once, never above the share.

    Until the provider refuses something it is the share itself. A new one holds nothing until it is configured.
    """

    __slots__ = (
        "_answers",
        "_ceiling",
        "_latencies",
        "_limit",
        "_lowered_at",
        "_patience",
        "_settings",
        "share",
        "size",
    )

    def __init__(self, settings: AdaptiveSettings) -> None:
        self.share = self.size = 0
        self._settings = settings
        self._limit: int | None = None
        self._ceiling: int | None = None
        self._patience = FEWEST_ANSWERS
        self._answers = 0
        self._lowered_at = -inf
        self._latencies: deque[float] = deque(maxlen=LATENCIES)

    def __repr__(self) -> str:
        return f"<AdaptiveLimit {self.size}/{self.share}, ceiling {self._ceiling}>"

    @property
    def typical_seconds(self) -> float:
        """How long calls take: the median of the last answers, which a few long streams do not move."""
        known = sorted(self._latencies)
        return known[len(known) // 2] if known else FIRST_LATENCY_SECONDS

    @property
    def lowered(self) -> bool:
        """Whether refusals hold it down."""
        return self._limit is not None

    def reconfigure(self, settings: AdaptiveSettings, share: int) -> None:
        """Takes new settings and a new share (calls at once). What was learned stays, under a lower share too."""
        self._settings = settings
        self.share = share
        self._settle()

    def refused(self, now: float) -> bool:
        """Takes a 429 or 529 of the provider; returns whether the size changed."""
        if now - self._lowered_at < self.typical_seconds:
            return False
        before = self.size
        self._lowered_at = now
        self._answers = 0
        self._limit = min(int(before * self._settings.decrease), before - 1)
        self._settle()
        if self.size == before:
            self._forget_ceiling()
            return False
        probed = self._ceiling is not None and before >= self._ceiling
        self._patience = min(self._patience * 2, MOST_ANSWERS) if probed else FEWEST_ANSWERS
        self._ceiling = before
        return True

    def succeeded(self, seconds: float, in_use: int, now: float) -> bool:
        """Takes a call of so many seconds that was answered; returns whether the size changed.

        `in_use` counts the calls in flight when it began, itself included.
        """
        self._latencies.append(seconds)
        if self._limit is None or in_use < USED * self.size or now - seconds < self._lowered_at:
            return False
        self._answers += 1
        return self._answers >= self._needed() and self._grow()

    def _needed(self) -> int:
        """Returns how many answers make one more place."""
        return max(self.size, self._patience) if self.size + 1 == self._ceiling else self.size

    def _grow(self) -> bool:
        before = self.size
        self._answers = 0
        if self._ceiling is not None and before >= self._ceiling:
            self._forget_ceiling()
        if self._limit is not None and self._limit <= self.share:
            self._limit = before + 1 if before < self.share else None
        self._settle()
        return self.size != before

    def _forget_ceiling(self) -> None:
        self._ceiling = None
        self._patience = FEWEST_ANSWERS

    def _settle(self) -> None:
        """Puts the size between `min` and the share."""
        if self._limit is not None:
            self._limit = max(self._limit, self._settings.min)
        self.size = self.share if self._limit is None else min(self._limit, self.share)
