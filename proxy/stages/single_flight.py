"""Single flight: equal requests at the same time are one call (`semantics.md` §6a).

The call is a `SharedCall`: nobody's leaving ends it but the last one's, and each caller keeps its own deadline: one
that has much longer left than the call does not join it, for it would fail before its time. Calls of different classes
are not joined: a higher one would wait in a lower one's place. A refresh is joined by nobody: it gets no kept answer
where all tiers fail. What has ended is joined by nobody: failures are shared with those who waited, and with no one
after them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from proxy.clock import Clock
from proxy.exchange import Exchange
from proxy.observer import CacheUse, Shared, Sharing
from proxy.outcome import Outcome
from proxy.stage import CallNext
from proxy.stages.recording import Ledger
from proxy.stages.shared_call import SharedCall
from proxy.trace_context import link_to

Keep = Callable[[bytes, SharedCall], None]
Flight = tuple[bytes, str]


class Flights:
    """The calls of the process that equal requests may join: one for each name and class."""

    __slots__ = ("calls", "joined")

    def __init__(self) -> None:
        self.calls: dict[Flight, SharedCall] = {}
        self.joined = 0

    def __repr__(self) -> str:
        return f"<Flights {len(self.calls)} under way>"


class SingleFlightStage:
    """Joins a call that is under way, or makes it so that others can join.

    `joins` False: every request makes its own call, which is recorded only for `keep`. `name` names requests that
    nobody has named yet. `keep` is told of every named call's end.
    """

    __slots__ = ("_clock", "_flights", "_joins", "_keep", "_ledger", "_name")

    def __init__(
        self,
        flights: Flights,
        name: Callable[[Exchange], bytes],
        *,
        ledger: Ledger,
        clock: Clock,
        joins: bool = True,
        keep: Keep | None = None,
    ) -> None:
        self._flights = flights
        self._name = name
        self._ledger = ledger
        self._clock = clock
        self._joins = joins
        self._keep = keep

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Passes a request that shares nothing."""
        name = exchange.alike
        if name is None:
            name = exchange.alike = self._name(exchange)
        return self._shared(exchange, name, call_next) if name else call_next(exchange)

    async def _shared(self, exchange: Exchange, name: bytes, call_next: CallNext) -> Outcome:
        flight, calls = (name, exchange.facts.klass), self._flights.calls
        under_way = calls.get(flight)
        if under_way is not None and self._joins and under_way.joinable and self._has_time(under_way, exchange):
            return await self._joined(exchange, under_way)
        call = SharedCall(
            exchange,
            call_next,
            ledger=self._ledger,
            clock=self._clock,
            ended=partial(self._ended, flight),
        )
        if self._joins and exchange.facts.cache is not CacheUse.REFRESH:
            calls[flight] = call
        return await call.serve(exchange)

    def _has_time(self, call: SharedCall, exchange: Exchange) -> bool:
        """Whether a call lasts for half of the time, at least, that a request has; a stream that has begun does."""
        now, work = self._clock.now(), call.work
        if call.recording.started and work.facts.stream:
            return True
        return work.deadline_at - now >= (exchange.deadline_at - now) / 2

    async def _joined(self, exchange: Exchange, call: SharedCall) -> Outcome:
        self._flights.joined += 1
        facts = exchange.facts
        if facts.cache is not CacheUse.REFRESH:
            facts.cache = CacheUse.SHARED
        exchange.note(self._clock.now(), Shared(how=Sharing.JOINED, link=link_to(call.work.facts.trace)))
        exchange.forget_body()
        return await call.serve(exchange, other=True)

    def _ended(self, flight: Flight, call: SharedCall) -> None:
        calls = self._flights.calls
        if calls.get(flight) is call:
            del calls[flight]
        if self._keep is not None:
            self._keep(flight[0], call)
