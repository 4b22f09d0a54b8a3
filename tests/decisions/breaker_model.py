"""What `semantics.md` §1 says of a breaker, told once more in the simplest way: everything is counted anew each time.

`Model` knows nothing of the breaker; `breaker_pair.Pair` drives both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from proxy.decisions.breaker import BreakerSettings, BreakerState
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
GOOD = (Verdict.SUCCESS, Verdict.HEALTHY)
BAD = (Verdict.FAILURE, Verdict.REJECTED)
MOST_TOLD = 300.0
RAMP = 10
ANSWER = 12.0
HOUR = 3600


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
        self.longest = (0.0, -inf)

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

    def deadline(self, call: Call, now: float) -> float:
        """When a probe on the wire has failed; one without a stream has more where long answers are known."""
        assert call.started_at is not None
        seconds, at = self.longest
        known = min(1.5 * seconds, ANSWER) if now - at <= HOUR and not call.stream else 0.0
        return call.started_at + max(self.first_byte, known)

    def learns(self, call: Call, now: float) -> None:
        """A success of an answer in one piece tells how long such answers take, if that is long."""
        counts = call.ended or (call.generation == self.generation and not call.probe)
        if counts and not call.stream and call.started_at is not None and now - call.started_at >= self.first_byte:
            seconds, at = self.longest
            if now - call.started_at >= seconds or now - at > HOUR:
                self.longest = (now - call.started_at, now)

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
            overdue = [c for c in self.leases() if c.started_at is not None and self.deadline(c, now) <= now]
            if self.successes >= self.rules.probes:
                self.move(CLOSED, now)
            elif overdue:
                overdue[0].ended = True
                self.open(now)

    def ends(self, call: Call, verdict: Verdict, told: float | None, now: float) -> None:
        if verdict is Verdict.SUCCESS:
            self.learns(call, now)
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
