"""The protocols through which rooms reach each other without importing each other."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from proxy.exchange import Exchange, Usage
from proxy.outcome import Outcome


class Rescue(Protocol):
    """Turns an outcome that reached no client into an answer; synchronous, so that a cancelled task can still do it."""

    def __call__(self, exchange: Exchange, outcome: Outcome) -> None:
        """Writes the answer to `exchange.reply`, if it has not been started."""
        ...


class Bits(Protocol):
    """Randomness as an argument."""

    def __call__(self, count: int, /) -> int:
        """Returns `count` random bits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """A whole answer, to be given again: its end-to-end fields in `lines`, and who gave it.

    `length` is what the head promised: where no body belongs to it (HEAD), it says more than the body's.
    """

    status: int
    phrase: bytes
    lines: bytes
    body: bytes
    length: int | None
    provider: str
    model: str
    tier: int
    usage: Usage | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, small change apart."""
        return len(self.lines) + len(self.body)


class Fate(StrEnum):
    """What became of a keyed request that has ended, as far as it is remembered."""

    ANSWERED = "answered"
    UNKNOWN = "unknown"
    """It may have been executed; nobody knows its answer."""
    TOO_LARGE = "too_large"
    """It was answered, with more than is kept."""
    DROPPED = "dropped"
    """It was answered; the answer gave way to newer ones."""

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is known of a name: what the first request looked like (`mark`), its fate, and the answer if it has one."""

    mark: bytes
    fate: Fate
    answer: StoredAnswer | None = None


class AnswerStore(Protocol):
    """Where answers are kept under the names of their requests.

    Synchronous: between the look and the call no second request with the same name may come. A durable store answers
    from what it has read ahead, and writes behind.
    """

    def find(self, name: bytes, now: float) -> Remembered | None:
        """Returns what is remembered of a name; None for a name that is free."""
        ...

    def remember(self, name: bytes, what: Remembered, *, seconds: float, now: float) -> None:
        """Remembers for so many seconds, as far as its bounds allow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An answer that a cache has kept, and its age in seconds."""

    answer: StoredAnswer
    age: float


class CacheStore(Protocol):
    """Where answers are kept under the names of equal requests, to be given to whoever asks the same.

    An outage is a miss: neither call raises, and neither lets a request wait for more than 50 ms.
    """

    def find(self, name: bytes, now: float) -> Awaitable[Found | None]:
        """Returns what is kept under a name; `now` in monotonic seconds."""
        ...

    def keep(self, name: bytes, answer: StoredAnswer, *, owner: str, seconds: float, now: float) -> None:
        """Keeps an answer for so many seconds, as far as its bounds allow; `owner` is the tenant it was made for."""
        ...
