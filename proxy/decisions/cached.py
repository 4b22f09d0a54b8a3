"""Cached: answers that are kept in memory for requests that are equal, within bounds (`semantics.md` §6a).

Eviction is fair: what goes belongs to the owner that holds most bytes, and is what that one has not used for longest.
Who fills the cache empties his own part of it. Of equally large owners, the one whose part has not changed for longest
gives way, so that an owner with nothing finds room.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from itertools import count
from typing import Final

from proxy.ports import Found, StoredAnswer

MOST_ENTRIES: Final = 100_000
OVERHEAD: Final = 1024
"""Bytes that an entry takes beside its answer's own ones: objects, and places in tables."""
LARGEST_PART: Final = 8
"""An answer that takes more than this part of all room is not kept."""
MOST_EXPIRED: Final = 64
"""Entries that are looked for their end at once: keeping one answer never takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedStatistics:
    """A snapshot for `/status`."""

    entries: int
    owners: int
    bytes: int
    most_bytes: int
    evicted: int


class _Entry:
    """One answer; `seconds` is how long it was to be kept."""

    __slots__ = ("answer", "at", "owner", "seconds", "size")

    def __init__(self, answer: StoredAnswer, *, owner: str, seconds: float, at: float, size: int) -> None:
        self.answer = answer
        self.owner = owner
        self.seconds = seconds
        self.at = at
        self.size = size


class _Part:
    """What one owner holds; `names` stand in the order of their last use. `turn` tells its last change."""

    __slots__ = ("held", "names", "turn")

    def __init__(self) -> None:
        self.held = self.turn = 0
        self.names: dict[bytes, None] = {}


class _Already:
    """What needs no waiting, for those who would wait for it."""

    __slots__ = ("_found",)

    def __init__(self, found: Found | None) -> None:
        self._found = found

    def __await__(self) -> Generator[None, None, Found | None]:
        yield from ()
        return self._found


class Cached:
    """The answers of one cache. Implements `ports.CacheStore`."""

    __slots__ = (
        "_by_seconds", "_entries", "_evicted", "_largest", "_most_bytes", "_most_entries", "_parts", "_turns", "held",
    )  # fmt: skip

    def __init__(self, most_bytes: int, *, most_entries: int = MOST_ENTRIES) -> None:
        self._most_bytes = most_bytes
        self._most_entries = most_entries
        self._entries: dict[bytes, _Entry] = {}
        self._parts: dict[str, _Part] = {}
        self._by_seconds: dict[float, dict[bytes, None]] = {}
        """Names by how long they are kept: of those that are kept equally long, the first is due first."""
        self._largest: list[tuple[int, int, str]] = []
        """A heap of owners, largest first; what is said of a part that has changed since is out of date."""
        self._turns = count(1)
        self._evicted = 0
        self.held = 0

    def __repr__(self) -> str:
        return f"<Cached {len(self._entries)} answers of {len(self._parts)} owners, {self.held} bytes>"

    def find(self, name: bytes, now: float) -> Awaitable[Found | None]:
        """Returns what is kept under a name; who awaits it goes on at once."""
        return _Already(self.look(name, now))

    def look(self, name: bytes, now: float) -> Found | None:
        """Returns what is kept under a name."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        if _is_due(entry, now):
            self._forget(name)
            return None
        names = self._parts[entry.owner].names
        del names[name]
        names[name] = None
        return Found(answer=entry.answer, age=max(0.0, now - entry.at))

    def keep(self, name: bytes, answer: StoredAnswer, *, owner: str, seconds: float, now: float) -> None:
        """Keeps an answer in the place of what was kept under its name, as far as there is room."""
        self.expire(now)
        if name in self._entries:
            self._forget(name)
        size = answer.size + len(name) + len(owner) + OVERHEAD
        if seconds <= 0.0 or size > self._most_bytes // LARGEST_PART:
            return
        self._add(name, _Entry(answer, owner=owner, seconds=seconds, at=now, size=size))
        self._shrink()

    def reconfigure(self, most_bytes: int) -> None:
        """Takes another bound; what has no room in it goes."""
        self._most_bytes = most_bytes
        self._shrink()

    def expire(self, now: float) -> None:
        """Forgets some of what is due."""
        left = MOST_EXPIRED
        for seconds in list(self._by_seconds):
            while left and (names := self._by_seconds.get(seconds)):
                name = next(iter(names))
                if not _is_due(self._entries[name], now):
                    break
                self._forget(name)
                left -= 1

    def statistics(self) -> CachedStatistics:
        """Returns a snapshot."""
        return CachedStatistics(
            entries=len(self._entries),
            owners=len(self._parts),
            bytes=self.held,
            most_bytes=self._most_bytes,
            evicted=self._evicted,
        )

    def _add(self, name: bytes, entry: _Entry) -> None:
        part = self._parts.setdefault(entry.owner, _Part())
        part.names[name] = None
        self._entries[name] = entry
        self._by_seconds.setdefault(entry.seconds, {})[name] = None
        self._count(entry.owner, part, entry.size)

    def _forget(self, name: bytes) -> None:
        entry = self._entries.pop(name)
        same = self._by_seconds[entry.seconds]
        del same[name]
        if not same:
            del self._by_seconds[entry.seconds]
        part = self._parts[entry.owner]
        del part.names[name]
        self._count(entry.owner, part, -entry.size)

    def _count(self, owner: str, part: _Part, size: int) -> None:
        self.held += size
        part.held += size
        part.turn = next(self._turns)
        if not part.names:
            del self._parts[owner]
        elif len(self._largest) > 4 * len(self._parts) + 64:
            self._largest = [(-each.held, each.turn, name) for name, each in self._parts.items()]
            heapq.heapify(self._largest)
        else:
            heapq.heappush(self._largest, (-part.held, part.turn, owner))

    def _shrink(self) -> None:
        while self.held > self._most_bytes or len(self._entries) > self._most_entries:
            self._forget(next(iter(self._largest_part().names)))
            self._evicted += 1

    def _largest_part(self) -> _Part:
        while True:
            _, turn, owner = self._largest[0]
            part = self._parts.get(owner)
            if part is not None and part.turn == turn:
                return part
            heapq.heappop(self._largest)


def _is_due(entry: _Entry, now: float) -> bool:
    return entry.at + entry.seconds <= now
