"""Requests that wait for a lookup, and the connections that serve them: several lookups travel together.

A request that leaves, or whose time is up, takes nothing with it: the connection reads its reply for nobody.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from proxy.clock import Clock
from proxy.ports import Found
from proxy.store.codec import decode
from proxy.store.writes import ENTRY_MAX, key_of

if TYPE_CHECKING:
    from redis.asyncio import Redis

LIMIT_SECONDS = 0.05
"""How long a request waits for a lookup (`semantics.md` §6a)."""
BATCH = 8
"""Names that are asked for in one go: each may bring a large entry."""
TOGETHER = 256
"""Lookups in one go; many may be for one name."""
WAITING_MAX = 4096


class Lookup:
    """A name that somebody waits to hear of."""

    __slots__ = ("asked_at", "key", "reply")

    def __init__(self, key: str, reply: asyncio.Future[tuple[int, bytes] | None], asked_at: float) -> None:
        self.key = key
        self.reply = reply
        self.asked_at = asked_at

    def answer(self, reply: tuple[int, bytes] | None) -> None:
        """Tells who waits, if somebody still does."""
        if not self.reply.done():
            self.reply.set_result(reply)


class Lookups:
    """All lookups of a server that wait or are under way.

    `silent`: the server owes a reply for longer than a request waits; until it comes nobody waits for another one.
    """

    __slots__ = ("_clock", "_heard_at", "_queue", "_under_way", "late", "silent")

    def __init__(self, clock: Clock) -> None:
        self.silent = False
        self.late = 0
        self._clock = clock
        self._queue: asyncio.Queue[Lookup] = asyncio.Queue()
        self._under_way: set[Lookup] = set()
        self._heard_at = 0.0

    async def find(self, name: bytes, now: float) -> Found | None:
        """Returns what the server keeps under a name, within the limit; None for nothing, and for no reply."""
        if self.silent or self._queue.qsize() >= WAITING_MAX:
            return None
        lookup = Lookup(key_of(name), asyncio.get_running_loop().create_future(), now)
        self._queue.put_nowait(lookup)
        timer = self._clock.call_at(now + LIMIT_SECONDS, partial(self._too_late, lookup))
        try:
            reply = await lookup.reply
        finally:
            timer.cancel()
        return None if reply is None else _found(name, *reply)

    async def next(self) -> list[Lookup]:
        """Waits for lookups that somebody still waits for, and returns the next ones."""
        while True:
            lookups = [await self._queue.get()]
            keys = {lookups[0].key}
            while len(keys) < BATCH and len(lookups) < TOGETHER and not self._queue.empty():
                lookups.append(lookup := self._queue.get_nowait())
                keys.add(lookup.key)
            if lookups := [lookup for lookup in lookups if not lookup.reply.done()]:
                return lookups

    async def serve(self, client: Redis, lookups: list[Lookup]) -> list[BaseException]:
        """Asks the server, and returns what it refused. Raises what the library raises.

        The time that is left is read before the entry: should a newer one come between, it seems older than it is.
        """
        pipeline, keys = client.pipeline(transaction=False), dict.fromkeys(lookup.key for lookup in lookups)
        for key in keys:
            _ = pipeline.pttl(key)
            _ = pipeline.getrange(key, 0, ENTRY_MAX)
        self._under_way.update(lookups)
        try:
            replies = await pipeline.execute(raise_on_error=False)
            self._heard_at, self.silent = self._clock.now(), False
            found = dict(zip(keys, zip(replies[::2], replies[1::2], strict=True), strict=True))
            for lookup in lookups:
                left, entry = found[lookup.key]
                lookup.answer((left, entry) if isinstance(left, int) and isinstance(entry, bytes) else None)
        finally:
            self._under_way.difference_update(lookups)
            for lookup in lookups:
                lookup.answer(None)
        return [reply for reply in replies if isinstance(reply, BaseException)]

    def clear(self) -> None:
        """Lets all go that wait, without a reply: the session has ended."""
        while not self._queue.empty():
            self._queue.get_nowait().answer(None)
        self.silent = False

    def _too_late(self, lookup: Lookup) -> None:
        if lookup.reply.done():
            return
        self.late += 1
        if lookup in self._under_way and self._heard_at < lookup.asked_at:
            self.silent = True
        lookup.answer(None)


def _found(name: bytes, left: int, entry: bytes) -> Found | None:
    """Reads a reply; `left` are the milliseconds it will be kept for, below zero for no entry and for ever."""
    if left < 0 or len(entry) > ENTRY_MAX or (decoded := decode(name, entry)) is None:
        return None
    answer, seconds = decoded
    return Found(answer=answer, age=max(seconds - left / 1000, 0.0))
