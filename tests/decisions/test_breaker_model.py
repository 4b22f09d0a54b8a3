"""The breaker in every order of events, beside a model that recounts everything from a list of results."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from proxy.decisions.breaker import Breaker, BreakerChange, BreakerSettings, BreakerState
from proxy.decisions.cooldown import LONGEST_EXTENSION_SECONDS
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
FIRST_BYTE = 6.0
QUARTERS = st.integers(1, 40).map(lambda quarters: quarters / 4)
VERDICTS = st.sampled_from(list(Verdict))
GOOD = (Verdict.SUCCESS, Verdict.HEALTHY)


@st.composite
def breaker_settings(draw: st.DrawFn) -> BreakerSettings:
    return BreakerSettings(
        failure_ratio=draw(st.sampled_from([0.0, 0.4, 0.5, 1.0])),
        window_calls=draw(st.sampled_from([4, 8])),
        window_seconds=draw(st.sampled_from([10.0, 30.0])),
        min_calls=draw(st.sampled_from([2, 4])),
        consecutive=draw(st.sampled_from([0, 2, 3])),
        slow_after=draw(st.sampled_from([None, 1.0, 3.0])),
        slow_ratio=draw(st.sampled_from([0.5, 0.8])),
        open_first=draw(st.sampled_from([2.0, 5.0])),
        open_cap=draw(st.sampled_from([5.0, 12.0])),
        probes=draw(st.sampled_from([1, 2, 3])),
    )


@dataclass(slots=True, eq=False)
class Call:
    """A call as the model sees it."""

    ticket: Ticket
    generation: int
    probe: bool
    stream: bool
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
    """What `semantics.md` says, counted anew for every question."""

    def __init__(self, rules: BreakerSettings) -> None:
        self.rules = rules
        self.state = CLOSED
        self.generation = 0
        self.row = self.successes = self.neutral = 0
        self.results: list[Result] = []
        self.calls: list[Call] = []
        self.open_until = 0.0

    def window(self, now: float) -> list[Result]:
        return [r for r in self.results if r.at >= now - self.rules.window_seconds][-self.rules.window_calls :]

    def probes(self) -> list[Call]:
        return [c for c in self.calls if c.probe and not c.ended and c.generation == self.generation]

    def slow_after(self) -> float:
        return self.rules.slow_after if self.rules.slow_after is not None else FIRST_BYTE * 2 / 3

    def move(self, state: BreakerState) -> None:
        self.state = state
        self.generation += 1
        self.row = self.successes = self.neutral = 0
        if state is CLOSED:
            self.results = []

    def judge(self, now: float) -> None:
        """The three rules."""
        rules, window = self.rules, self.window(now)
        failures, slow = sum(r.failed for r in window), sum(r.slow for r in window)
        enough = len(window) >= rules.min_calls
        in_a_row = rules.consecutive > 0 and self.row >= rules.consecutive
        failing = enough and failures > rules.failure_ratio * len(window)
        if in_a_row or failing or (enough and slow > rules.slow_ratio * len(window)):
            self.move(OPEN)

    def passes(self, now: float) -> None:
        """What time alone decides."""
        for call in [c for c in self.calls if c.stream and not c.ended and not c.content and not c.probe]:
            due = call.started_at is not None and call.started_at + self.slow_after() <= now
            if due and not call.counted_slow and call.generation == self.generation:
                call.counted_slow = True
                self.results.append(Result(now, failed=False, slow=True, of=call))
                self.judge(now)
        if self.state is HALF_OPEN:
            overdue = [p for p in self.probes() if p.started_at is not None and p.started_at + FIRST_BYTE <= now]
            if self.successes >= self.rules.probes:
                self.move(CLOSED)
            elif overdue:
                self.move(OPEN)
        elif self.state is OPEN and now >= self.open_until:
            self.move(HALF_OPEN)

    def ends(self, call: Call, verdict: Verdict, now: float) -> None:
        if call.ended:
            return
        call.ended = True
        if call.generation != self.generation:
            return
        if verdict is Verdict.GIVEN_UP:
            waited = now - call.started_at if call.started_at is not None else 0.0
            hung = call.stream and not call.content and waited >= self.slow_after() and call.started_at is not None
            verdict = Verdict.FAILURE if hung else Verdict.NEUTRAL
        if call.probe:
            self.probe_ends(call, verdict)
        elif verdict is Verdict.FAILURE:
            self.row += 1
            standing = [r for r in self.window(now) if r.of is call]
            if standing:
                standing[0].failed = True
            else:
                self.results.append(Result(now, failed=True, slow=False))
            self.judge(now)
        elif verdict in GOOD:
            self.row = 0
            if verdict is Verdict.SUCCESS and not call.counted_slow:
                self.results.append(Result(now, failed=False, slow=False))
                self.judge(now)

    def probe_ends(self, call: Call, verdict: Verdict) -> None:
        if verdict in GOOD:
            self.successes += 1
            if self.successes >= self.rules.probes:
                self.move(CLOSED)
        elif verdict in (Verdict.FAILURE, Verdict.REJECTED):
            self.move(OPEN)
        elif verdict is Verdict.NEUTRAL and call.started_at is not None:
            self.neutral += 1
            if self.neutral == 3:
                self.move(OPEN)


class Breakers(RuleBasedStateMachine):
    """Random interleavings of calls, time and reloads."""

    calls = Bundle("calls")

    @initialize(rules=breaker_settings(), jitter=st.sampled_from([0.0, 0.5, 1.0]))
    def begin(self, rules: BreakerSettings, jitter: float) -> None:
        self.now = 1000.0
        self.told: float | None = None
        self.changes: list[BreakerChange] = []
        self.model = Model(rules)
        self.breaker = Breaker(rules, first_byte=FIRST_BYTE, jitter=lambda: jitter, on_change=self.changed)

    def changed(self, change: BreakerChange) -> None:
        self.changes.append(change)
        if change.new is OPEN:
            most = max(self.model.rules.open_cap, min(self.told or 0.0, LONGEST_EXTENSION_SECONDS))
            assert min(self.model.rules.open_first, most) <= change.open_seconds <= most
            self.model.open_until = self.now + change.open_seconds

    @rule(target=calls, stream=st.booleans())
    def acquire(self, stream: bool) -> object:
        free = len(self.model.probes()) < self.model.rules.probes - self.model.successes
        goes = self.model.state is CLOSED or (self.model.state is HALF_OPEN and free)
        ticket = self.breaker.acquire(self.now, stream=stream)
        assert (ticket is not None) is goes
        if ticket is None:
            assert self.breaker.retry_after(self.now) >= 1.0
            return multiple()
        call = Call(ticket, self.model.generation, self.model.state is HALF_OPEN, stream)
        assert ticket.probe is call.probe
        self.model.calls.append(call)
        return call

    @rule(call=calls)
    def on_wire(self, call: Call) -> None:
        call.ticket.on_wire(self.now)
        if not call.ended and call.started_at is None:
            call.started_at = self.now
            self.model.calls.remove(call)
            self.model.calls.append(call)

    @rule(call=calls)
    def first_content(self, call: Call) -> None:
        if call.started_at is None:
            return
        call.ticket.first_content(self.now)
        if not call.ended:
            call.content = True
            if call.probe and call.stream:
                self.model.ends(call, Verdict.SUCCESS, self.now)

    @rule(call=calls, verdict=VERDICTS, told=st.sampled_from([None, None, 1.0, 20.0, 1000.0]))
    def end(self, call: Call, verdict: Verdict, told: float | None) -> None:
        """Any call may end at any time, again and again, and long after its generation."""
        before = self.breaker.statistics(self.now)
        dead = call.ended or call.generation != self.model.generation
        self.told = told
        call.ticket.end(verdict, self.now, retry_after=told)
        self.told = None
        self.model.ends(call, verdict, self.now)
        if dead:
            assert self.breaker.statistics(self.now) == before

    @rule(verdict=st.sampled_from([Verdict.SUCCESS, Verdict.FAILURE]), times=st.integers(1, 4), stream=st.booleans())
    def whole_calls(self, verdict: Verdict, times: int, stream: bool) -> None:
        """Calls from begin to end, so that the states change often."""
        for _ in range(times):
            call = self.acquire(stream)
            if isinstance(call, Call):
                self.on_wire(call)
                self.end(call, verdict, None)

    @rule(call=consumes(calls))
    def forget(self, call: Call) -> None:
        """A call that nobody hears of again: its task died without a word."""

    @rule(seconds=QUARTERS)
    def passes(self, seconds: float) -> None:
        self.wait_until(self.now + seconds)

    def wait_until(self, when: float) -> None:
        self.now = max(self.now, when)
        self.breaker.tick(self.now)
        self.model.passes(self.now)

    @precondition(lambda self: self.model.state is OPEN)
    @rule()
    def open_time_passes(self) -> None:
        self.wait_until(self.model.open_until)
        assert self.breaker.state is HALF_OPEN

    @rule(rules=breaker_settings())
    def reload(self, rules: BreakerSettings) -> None:
        """The settings change; the next tick makes them count. What has left the window does not come back."""
        self.model.results = self.model.window(self.now)
        self.breaker.reconfigure(rules, first_byte=FIRST_BYTE)
        self.model.rules = rules
        self.passes(0.25)

    @invariant()
    def it_does_as_the_model_says(self) -> None:
        facts = self.breaker.statistics(self.now)
        window = self.model.window(self.now)
        assert facts.state is self.model.state, self.changes
        assert facts.generation == self.model.generation
        assert facts.consecutive == self.model.row
        assert (facts.calls, facts.failures, facts.slow) == (
            len(window),
            sum(r.failed for r in window),
            sum(r.slow for r in window),
        )

    @invariant()
    def probes_are_few_and_none_is_beyond_its_deadline(self) -> None:
        running = self.model.probes()
        assert self.breaker.statistics(self.now).probes_running == len(running)
        assert all(p.started_at is None or self.now < p.started_at + FIRST_BYTE for p in running)

    def teardown(self) -> None:
        """Whatever happened: when its probes have ended or died, a call may go again after the open time at most."""
        if not hasattr(self, "breaker"):
            return
        for call in self.model.probes():
            if call.started_at is None:
                self.end(call, Verdict.NOT_RECORDED, None)
        self.passes(FIRST_BYTE)
        if self.breaker.state is OPEN:
            self.wait_until(self.model.open_until)
        assert self.breaker.acquire(self.now, stream=True) is not None


TestBreakers = Breakers.TestCase
TestBreakers.settings = settings(max_examples=150, stateful_step_count=60)
