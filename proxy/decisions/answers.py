"""Answers: what is kept in memory of requests that have ended, and how much of those under way (`semantics.md` §6a).

One for the process. Bounded in bytes and in names: the oldest answers give way to newer ones, and are then known to
have been given; the oldest names are forgotten only when there are too many of them. What is under way is counted in
the same bytes, and never gives way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.ports import Fate, Remembered, StoredAnswer

MOST_NAMES: Final = 100_000
"""A name without its answer takes some 400 bytes."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of kept answers and of those that are being recorded, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswersStatistics:
    """A snapshot for `/status`: names remembered, answers among them, those whose fate is not known; bytes."""

    names: int
    answers: int
    unknown: int
    bytes: int
    most_bytes: int


class _Entry:
    """One name; `until` is when it is forgotten, `seconds` how long it was to be kept."""

    __slots__ = ("seconds", "until", "what")

    def __init__(self, what: Remembered, *, seconds: float, until: float) -> None:
        self.what = what
        self.seconds = seconds
        self.until = until


class Answers:
    """The answers of the process. Implements `ports.AnswerStore`; `take` and `give_back` count what is recorded."""

    __slots__ = ("_by_age", "_by_seconds", "_most_bytes", "_most_names", "_names", "_unknown", "held")

    def __init__(self, *, most_names: int = MOST_NAMES, most_bytes: int = MOST_BYTES) -> None:
        self._most_names = most_names
        self._most_bytes = most_bytes
        self._names: dict[bytes, _Entry] = {}
        self._by_age: dict[bytes, None] = {}
        """Names that have their answers, oldest first."""
        self._by_seconds: dict[float, dict[bytes, None]] = {}
        """Names by how long they are kept: of those that are kept equally long, the first is due first."""
        self._unknown = 0
        self.held = 0

    def __repr__(self) -> str:
        return f"<Answers {len(self._names)} names, {len(self._by_age)} answers, {self.held} bytes>"

    def find(self, name: bytes, now: float) -> Remembered | None:
        """Returns what is remembered of a name."""
        entry = self._names.get(name)
        if entry is None:
            return None
        if entry.until <= now:
            self._forget(name)
            return None
        return entry.what

    def remember(self, name: bytes, what: Remembered, *, seconds: float, now: float) -> None:
        """Remembers for `seconds`; an answer for which there is no room is only known to have been given."""
        self.expire(now)
        if name in self._names:
            self._forget(name)
        while len(self._names) >= self._most_names:
            self._forget(next(iter(self._names)))
        if what.answer is not None:
            if self.take(what.answer.size):
                self._by_age[name] = None
            else:
                what = Remembered(mark=what.mark, fate=Fate.TOO_LARGE)
        self._names[name] = _Entry(what, seconds=seconds, until=now + seconds)
        self._by_seconds.setdefault(seconds, {})[name] = None
        self._unknown += what.fate is Fate.UNKNOWN

    def expire(self, now: float) -> None:
        """Forgets what is due."""
        for seconds in list(self._by_seconds):
            while (names := self._by_seconds.get(seconds)) and self._names[name := next(iter(names))].until <= now:
                self._forget(name)

    def take(self, size: int) -> bool:
        """Counts bytes of an answer, if need be in the place of older ones; False when there is no room."""
        while self.held + size > self._most_bytes and self._by_age:
            self._drop_oldest()
        if self.held + size > self._most_bytes:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """These bytes are not needed any more."""
        self.held -= size

    def statistics(self) -> AnswersStatistics:
        """Returns a snapshot."""
        return AnswersStatistics(
            names=len(self._names),
            answers=len(self._by_age),
            unknown=self._unknown,
            bytes=self.held,
            most_bytes=self._most_bytes,
        )

    def _drop_oldest(self) -> None:
        name = next(iter(self._by_age))
        entry = self._names[name]
        self._let_go(name, entry.what.answer)
        entry.what = Remembered(mark=entry.what.mark, fate=Fate.DROPPED)

    def _forget(self, name: bytes) -> None:
        entry = self._names.pop(name)
        self._let_go(name, entry.what.answer)
        self._unknown -= entry.what.fate is Fate.UNKNOWN
        same = self._by_seconds[entry.seconds]
        del same[name]
        if not same:
            del self._by_seconds[entry.seconds]

    def _let_go(self, name: bytes, answer: StoredAnswer | None) -> None:
        if answer is not None:
            del self._by_age[name]
            self.held -= answer.size
