"""Refreshing: detached calls that fetch old answers anew, one for each name and few at a time (`semantics.md` §6a)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from proxy.clock import Clock
from proxy.exchange import CancelCause, Exchange, Facts
from proxy.observer import CacheUse, Shared, Sharing
from proxy.outcome import Outcome
from proxy.ports import Bits
from proxy.stages.shared_call import spun_off
from proxy.tasks import start_task
from proxy.trace_context import TraceContext, link_to

MOST: Final = 32
"""Refreshes at once in the whole process; who finds no place among them asks again at its next request."""
PART_OF_ONE: Final = 2
"""No route takes more than this part of them: its provider may hang, and the others' answers grow old too."""
CLASS: Final = "P2"


class Nobody:
    """A `Reply` that nobody reads."""

    __slots__ = ("started",)

    paused = False
    open_ended = False

    def __init__(self) -> None:
        self.started = False

    def start(self, status: int, phrase: bytes, lines: bytes, *, length: int | None, body: bytes | None = None) -> None:
        """Takes a head."""
        self.started = True

    def write(self, piece: bytes) -> None:
        """Takes a piece."""

    async def drain(self) -> None:
        """Returns at once."""

    def finish(self) -> None:
        """Takes the end."""

    def abort(self) -> None:
        """Takes the break."""


class Refreshes:
    """The refreshes of the process that are under way."""

    __slots__ = ("_bits", "_clock", "_most", "_running", "started")

    def __init__(self, clock: Clock, bits: Bits, *, most: int = MOST) -> None:
        self._clock = clock
        self._bits = bits
        self._most = most
        self._running: dict[bytes, tuple[Exchange, asyncio.Task[None]]] = {}
        self.started = 0

    def __repr__(self) -> str:
        return f"<Refreshes {len(self._running)} under way>"

    @property
    def running(self) -> int:
        """How many are under way."""
        return len(self._running)

    def start(self, exchange: Exchange, name: bytes, call: Callable[[Exchange], Awaitable[Outcome]]) -> None:
        """Makes the call of this exchange for nobody, and takes its body along; not twice for one name at a time."""
        if name in self._running or not self._has_room(exchange.facts.route):
            return
        self.started += 1
        work = self._work(exchange)
        task = start_task(_run(work, call), name="refresh of a kept answer")
        self._running[name] = work, task
        # A task that is cancelled before its first step runs no `finally`.
        task.add_done_callback(partial(self._ended, name, work))

    def stop(self) -> None:
        """Ends what is under way: the process drains."""
        for work, task in list(self._running.values()):
            work.cancel_cause = work.cancel_cause or CancelCause.DRAIN
            task.cancel()

    def _has_room(self, route: str) -> bool:
        if len(self._running) >= self._most:
            return False
        of_route = sum(work.facts.route == route for work, _ in self._running.values())
        return of_route * PART_OF_ONE < self._most

    def _ended(self, name: bytes, work: Exchange, task: asyncio.Task[None]) -> None:
        del self._running[name]
        work.forget_body()

    def _work(self, exchange: Exchange) -> Exchange:
        seconds = exchange.deadline_at - exchange.facts.arrived_at
        work = spun_off(exchange, Nobody())
        facts, now = work.facts, self._clock.now()
        facts.request_id = f"{facts.request_id}-refresh"
        facts.arrived_at, facts.arrived_ns = now, self._clock.wall_ns()
        facts.attempts, facts.klass, facts.cache = [], CLASS, CacheUse.REFRESH
        work.deadline_at = now + seconds
        self._link(facts, now)
        return work

    def _link(self, facts: Facts, now: float) -> None:
        """A span of its own in the trace of the request that has found the old answer."""
        trace = facts.trace
        if trace is None:
            return
        facts.events.append((now, Shared(how=Sharing.REPLAYED, link=link_to(trace))))
        facts.trace = TraceContext(
            trace_id=trace.trace_id,
            span_id=self._bits(64) or 1,
            parent_span_id=trace.span_id,
            sampled=trace.sampled,
            tracestate=trace.tracestate,
            remote=False,
        )


async def _run(work: Exchange, call: Callable[[Exchange], Awaitable[Outcome]]) -> None:
    await call(work)
