"""Room for clients: how many may be here at once, and who goes so that one more can come.

Those go first that never asked anything, then those that have waited longest since their last answer, then half heads,
then those that do not take their answer. Who has a request here, or bytes of one on the way to us, stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Final, Generic, Protocol, TypeVar

Rank = tuple[int, float]
"""A kind, and since when; the lowest goes first."""
MOST_CONNECTIONS: Final = 1 << 13
"""Some 6 KiB each."""
LOOK_AGAIN_SECONDS: Final = 0.1
"""For so long nobody looks again once nobody was found: all may be busy, and one comes for each who leaves."""
_PART: Final = 64
_FEWEST: Final = 8


class Guest(Protocol):
    """What is asked of a connection."""

    @property
    def unread(self) -> bool:
        """Whether bytes of it have come that nobody has read yet."""
        ...

    def rank(self, now: float) -> Rank | None:
        """Returns where it stands among those that may go; None: it stays."""
        ...

    def end_now(self) -> None:
        """Ends it."""
        ...


G = TypeVar("G", bound=Guest)


class Room(Generic[G]):
    """Those who are here. Looking for who goes costs time that grows with them: it is done for several at once."""

    def __init__(self, most: int, *, now: Callable[[], float]) -> None:
        self.most = most
        self.on_leave: Callable[[], None] = lambda: None
        """Called when one has left."""
        self.sent_away = 0
        self._now = now
        self._here: dict[G, None] = {}
        self._next: list[tuple[Rank, G]] = []
        self._look_at = float("-inf")

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[G]:
        return iter(self._here)

    def append(self, one: G) -> None:
        """One has come."""
        self._here[one] = None

    def remove(self, one: G) -> None:
        """One has left."""
        self._here.pop(one, None)
        self.on_leave()

    def has_place(self, coming: int = 0) -> bool:
        """Whether one more may come beside those on their way in."""
        return len(self._here) + coming < self.most

    def relieve(self) -> bool:
        """Ends the connection that is the first to go; returns False when all stay."""
        now = self._now()
        if self._end_next(now):
            return True
        if now < self._look_at:
            return False
        self._next = self._first(now)
        if self._end_next(now):
            return True
        self._look_at = now + LOOK_AGAIN_SECONDS
        return False

    def _end_next(self, now: float) -> bool:
        """Ends the first of those that were chosen and may still go."""
        while self._next:
            rank, one = self._next.pop()
            if one in self._here and one.rank(now) == rank and not one.unread:
                del self._here[one]
                self.sent_away += 1
                one.end_now()
                return True
        return False

    def _first(self, now: float) -> list[tuple[Rank, G]]:
        """Returns some of those who go first, of one kind only, the very first at the end."""
        ranked = [(rank, one) for one in self._here if (rank := one.rank(now)) is not None]
        kind = min((rank[0] for rank, _ in ranked), default=0)
        some = max(_FEWEST, self.most // _PART)
        return nsmallest(some, (pair for pair in ranked if pair[0][0] == kind), key=lambda pair: pair[0])[::-1]
