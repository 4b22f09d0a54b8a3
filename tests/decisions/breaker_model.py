"""What `semantics.md` §1 says of a breaker, told once more in the simplest way: everything is counted anew each time.

`Model` knows nothing of the breaker. `Pair` drives a breaker and its model side by side, with a clock of its own, and
compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from proxy.decisions.breaker import Breaker, BreakerChange, BreakerSettings, BreakerState, BreakerStatistics
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
GOOD = (Verdict.SUCCESS, Verdict.HEALTHY)
BAD = (Verdict.FAILURE, Verdict.REJECTED)
MOST_TOLD = 300.0
RAMP = 10
START = 2.0**20
"""Quarters of seconds can be added to and taken from such numbers without any rounding."""


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """A call as the model sees it; `ticket` is the breaker's side of it."""

    ticket: Ticket
    generation: int
    probe: bool
    stream: bool
    due: float
    """When the queue ends it, if it has not started by then."""
    started_at: float | None = None
    content: bool = False
    ended: bool = False
    counted_slow: bool = False


@dataclass(slots=True, eq=False)
class Result:
    """One call's result since the last closing; `of` is the call while it has only been slow."""

    at: float
    failed: bool
    slow: bool
    of: Call | None = None


class Model:
    """The state, and every call and result of its generation, in plain lists."""

    def __init__(self, rules: BreakerSettings, *, first_byte: float, share: int, jitter: float) -> None:
        self.rules, self.first_byte, self.share, self.jitter = rules, first_byte, share, jitter
        self.state = CLOSED
        self.generation = self.row = self.successes = self.neutral = 0
        self.told: list[float] = []
        self.results: list[Result] = []
        self.calls: list[Call] = []
        self.open_until = self.closed_at = self.last_open = 0.0
        self.n = self.last_n = 0
        self.returned_at = -inf

    def window(self, now: float) -> list[Result]:
        self.results = [r for r in self.results if r.at >= now - self.rules.window_seconds][-self.rules.window_calls :]
        return self.results

    def leases(self) -> list[Call]:
        return [c for c in self.calls if c.probe and not c.ended]

    def free(self) -> bool:
        """Whether a call may go."""
        if self.state is HALF_OPEN:
            return len(self.leases()) + self.successes < self.rules.probes
        return self.state is CLOSED

    def slow_after(self, call: Call) -> float:
        if not call.stream:
            return call.ticket.slow_after
        return self.rules.slow_after if self.rules.slow_after is not None else self.first_byte * 2 / 3

    def ceiling(self, now: float) -> int | None:
        first, rest = self.rules.probes, self.share - self.rules.probes
        if rest <= 0 or self.state is OPEN:
            return None
        if self.state is HALF_OPEN:
            return first
        quarters = round(4 * (now - self.returned_at)) if now - self.returned_at < RAMP else None
        return None if quarters is None else first + rest * quarters // (4 * RAMP)

    def takes(self, call: Call) -> None:
        self.calls.append(call)

    def starts(self, call: Call, now: float) -> None:
        if call.ended or call.started_at is not None:
            return
        call.started_at = now
        if call in self.calls:
            self.calls.remove(call)
            self.calls.append(call)

    def gets_content(self, call: Call) -> bool:
        """Notes the first content; True when that ends the call, as a success."""
        if call.ended:
            return False
        call.content = True
        return call.probe and call.stream

    def passes(self, now: float) -> None:
        """What time alone decides."""
        for call in list(self.calls):
            if call.stream and not (call.ended or call.content or call.probe or call.counted_slow):
                due = call.started_at is not None and call.started_at + self.slow_after(call) <= now
                if due and call.generation == self.generation:
                    call.counted_slow = True
                    self.results.append(Result(now, failed=False, slow=True, of=call))
                    self.judge(now)
        if self.state is OPEN and now >= self.open_until:
            self.move(HALF_OPEN, now)
        elif self.state is HALF_OPEN:
            overdue = [c for c in self.leases() if c.started_at is not None and c.started_at + self.first_byte <= now]
            if self.successes >= self.rules.probes:
                self.move(CLOSED, now)
            elif overdue:
                overdue[0].ended = True
                self.open(now)

    def ends(self, call: Call, verdict: Verdict, told: float | None, now: float) -> None:
        if call.ended:
            return
        call.ended = True
        if call.generation != self.generation:
            return
        if verdict is Verdict.GIVEN_UP:
            waited = now - call.started_at if call.started_at is not None else -inf
            hung = not call.content and waited >= self.slow_after(call)
            verdict = Verdict.FAILURE if hung else Verdict.NEUTRAL
        if call.probe:
            self.probe_ends(call, verdict, told, now)
        elif verdict is Verdict.FAILURE:
            self.row += 1
            self.told.append(now + (told or 0.0))
            standing = [r for r in self.window(now) if r.of is call]
            if standing:
                standing[0].failed = True
            else:
                self.results.append(Result(now, failed=True, slow=False))
            self.judge(now)
        elif verdict in GOOD:
            self.row, self.told = 0, []
            if verdict is Verdict.SUCCESS and not call.counted_slow:
                self.results.append(Result(now, failed=False, slow=False))
                self.judge(now)

    def probe_ends(self, call: Call, verdict: Verdict, told: float | None, now: float) -> None:
        if verdict in GOOD:
            self.successes += 1
        elif verdict in BAD:
            self.open(now, told=told or 0.0)
        elif verdict is Verdict.NEUTRAL and call.started_at is not None:
            self.neutral += 1
            if self.neutral == 3:
                self.open(now, same=True)
        if self.state is HALF_OPEN and self.successes >= self.rules.probes:
            self.move(CLOSED, now)

    def judge(self, now: float) -> None:
        """The three rules."""
        rules, window = self.rules, self.window(now)
        failures, slow = sum(r.failed for r in window), sum(r.slow for r in window)
        enough = len(window) >= rules.min_calls
        in_a_row = rules.consecutive > 0 and self.row >= rules.consecutive
        failing = enough and failures > rules.failure_ratio * len(window)
        if in_a_row or failing or (enough and slow > rules.slow_ratio * len(window)):
            if self.last_open:
                self.n = max(0, self.n - int((now - self.closed_at) // (2 * self.last_open)))
            self.open(now, told=max(self.told, default=now) - now)

    def open(self, now: float, *, told: float = 0.0, same: bool = False) -> None:
        first, cap = self.rules.open_first, self.rules.open_cap
        most = next(n for n in range(40) if first * 2**n >= cap)
        if not same:
            self.last_n = min(self.n, most)
            self.n = min(self.last_n + 1, most)
        seconds = min(max(first * 2**self.last_n * (1 + 0.2 * self.jitter), first), cap)
        self.last_open = max(seconds, min(told, MOST_TOLD))
        self.open_until = now + self.last_open
        self.move(OPEN, now)

    def move(self, state: BreakerState, now: float) -> None:
        self.state = state
        self.generation += 1
        self.row = self.successes = self.neutral = 0
        self.told = []
        self.calls = []
        if state is CLOSED:
            self.closed_at = self.returned_at = now
            self.results = []


class Pair:
    """A breaker and its model, at the same time. Each method does one thing to both and says what a user would see."""

    def __init__(self, rules: BreakerSettings, *, first_byte: float, share: int, jitter: float) -> None:
        self.now = START
        self.model = Model(rules, first_byte=first_byte, share=share, jitter=jitter)
        self.breaker = Breaker(rules, first_byte=first_byte, jitter=lambda: jitter)
        self.breaker.reconfigure(rules, first_byte=first_byte, share=share)
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
        self.breaker.reconfigure(rules, first_byte=first_byte, share=share)
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
        assert all(c.started_at is None or self.now < c.started_at + model.first_byte for c in leases)
