"""Answers that wait to be written: a queue bounded in number and bytes, and one connection that drains it.

What finds no room is dropped and counted: a cache may forget. An answer that waits is found already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.clock import Clock
from proxy.ports import Found, StoredAnswer
from proxy.store.codec import encode

if TYPE_CHECKING:
    from redis.asyncio import Redis

ENTRY_MAX = 4 * 1024 * 1024
"""Bytes of the largest entry that is written or read."""
NUMBER_MAX = 2000
BYTES_MAX = 32 * 1024 * 1024
BATCH_NUMBER = 32
BATCH_BYTES = 1024 * 1024
LONGEST = 10 * 365 * 86400.0
ENTRY_COST = 500
"""Bytes that a waiting entry takes beside its answer, about."""
PREFIX = "sponson:cache:1:"


def key_of(name: bytes) -> str:
    """Returns the server's key of a name."""
    return PREFIX + name.hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An answer on its way to the server; `since` when it was made, `seconds` for how long it is kept from then."""

    name: bytes
    answer: StoredAnswer
    seconds: float
    since: float

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits."""
        return self.answer.size + ENTRY_COST


class Writes:
    """Entries that wait, the oldest first; a newer one of the same name takes the older one's place."""

    __slots__ = ("_change", "_clock", "_waiting", "dropped", "size", "written")

    def __init__(self, clock: Clock) -> None:
        self.size = self.written = self.dropped = 0
        self._clock = clock
        self._waiting: dict[bytes, Waiting] = {}
        self._change = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, name: bytes, answer: StoredAnswer, *, seconds: float, now: float) -> None:
        """Takes an answer in; drops it where there is no room."""
        entry = Waiting(name=name, answer=answer, seconds=seconds, since=now)
        self._forget(name)
        if answer.size > ENTRY_MAX or len(self) >= NUMBER_MAX or self.size + entry.size > BYTES_MAX:
            self.dropped += 1
            return
        self._waiting[name] = entry
        self.size += entry.size
        self._change.set()

    def find(self, name: bytes, now: float) -> Found | None:
        """Returns an answer that waits, as long as it would be kept."""
        entry = self._waiting.get(name)
        if entry is None or now - entry.since >= entry.seconds:
            return None
        return Found(answer=entry.answer, age=max(now - entry.since, 0.0))

    def clear(self) -> None:
        """Drops all that waits."""
        self.dropped += len(self._waiting)
        self._waiting.clear()
        self.size = 0
        self._change.set()

    async def drained(self) -> None:
        """Returns when nothing waits."""
        while self._waiting:
            self._change.clear()
            await self._change.wait()

    async def next(self) -> list[Waiting]:
        """Waits for entries and returns the next ones; they wait on until `done`."""
        while not self._waiting:
            self._change.clear()
            await self._change.wait()
        return list(self._some())

    def done(self, entries: Sequence[Waiting], *, refused: int = 0) -> None:
        """Forgets entries that were sent, those apart that newer ones have replaced meanwhile."""
        self.written += len(entries) - refused
        self.dropped += refused
        for entry in entries:
            if self._waiting.get(entry.name) is entry:
                self._forget(entry.name)
        self._change.set()

    def _some(self) -> Iterator[Waiting]:
        size = 0
        for number, entry in enumerate(self._waiting.values()):
            size += entry.size
            if number and (number >= BATCH_NUMBER or size > BATCH_BYTES):
                return
            yield entry

    def _forget(self, name: bytes) -> None:
        if (entry := self._waiting.pop(name, None)) is not None:
            self.size -= entry.size

    async def write(self, client: Redis, entries: Sequence[Waiting]) -> list[BaseException]:
        """Writes entries in one go, and returns what the server refused. Raises what the library raises."""
        now, pipeline, count = self._clock.now(), client.pipeline(transaction=False), 0
        for entry in entries:
            left = min(entry.seconds, LONGEST) - max(now - entry.since, 0.0)
            value = encode(entry.name, entry.answer, min(entry.seconds, LONGEST)) if left > 0 else None
            if value is not None and len(value) <= ENTRY_MAX:
                _ = pipeline.set(key_of(entry.name), value, px=max(round(left * 1000), 1))
                count += 1
        try:
            replies = await pipeline.execute(raise_on_error=False) if count else []
        except Exception:
            # An entry that makes the server hang up would end every session.
            self.done(entries, refused=len(entries))
            raise
        refused = [reply for reply in replies if isinstance(reply, BaseException)]
        self.done(entries, refused=len(entries) - count + len(refused))
        return refused
