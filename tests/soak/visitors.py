"""Visits by the clock, whatever becomes of earlier ones."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from time import monotonic

from tests.soak.promises import Book, Promise
from tests.soak.visits import KINDS, PATIENCE_SECONDS, Kind, Surprise, Visit

LONGEST_SECONDS = 3 * PATIENCE_SECONDS


class Visitors:
    """So many visits a second, of all kinds; `came` counts what came of them."""

    def __init__(self, port: int, book: Book, *, rate: float, draw: random.Random) -> None:
        self._port = port
        self._book = book
        self._rate = rate
        self._draw = draw
        self._visits: set[asyncio.Task[None]] = set()
        self._clock: asyncio.Task[None] | None = None
        self._number = 0
        self.came: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Begins to visit."""
        self._clock = asyncio.create_task(self._go_on())

    async def stop(self) -> None:
        """Begins no other visit, and waits for those under way."""
        assert self._clock is not None
        self._clock.cancel()
        await asyncio.wait([self._clock])
        await asyncio.gather(*self._visits)

    async def _go_on(self) -> None:
        due = monotonic()
        while True:
            await asyncio.sleep(max(0.0, due - monotonic()))
            due += 1 / self._rate
            visit = asyncio.create_task(self.visit(self._next()))
            self._visits.add(visit)
            visit.add_done_callback(self._visits.discard)

    def _next(self) -> Kind:
        """Each kind once, then as their weights say."""
        self._number += 1
        if self._number <= len(KINDS):
            return KINDS[self._number - 1]
        return self._draw.choices(KINDS, [kind.weight for kind in KINDS])[0]

    async def visit(self, kind: Kind) -> None:
        """Makes one visit; what no caller may see is a breach."""
        visit = Visit(port=self._port, draw=random.Random(self._draw.random()))
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                self.came[kind.name, await kind.visit(visit)] += 1
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, ValueError, Surprise) as error:
            self._book.breach(Promise.HONEST, f"{kind.name}: {error!r}")
