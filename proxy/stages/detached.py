"""Detached: what all calls have in common that run in a task of their own, and those who wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.decisions.leaving import kind_of_leaving
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stage import CallNext


class Waits:
    """One who waits for news, in a single task. Whoever is one has a slot `_waiter`, None at first."""

    __slots__ = ()

    _waiter: asyncio.Future[None] | None

    async def news(self) -> None:
        """Returns when something has happened."""
        self._waiter = asyncio.get_running_loop().create_future()  # type: ignore[misc]  # a slot of its heirs'
        try:
            await self._waiter
        finally:
            self._waiter = None  # type: ignore[misc]

    def wake(self) -> None:
        """Something has happened."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def run_detached(work: Exchange, call_next: CallNext, end: Callable[[Outcome], None]) -> None:
    """Makes a call and tells its outcome, whatever it is; a bug, and a cancellation, go on."""
    outcome = Outcome(OutcomeKind.BUG)
    try:
        outcome = await call_next(work)
    except asyncio.CancelledError:
        outcome = Outcome(kind_of_leaving(work))
        raise
    finally:
        end(outcome)
