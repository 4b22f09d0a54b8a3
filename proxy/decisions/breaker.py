"""Circuit breaker: closed, open, half-open (`semantics.md` §1).

Owns the state of one target (or provider). Every call holds a `Ticket` that ends exactly once. A ticket of an older
generation changes nothing. In half-open a ticket is a probe: a lease that its own deadline ends if nothing else does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from proxy.decisions.window import Entry, ResultWindow
from proxy.outcome import Outcome, OutcomeKind

NEUTRAL_PROBES = 3
LONGEST_EXTENSION_SECONDS = 300.0
JITTER_SPAN = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """`breaker`: when it opens, for how long, and what closes it. Seconds; ratios 0-1; 0 `consecutive` means off.

    `slow_after` None means two thirds of the first-byte limit.
    """

    failure_ratio: float = 0.4
    window_calls: int = 100
    window_seconds: float = 60.0
    min_calls: int = 20
    consecutive: int = 10
    slow_after: float | None = None
    slow_ratio: float = 0.8
    open_first: float = 30.0
    open_cap: float = 60.0
    probes: int = 3
    per_provider: bool = False
    """`scope: provider`."""


class BreakerState(StrEnum):
    """The field's three states."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Verdict(StrEnum):
    """What the end of a call says about the target."""

    SUCCESS = "success"
    HEALTHY = "healthy"
    """The server lives, but the call says nothing about its success (other 4xx): outside the ratio."""
    FAILURE = "failure"
    REJECTED = "rejected"
    """429: neutral, but it fails a probe."""
    NEUTRAL = "neutral"
    NOT_RECORDED = "not_recorded"
    """Refused locally: a probe's place goes back without verdict."""


_VERDICTS: dict[OutcomeKind, Verdict] = {
    OutcomeKind.OK: Verdict.SUCCESS,
    OutcomeKind.CALLER_ERROR: Verdict.HEALTHY,
    OutcomeKind.RATE_LIMITED: Verdict.REJECTED,
    OutcomeKind.CREDENTIAL_REJECTED: Verdict.NEUTRAL,
    OutcomeKind.UPSTREAM_ERROR: Verdict.FAILURE,
    OutcomeKind.ERROR_IN_ANSWER: Verdict.FAILURE,
    OutcomeKind.UNREACHABLE: Verdict.FAILURE,
    OutcomeKind.CONNECT_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.DISCONNECTED: Verdict.FAILURE,
    OutcomeKind.BAD_ANSWER: Verdict.FAILURE,
    OutcomeKind.FIRST_BYTE_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.ANSWER_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.IDLE_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.STREAM_BROKEN: Verdict.FAILURE,
    OutcomeKind.STREAM_TIMEOUT: Verdict.NEUTRAL,
    OutcomeKind.TOTAL_TIMEOUT: Verdict.NEUTRAL,
    OutcomeKind.CLIENT_LEFT: Verdict.NEUTRAL,
    OutcomeKind.DRAINED: Verdict.NEUTRAL,
    OutcomeKind.REFUSED: Verdict.NOT_RECORDED,
    OutcomeKind.ANSWERED: Verdict.NOT_RECORDED,
    OutcomeKind.BUG: Verdict.NOT_RECORDED,
}


def verdict_of(outcome: Outcome) -> Verdict:
    """Judges an outcome by the table of `semantics.md` §1 (slow calls are judged by their ticket)."""
    return _VERDICTS[outcome.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChange:
    """One transition, and why: failure_ratio, consecutive, slow, probe_failed, probe_neutral, probes_ok, waited."""

    old: BreakerState
    new: BreakerState
    why: str
    open_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerStatistics:
    """A snapshot for `/status` and gauges."""

    state: BreakerState
    calls: int
    failures: int
    slow: int
    consecutive: int
    probes_running: int
    retry_after: float
    generation: int


class Ticket:
    """One call's leave to go; a probe when the breaker is half-open. Ends once; later ends change nothing."""

    __slots__ = ("_breaker", "_entry", "content", "ended", "generation", "probe", "started_at", "stream")

    def __init__(self, breaker: Breaker, generation: int, *, probe: bool, stream: bool) -> None:
        self._breaker = breaker
        self._entry: Entry | None = None
        self.generation = generation
        self.probe = probe
        self.stream = stream
        self.started_at = 0.0
        self.content = False
        self.ended = False

    def on_wire(self, now: float) -> None:
        """The call uses the network from now on: slow calls and a probe's deadline count from here."""
        self.started_at = now
        if self.stream and not self.ended:
            self._breaker.watch(self)

    def first_content(self, now: float) -> None:
        """The first content came: the call is not slow any more, and a streaming probe has succeeded."""
        self.content = True
        if self.probe and self.stream:
            self.end(Verdict.SUCCESS, now)

    def end(self, verdict: Verdict, now: float, *, retry_after: float | None = None) -> None:
        """The call has ended with this verdict; `retry_after` (seconds) may lengthen the open state it causes."""
        if not self.ended:
            self.ended = True
            self._breaker.settle(self, verdict, now, retry_after=retry_after)

    def became_slow(self, entry: Entry) -> None:
        """The breaker has counted this call as slow, as `entry` of its window."""
        self._entry = entry

    @property
    def slow_entry(self) -> Entry | None:
        """The window's entry that counts this call as slow already."""
        return self._entry


class Breaker:
    """The breaker of one target. `jitter()` gives 0-1; `first_byte` seconds bound a probe."""

    __slots__ = (
        "_changed_at",
        "_consecutive",
        "_exponent",
        "_first_byte",
        "_jitter",
        "_last_open",
        "_neutral",
        "_on_change",
        "_open_until",
        "_probes",
        "_running",
        "_slow_after",
        "_successes",
        "_window",
        "generation",
        "settings",
        "state",
    )

    def __init__(
        self,
        settings: BreakerSettings,
        *,
        first_byte: float,
        jitter: Callable[[], float],
        on_change: Callable[[BreakerChange], None] = lambda change: None,
    ) -> None:
        self._jitter = jitter
        self._on_change = on_change
        self.state = BreakerState.CLOSED
        self.generation = 0
        self._window = ResultWindow(calls=settings.window_calls, seconds=settings.window_seconds)
        self._running: deque[Ticket] = deque()
        self._probes: list[Ticket] = []
        self._consecutive = self._exponent = self._successes = self._neutral = 0
        self._open_until = self._last_open = self._changed_at = 0.0
        self.reconfigure(settings, first_byte=first_byte)

    def reconfigure(self, settings: BreakerSettings, *, first_byte: float) -> None:
        """Takes new settings; the state, its remaining time and the window's results stay."""
        self.settings = settings
        self._first_byte = first_byte
        self._slow_after = settings.slow_after if settings.slow_after is not None else first_byte * 2 / 3
        self._window.calls = settings.window_calls
        self._window.seconds = settings.window_seconds

    def rewire(self, on_change: Callable[[BreakerChange], None]) -> None:
        """Replaces who is told of transitions."""
        self._on_change = on_change

    def __repr__(self) -> str:
        return f"<Breaker {self.state} generation {self.generation} {self._window!r}>"

    def acquire(self, now: float, *, stream: bool) -> Ticket | None:
        """Returns a ticket, or None when the breaker is open (or half-open with all its probes running)."""
        self.tick(now)
        if self.state is BreakerState.CLOSED:
            return Ticket(self, self.generation, probe=False, stream=stream)
        if self.state is BreakerState.OPEN or len(self._probes) >= self.settings.probes - self._successes:
            return None
        ticket = Ticket(self, self.generation, probe=True, stream=stream)
        self._probes.append(ticket)
        return ticket

    def retry_after(self, now: float) -> float:
        """Returns seconds until a call may pass again; one second at least while probes decide."""
        return max(self._open_until - now, 1.0) if self.state is not BreakerState.CLOSED else 0.0

    def tick(self, now: float) -> None:
        """Moves on what time alone decides: slow calls, probes' deadlines, the end of the open state."""
        running = self._running
        while running and (running[0].ended or running[0].started_at + self._slow_after <= now):
            self._count_slow(running.popleft(), now)
        if self.state is BreakerState.HALF_OPEN:
            for probe in [p for p in self._probes if p.started_at and p.started_at + self._first_byte <= now]:
                probe.end(Verdict.FAILURE, now)
        elif self.state is BreakerState.OPEN and now >= self._open_until:
            self._move(BreakerState.HALF_OPEN, "waited", now)

    def watch(self, ticket: Ticket) -> None:
        """Follows a running stream, so that it counts as slow while it runs. Calls start in order."""
        self._running.append(ticket)

    def settle(self, ticket: Ticket, verdict: Verdict, now: float, *, retry_after: float | None) -> None:
        """Takes the end of a call; only `Ticket.end` calls this, once."""
        if verdict is Verdict.NEUTRAL and self._hung(ticket, now):
            verdict = Verdict.FAILURE
        if ticket.generation != self.generation:
            return
        if ticket.probe:
            self._settle_probe(ticket, verdict, now, retry_after)
        elif verdict is Verdict.FAILURE:
            self._failed(ticket, now, retry_after)
        elif verdict is Verdict.SUCCESS or verdict is Verdict.HEALTHY:
            self._consecutive = 0
            if verdict is Verdict.SUCCESS and ticket.slow_entry is None:
                self._window.add(now, failed=False)

    def statistics(self, now: float) -> BreakerStatistics:
        """Returns a snapshot that is true at `now`."""
        self.tick(now)
        self._window.expire(now)
        return BreakerStatistics(
            state=self.state,
            calls=len(self._window),
            failures=self._window.failures,
            slow=self._window.slow,
            consecutive=self._consecutive,
            probes_running=len(self._probes),
            retry_after=self.retry_after(now),
            generation=self.generation,
        )

    def _hung(self, ticket: Ticket, now: float) -> bool:
        """Whether a call that its client gave up was slow already: else a hung provider stays invisible."""
        return bool(ticket.stream and ticket.started_at and not ticket.content) and (
            now - ticket.started_at >= self._slow_after
        )

    def _failed(self, ticket: Ticket, now: float, retry_after: float | None) -> None:
        if ticket.slow_entry is not None:
            self._window.fail(ticket.slow_entry, now)
        else:
            self._window.add(now, failed=True)
        self._consecutive += 1
        settings = self.settings
        if settings.consecutive and self._consecutive >= settings.consecutive:
            self._open("consecutive", now, retry_after=retry_after)
        elif self._over(self._window.failures, settings.failure_ratio):
            self._open("failure_ratio", now, retry_after=retry_after)

    def _count_slow(self, ticket: Ticket, now: float) -> None:
        if ticket.ended or ticket.content or ticket.probe or ticket.generation != self.generation:
            return
        ticket.became_slow(self._window.add(now, failed=False, slow=True))
        if self._over(self._window.slow, self.settings.slow_ratio):
            self._open("slow", now, retry_after=None)

    def _over(self, count: int, ratio: float) -> bool:
        calls = len(self._window)
        return calls >= self.settings.min_calls and count > ratio * calls

    def _settle_probe(self, ticket: Ticket, verdict: Verdict, now: float, retry_after: float | None) -> None:
        self._probes.remove(ticket)
        if verdict is Verdict.SUCCESS or verdict is Verdict.HEALTHY:
            self._successes += 1
            if self._successes >= self.settings.probes:
                self._move(BreakerState.CLOSED, "probes_ok", now)
        elif verdict is Verdict.FAILURE or verdict is Verdict.REJECTED:
            self._open("probe_failed", now, retry_after=retry_after)
        elif verdict is Verdict.NEUTRAL:
            self._neutral += 1
            if self._neutral >= NEUTRAL_PROBES:
                self._exponent = max(0, self._exponent - 1)
                self._open("probe_neutral", now, retry_after=None)

    def _open(self, why: str, now: float, *, retry_after: float | None) -> None:
        settings = self.settings
        if self.state is BreakerState.CLOSED and self._last_open:
            self._exponent = max(0, self._exponent - int((now - self._changed_at) / (2 * self._last_open)))
        seconds = settings.open_first * 2.0 ** min(self._exponent, 30) * (1.0 + JITTER_SPAN * self._jitter())
        seconds = min(max(seconds, settings.open_first), settings.open_cap)
        self._last_open = seconds
        self._exponent += 1
        if retry_after is not None:
            seconds = max(seconds, min(retry_after, LONGEST_EXTENSION_SECONDS))
        self._open_until = now + seconds
        self._move(BreakerState.OPEN, why, now, open_seconds=seconds)

    def _move(self, state: BreakerState, why: str, now: float, *, open_seconds: float = 0.0) -> None:
        change = BreakerChange(old=self.state, new=state, why=why, open_seconds=open_seconds)
        self.state = state
        self.generation += 1
        self._changed_at = now
        self._probes.clear()
        self._successes = self._neutral = self._consecutive = 0
        if state is BreakerState.CLOSED:
            self._window.clear()
        self._on_change(change)
