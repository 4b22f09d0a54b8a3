"""Permits: leave for one attempt, and everything that was taken for it (`semantics.md` §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING

from proxy.decisions.keys import Key
from proxy.decisions.places import Places, Reserve
from proxy.decisions.quota import Bucket

if TYPE_CHECKING:
    from proxy.decisions.queues import Line


class Permit:
    """Leave for one attempt. `release` gives everything back, once, however often it is called.

    `taken_at` is infinity for one that came back unused. `tokens` were reserved; `settle` says what was used.
    """

    __slots__ = (
        "_requests", "_reserves", "_returned", "_spent", "_tokens", "_unasked", "key", "klass", "limits", "line",
        "released", "taken_at", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        line: Line,
        key: Key | None,
        now: float,
        returned: Callable[[Permit, float], None],
        *,
        klass: int = 1,
        tokens: float = 0.0,
    ) -> None:
        self._returned = returned
        self.line = line
        limits, requests, buckets = line.limits, line.requests, line.tokens
        if key is not None:
            if key.places is not None:
                limits = (*limits, key.places)
            if key.metered:
                requests, buckets = (*requests, *key.requests), (*buckets, *key.tokens)
        if line.groups[klass]:
            self._reserves: Sequence[Reserve] = self._take_places(limits, klass)
        else:
            for places in limits:
                places.used += 1
            self._reserves = ()
        self.limits: tuple[Places, ...] = limits
        self.key = key
        self.klass = klass
        self.tokens = self._spent = tokens
        self._unasked = False
        self.taken_at = now
        self.released = False
        line.room.starts(klass)
        self._requests, self._tokens = requests, buckets
        if requests or buckets:
            self._take_quota(now)

    def settle(self, *, request: bool, tokens: float) -> None:
        """Says what the call has used: whether it counts as a request, and how many tokens; before `release`."""
        self._unasked = not request
        self._spent = tokens

    @property
    def unused(self) -> float:
        """Tokens that come back at its release; below zero: that are paid then."""
        return self.tokens - self._spent

    def release(self, now: float) -> None:
        """Gives the places back, settles the quotas, and lets the next waiters go."""
        if self.released:
            return
        self.released = True
        for places in self.limits:
            places.used -= 1
        for reserve in self._reserves:
            reserve.used -= 1
        self.line.room.ends(self.klass, now)
        if self._requests or self._tokens:
            self._settle_quota(now)
        self._returned(self, now)

    def give_back(self, now: float) -> None:
        """Releases what was never used: how long it was held tells nothing."""
        self.taken_at = inf
        self.settle(request=False, tokens=0.0)
        self.release(now)

    def _take_places(self, limits: tuple[Places, ...], klass: int) -> Sequence[Reserve]:
        """Takes a place in each limit; returns the reserves that some of them came from."""
        groups = self.line.groups[klass]
        return [reserve for places in limits if (reserve := places.take(groups)) is not None]

    def _take_quota(self, now: float) -> None:
        for bucket in self._requests:
            bucket.take(1.0, now)
        for bucket in self._tokens:
            bucket.take(self.tokens, now)
        if self.line.observes:
            for bucket in self.buckets:
                bucket.forgive(now)

    def _settle_quota(self, now: float) -> None:
        if self._unasked:
            for bucket in self._requests:
                bucket.give(1.0, now)
        if self._spent != self.tokens:
            for bucket in self._tokens:
                bucket.give(self.tokens - self._spent, now)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Returns every bucket that it took from."""
        return (*self._requests, *self._tokens)

    def __repr__(self) -> str:
        key = f" with key {self.key.id}" if self.key is not None else ""
        return f"<Permit{key} of {self.line.room.name}{' released' * self.released}>"
