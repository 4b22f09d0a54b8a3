"""Observing in batches: what is counted of a request is counted soon after it, many at a time.

Counting one request costs a few microseconds when the code is warm, and several times that between two requests.
"""

from __future__ import annotations

from proxy.clock import Clock, Timer
from proxy.exchange import Exchange
from proxy.observer import Observer, ProcessEvent

BATCH = 64
WAIT_SECONDS = 0.05


class BatchedObserver:
    """Hands ended exchanges to another observer, 64 at a time or after 50 ms; `flush` hands over what is left."""

    __slots__ = ("_clock", "_observer", "_pending", "_timer")

    def __init__(self, observer: Observer, *, clock: Clock) -> None:
        self._observer = observer
        self._clock = clock
        self._pending: list[Exchange] = []
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<BatchedObserver {len(self._pending)} pending>"

    def ended(self, exchange: Exchange) -> None:
        """Keeps the exchange for its batch, without an upload that nobody reads any more."""
        exchange.request.upload = None
        pending = self._pending
        pending.append(exchange)
        if len(pending) >= BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_at(self._clock.now() + WAIT_SECONDS, self._due)

    def happened(self, event: ProcessEvent) -> None:
        """Tells of an event at once, after what ended before it."""
        self.flush()
        self._observer.happened(event)

    def flush(self) -> None:
        """Hands over everything that waits."""
        pending, self._pending = self._pending, []
        for exchange in pending:
            self._observer.ended(exchange)

    def _due(self) -> None:
        self._timer = None
        self.flush()
