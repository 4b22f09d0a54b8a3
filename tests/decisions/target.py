"""A target behind a breaker, for the breaker's tests, and the ends that its calls may have."""

from __future__ import annotations

from proxy.decisions.breaker import Breaker, BreakerChange, BreakerSettings, BreakerState
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import verdict_of
from proxy.outcome import Outcome, OutcomeKind, Reason, refused

K = OutcomeKind
CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN

GOOD = Outcome(K.OK, status=200)
FAILED = Outcome(K.UPSTREAM_ERROR, status=503)
LIMITED = Outcome(K.RATE_LIMITED, status=429)
KEY = Outcome(K.CREDENTIAL_REJECTED, status=401, key_fault=True)
OTHER_4XX = Outcome(K.CALLER_ERROR, status=404)
LEFT = Outcome(K.CLIENT_LEFT)
LOCAL = refused(Reason.QUEUE_FULL)


class Target:
    """A target behind a breaker, with a clock that is moved by hand."""

    def __init__(self, settings: BreakerSettings | None = None, *, first_byte: float = 30.0) -> None:
        self.changes: list[BreakerChange] = []
        self.now = 1000.0
        self.breaker = Breaker(
            settings or BreakerSettings(), first_byte=first_byte, jitter=lambda: 0.0, on_change=self.changes.append
        )

    @property
    def state(self) -> BreakerState:
        self.breaker.tick(self.now)
        return self.breaker.state

    @property
    def whys(self) -> list[str]:
        return [change.why for change in self.changes]

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.breaker.tick(self.now)

    def start(self, *, stream: bool = False) -> Ticket:
        """A call that may go, on the wire."""
        ticket = self.breaker.acquire(self.now, stream=stream)
        assert ticket is not None
        ticket.on_wire(self.now)
        return ticket

    def refuses(self) -> bool:
        return self.breaker.acquire(self.now, stream=False) is None

    def call(self, outcome: Outcome, times: int = 1, *, stream: bool = False) -> None:
        """Whole calls, one after the other, that end like this."""
        for _ in range(times):
            ticket = self.start(stream=stream)
            ticket.end(verdict_of(outcome), self.now, retry_after=outcome.retry_after)

    def half_open(self) -> None:
        """Fails until it opens, and waits until probes may go."""
        while self.state is CLOSED:
            self.call(FAILED)
        self.passes(self.breaker.retry_after(self.now))
        assert self.state is HALF_OPEN
