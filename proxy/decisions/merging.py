"""Merging: when requests that may travel together go, and how many of them (`semantics.md` §6a).

Owns the rule by which they wait for each other. Who may travel with whom is a lane's name; what an answer means for
each is read elsewhere (`dialects/batchable`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final, Generic, Literal, TypeVar

MOST_TOKENS: Final = 300_000
"""What OpenAI takes in one call at most; a text has no more tokens than bytes, so these are counted."""
MOST_BYTES: Final = 1024 * 1024
"""Of the bodies that are merged into one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """`merge` of a route: the first of several requests waits `window` seconds for others, `max` inputs are one call.

    `inputs` and `results` name the fields of request and answer where the path is not a known one. `scope`: whose
    requests may travel together.
    """

    window: float = 0.005
    max: int = 8
    inputs: str | None = None
    results: str | None = None
    scope: Literal["tenant", "route", "credential"] = "tenant"


class Parcel:
    """What one request brings: how many inputs, a bound of their tokens, and bytes. Compared by identity."""

    __slots__ = ("inputs", "size", "tokens")

    def __init__(self, *, inputs: int, tokens: int = 0, size: int = 0) -> None:
        self.inputs = inputs
        self.tokens = tokens
        self.size = size

    def __repr__(self) -> str:
        return f"<Parcel of {self.inputs}>"


P = TypeVar("P", bound=Parcel)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeBounds:
    """How long the first one waits (seconds), and what one call may carry."""

    window: float
    inputs: int
    tokens: int = MOST_TOKENS
    size: int = MOST_BYTES


class Batch(Generic[P]):
    """Requests that travel together, or one that travels alone. `begun`: its waits in admission are over."""

    __slots__ = ("begun", "ended", "parcels")

    def __init__(self, parcels: list[P]) -> None:
        self.parcels = parcels
        self.begun = self.ended = False

    def __repr__(self) -> str:
        return f"<Batch of {len(self.parcels)}{', begun' * self.begun}{', ended' * self.ended}>"


class Lane(Generic[P]):
    """Requests that may travel together: who waits, who is under way, and when it was last asked.

    A request that finds its lane quiet goes at once: nobody waits, no call is under way, and none came within the last
    window. Else the first one waits for others, at most a window; while a call of the lane waits in admission, what
    gathers behind it goes on gathering, for it would wait there anyway, and may travel with it when it begins. A full
    batch goes at once.
    """

    __slots__ = ("_ahead", "_calls", "_due", "_inputs", "_last", "_size", "_tokens", "waiting")

    def __init__(self) -> None:
        self.waiting: list[P] = []
        self._inputs = self._tokens = self._size = 0
        self._due = inf
        self._last = -inf
        self._calls = self._ahead = 0

    def __repr__(self) -> str:
        return f"<Lane {len(self.waiting)} waiting, {self._calls} under way, {self._ahead} of them not begun>"

    @property
    def due(self) -> float | None:
        """When those who wait go, if nobody comes; None while nobody waits, or a call before them waits itself."""
        return self._due if self.waiting and not self._ahead else None

    @property
    def busy(self) -> bool:
        """Whether anybody waits or is under way."""
        return bool(self.waiting or self._calls)

    def is_quiet(self, now: float, window: float) -> bool:
        """Whether a request that comes now has nobody to wait for."""
        return not self.busy and now - self._last > window

    def join(self, parcel: P, bounds: MergeBounds, now: float) -> list[Batch[P]]:
        """Takes a request; returns what goes now, in this order."""
        quiet, self._last = self.is_quiet(now, bounds.window), now
        if quiet:
            return [self._sent([parcel])]
        going = []
        if self.waiting and not self._fits(parcel, bounds):
            going.append(self.flush())
        if not self.waiting:
            self._due = now + bounds.window
        self.waiting.append(parcel)
        self._count(parcel, 1)
        if self._inputs >= bounds.inputs or self._tokens >= bounds.tokens or self._size >= bounds.size:
            going.append(self.flush())
        return going

    def leave(self, parcel: P) -> None:
        """Takes a waiting request out."""
        self.waiting.remove(parcel)
        self._count(parcel, -1)

    def overdue(self, now: float) -> Batch[P] | None:
        """Returns those whose window has passed, if they go now."""
        return self.flush() if self.due is not None and now >= self._due else None

    def flush(self) -> Batch[P]:
        """Lets those who wait go, whatever they wait for."""
        parcels, self.waiting = self.waiting, []
        self._inputs = self._tokens = self._size = 0
        return self._sent(parcels)

    def fitting(self, batch: Batch[P], bounds: MergeBounds) -> list[P]:
        """Returns those who wait, as far as they fit into a call that has waited too; in their order."""
        whole = Parcel(
            inputs=sum(each.inputs for each in batch.parcels),
            tokens=sum(each.tokens for each in batch.parcels),
            size=sum(each.size for each in batch.parcels),
        )
        more: list[P] = []
        for each in self.waiting:
            whole.inputs, whole.tokens, whole.size = _sum(whole, each)
            if whole.inputs > bounds.inputs or whole.tokens > bounds.tokens or whole.size > bounds.size:
                break
            more.append(each)
        return more

    def take_along(self, batch: Batch[P], more: list[P]) -> None:
        """Lets these, who wait, travel with a call that has not begun."""
        for each in more:
            self.leave(each)
        batch.parcels += more

    def began(self, batch: Batch[P]) -> None:
        """A call of the lane does not wait in admission any more; may be told more than once."""
        if not batch.begun:
            batch.begun = True
            self._ahead -= 1

    def ended(self, batch: Batch[P]) -> None:
        """A call of the lane has ended; may be told more than once."""
        self.began(batch)
        if not batch.ended:
            batch.ended = True
            self._calls -= 1

    def _sent(self, parcels: list[P]) -> Batch[P]:
        self._calls += 1
        self._ahead += 1
        return Batch(parcels)

    def _fits(self, parcel: P, bounds: MergeBounds) -> bool:
        return (
            self._inputs + parcel.inputs <= bounds.inputs
            and self._tokens + parcel.tokens <= bounds.tokens
            and self._size + parcel.size <= bounds.size
        )

    def _count(self, parcel: P, sign: int) -> None:
        self._inputs += sign * parcel.inputs
        self._tokens += sign * parcel.tokens
        self._size += sign * parcel.size


def _sum(whole: Parcel, part: Parcel) -> tuple[int, int, int]:
    return whole.inputs + part.inputs, whole.tokens + part.tokens, whole.size + part.size
