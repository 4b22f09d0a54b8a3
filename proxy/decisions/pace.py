"""Pace: how long a target takes to begin its answers, and the limit that follows it (`semantics.md` §5, last line).

Owns a histogram of the times from the wire to the head of answers that are no streams, over the latest calls: two
windows that take turns, so that the older one is forgotten as a whole. Buckets grow by a fixed ratio; a call costs one
increment, and memory never grows.

A limit that follows what it lets through can strangle a provider: of slow calls only the cut ends would be seen. So a
call that was cut off counts above its limit, cuts double the next limits until an answer is as quick as usual, and
nothing is learned from failures, which are often quick.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from operator import add

from proxy.exchange import Attempt, PhaseLimits
from proxy.outcome import OutcomeKind

BUCKETS_PER_DOUBLING = 4
LEAST_SECONDS = 0.001
BOUNDS: tuple[float, ...] = tuple(
    LEAST_SECONDS * 2.0 ** (n / BUCKETS_PER_DOUBLING) for n in range(22 * BUCKETS_PER_DOUBLING + 1)
)
"""Inclusive upper bounds of the buckets, from 1 ms to 70 minutes, each 19 % above the one before it."""

FEWEST_CALLS = 50
"""Below this many calls the fixed limit holds: a 95th percentile of fewer is a guess at the slowest two."""
WINDOW_SECONDS = 300.0
WINDOW_CALLS = 500
"""A window ends by time or by calls: a busy target that slows down has moved the percentile after 50 calls."""
MOST_DOUBLINGS = 2
"""Back-off of a limit that has just failed, as of TCP's timer (RFC 6298 §5.5); bounded, because a provider that hangs
looks the same."""


class Pace:
    """The live histogram of one target."""

    __slots__ = ("_began_at", "_calls", "_counts", "_cuts", "_earlier", "_earlier_calls")

    def __init__(self) -> None:
        self._began_at = 0.0
        self._counts, self._earlier = _empty(), _empty()
        self._calls = self._earlier_calls = 0
        self._cuts = 0

    def __repr__(self) -> str:
        return f"<Pace of {self._calls + self._earlier_calls} calls>"

    def answered(self, seconds: float, now: float) -> None:
        """Counts a call whose head came after `seconds`; one that was no slower than usual ends a row of cuts."""
        self._count(bisect_left(BOUNDS, seconds), now)
        if self._cuts and ((p95 := self.p95(now)) is None or seconds <= p95):
            self._cuts = 0

    def cut(self, limit: float, now: float) -> None:
        """Counts a call that its limit of so many seconds ended: it would have taken longer, so it counts as longer."""
        self._count(min(bisect_left(BOUNDS, limit) + 1, len(BOUNDS)), now)
        self._cuts += 1

    def calls(self, now: float) -> int:
        """Returns how many calls are remembered."""
        self._age(now)
        return self._calls + self._earlier_calls

    def p95(self, now: float) -> float | None:
        """Returns the 95th percentile in seconds, at most one bucket too high; None while too few calls are known."""
        calls = self.calls(now)
        if calls < FEWEST_CALLS:
            return None
        rank = -(-calls * 95 // 100)
        bucket = bisect_left(list(accumulate(map(add, self._counts, self._earlier))), rank)
        return BOUNDS[min(bucket, len(BOUNDS) - 1)]

    def limit(self, now: float, *, factor: float, plus: float, most: float) -> float:
        """Returns p95 × factor + plus in seconds, twice or four times that after cuts; `most` at most.

        `most` also holds while too few calls are known.
        """
        p95 = self.p95(now)
        if p95 is None:
            return most
        return min(most, (p95 * factor + plus) * (1 << min(self._cuts, MOST_DOUBLINGS)))

    def _count(self, bucket: int, now: float) -> None:
        self._age(now)
        self._counts[bucket] += 1
        self._calls += 1

    def _age(self, now: float) -> None:
        """Lets the windows take turns: nothing is remembered for longer than two of them."""
        windows = (now - self._began_at) // WINDOW_SECONDS
        if windows >= 1:
            self._began_at += windows * WINDOW_SECONDS
        elif self._calls >= WINDOW_CALLS:
            self._began_at = now
        else:
            return
        self._earlier, self._earlier_calls = self._counts, self._calls
        self._counts, self._calls = _empty(), 0
        if windows >= 2:
            self._earlier, self._earlier_calls = _empty(), 0


class PacedLimits:
    """One tier's limits at a target whose pace its `answer` limit follows; `limits.answer` is the fixed one."""

    __slots__ = ("_factor", "_latest", "_limits", "_pace", "_plus")

    def __init__(self, limits: PhaseLimits, pace: Pace, *, factor: float, plus: float) -> None:
        self._limits = self._latest = limits
        self._pace = pace
        self._factor = factor
        self._plus = plus

    def __repr__(self) -> str:
        return f"<PacedLimits p95 × {self._factor:g} + {self._plus:g} s of {self._pace!r}>"

    def limits(self, now: float) -> PhaseLimits:
        """Returns the limits of an attempt that begins now."""
        fixed = self._limits
        answer = self._pace.limit(now, factor=self._factor, plus=self._plus, most=fixed.answer)
        if answer != self._latest.answer:
            self._latest = PhaseLimits(
                connect=fixed.connect,
                first_byte=fixed.first_byte,
                answer=answer,
                idle=fixed.idle,
                stream=fixed.stream,
            )
        return self._latest

    def learn(self, attempt: Attempt, now: float) -> None:
        """Takes the end of an attempt that began with these limits; only answers and cuts teach anything."""
        if attempt.head_at:
            if attempt.status < 400:
                self._pace.answered(attempt.head_at - attempt.connected_at, now)
        elif attempt.kind is OutcomeKind.ANSWER_TIMEOUT:
            self._pace.cut(attempt.limits.answer, now)


def _empty() -> list[int]:
    return [0] * (len(BOUNDS) + 1)
