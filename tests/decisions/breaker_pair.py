"""A breaker and its model, driven side by side and compared."""

from __future__ import annotations

from math import inf

from proxy.decisions.breaker import Breaker, BreakerChange, BreakerSettings, BreakerStatistics
from proxy.decisions.verdict import Verdict
from tests.decisions.breaker_model import ANSWER, HALF_OPEN, OPEN, Call, Model

START = 2.0**20
"""Quarters of seconds can be added to and taken from such numbers without any rounding."""


class Pair:
    """A breaker and its model, at the same time. Each method does one thing to both and says what a user would see."""

    def __init__(self, rules: BreakerSettings, *, first_byte: float, share: int, jitter: float) -> None:
        self.now = START
        self.model = Model(rules, first_byte=first_byte, share=share, jitter=jitter)
        self.breaker = Breaker(rules, first_byte=first_byte, answer=ANSWER, jitter=lambda: jitter)
        self.breaker.reconfigure(rules, first_byte=first_byte, answer=ANSWER, share=share)
        self.changes: list[BreakerChange] = []
        self.told_ceiling: int | None = None
        self.breaker.rewire(self.changes.append, self.ceiling_moved)

    def ceiling_moved(self) -> None:
        assert self.breaker.ramp.size != self.told_ceiling, "told of nothing"
        self.told_ceiling = self.breaker.ramp.size

    def facts(self) -> BreakerStatistics:
        return self.breaker.statistics(self.now)

    def acquire(self, *, stream: bool, queue: float) -> Call | None:
        ticket = self.breaker.acquire(self.now, stream=stream)
        assert (ticket is not None) is self.model.free()
        if ticket is None:
            assert self.breaker.retry_after(self.now) >= 1.0
            return None
        call = Call(
            ticket=ticket,
            generation=self.model.generation,
            probe=self.model.state is HALF_OPEN,
            stream=stream,
            due=self.now + queue,
        )
        assert ticket.probe is call.probe
        self.model.takes(call)
        return call

    def start(self, call: Call) -> None:
        call.ticket.on_wire(self.now)
        self.model.starts(call, self.now)

    def content(self, call: Call) -> None:
        if call.started_at is None:
            return
        with_effect = self.matters(call)
        before = self.facts()
        call.ticket.first_content(self.now)
        if self.model.gets_content(call):
            self.model.ends(call, Verdict.SUCCESS, None, self.now)
        assert with_effect or self.facts() == before

    def end(self, call: Call, verdict: Verdict, told: float | None = None, *, slow_after: float = inf) -> None:
        with_effect = self.matters(call)
        before = self.facts()
        if not call.ended:
            call.ticket.slow_after = slow_after
        call.ticket.end(verdict, self.now, retry_after=told)
        self.model.ends(call, verdict, told, self.now)
        assert call.ticket.ended
        assert with_effect or self.facts() == before

    def matters(self, call: Call) -> bool:
        """Whether the call may change anything: what ended, and what an older generation says, does not."""
        return not call.ended and call.generation == self.model.generation

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.breaker.tick(self.now)
        self.model.passes(self.now)

    def reload(self, rules: BreakerSettings, *, first_byte: float, share: int) -> None:
        """The settings change; what time makes of them shows at the next tick. What has left the window is gone."""
        self.model.window(self.now)
        self.breaker.reconfigure(rules, first_byte=first_byte, answer=ANSWER, share=share)
        self.model.rules, self.model.first_byte, self.model.share = rules, first_byte, share
        self.wait(0.25)

    def check(self) -> None:
        """Both say the same, and no lease is out beyond its deadline."""
        model, facts, window = self.model, self.facts(), self.model.window(self.now)
        leases = model.leases()
        assert (facts.state, facts.generation, facts.consecutive) == (model.state, model.generation, model.row)
        assert (facts.calls, facts.failures, facts.slow) == (
            len(window),
            sum(r.failed for r in window),
            sum(r.slow for r in window),
        )
        assert facts.probes_running == len(leases)
        assert facts.ceiling == model.ceiling(self.now) == self.told_ceiling
        assert model.state is not OPEN or facts.retry_after == max(model.open_until - self.now, 1.0)
        assert all(c.started_at is None or self.now < model.deadline(c, self.now) for c in leases)
