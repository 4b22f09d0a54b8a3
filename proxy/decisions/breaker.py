"""Circuit breaker: closed, open, half-open (`semantics.md` §1).

Owns the state of one target (or provider). Every call holds a `Ticket` that ends exactly once. A ticket of an older
generation changes nothing. In half-open a ticket is a probe: a lease that its own deadline ends if nothing else does;
one that waits in a queue is not on the wire yet, and ends with its wait. Time is taken note of at every use, and by one
ticker for the whole process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from proxy.decisions.breaker_state import BreakerChange as BreakerChange
from proxy.decisions.breaker_state import BreakerState as BreakerState
from proxy.decisions.breaker_state import BreakerStatistics as BreakerStatistics
from proxy.decisions.cooldown import Cooldown
from proxy.decisions.probes import Probes
from proxy.decisions.ramp import Ramp
from proxy.decisions.ticket import SLOW_PART, Ticket
from proxy.decisions.verdict import Verdict
from proxy.decisions.window import ResultWindow


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


CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN


class Breaker:
    """The breaker of one target. `jitter()` gives 0-1; `first_byte` and `answer` seconds bound probes (`probes`).

    While `ramp.size` is a number, `ramp.places` is one more limit of the target's calls.
    """

    __slots__ = (
        "_answer", "_changed_at", "_consecutive", "_cooldown", "_first_byte", "_on_ceiling", "_on_change",
        "_open_until", "_probes", "_running", "_slow_after", "_timed", "_told_until", "_window", "generation", "ramp",
        "settings", "state",
    )  # fmt: skip

    def __init__(
        self,
        settings: BreakerSettings,
        *,
        first_byte: float,
        answer: float = inf,
        jitter: Callable[[], float],
        on_change: Callable[[BreakerChange], None] = lambda change: None,
    ) -> None:
        self._on_change = on_change
        self._on_ceiling: Callable[[], None] = lambda: None
        self.state = CLOSED
        self.generation = 0
        self.ramp = Ramp()
        self._timed = False
        self._cooldown = Cooldown(jitter)
        self._window = ResultWindow(calls=settings.window_calls, seconds=settings.window_seconds)
        self._running: deque[Ticket] = deque()
        self._probes = Probes()
        self._consecutive = 0
        self._open_until = self._changed_at = self._told_until = 0.0
        self.reconfigure(settings, first_byte=first_byte, answer=answer)

    def reconfigure(self, settings: BreakerSettings, *, first_byte: float, answer: float = inf, share: int = 0) -> None:
        """Takes new settings; the state, its remaining time and the window's results stay.

        `share` is how many calls may run at once when all is well: a ramp under way goes on towards it from the next
        use or tick on. Not above `probes`, there is nothing to ramp.
        """
        self.settings = settings
        self.ramp.reconfigure(first=settings.probes, share=share)
        self._first_byte = first_byte
        self._answer = answer
        self._slow_after = settings.slow_after if settings.slow_after is not None else first_byte * SLOW_PART
        self._window.calls = settings.window_calls
        self._window.seconds = settings.window_seconds

    def rewire(self, on_change: Callable[[BreakerChange], None], on_ceiling: Callable[[], None] = lambda: None) -> None:
        """Replaces who is told of transitions, and whenever the ceiling appears, moves or goes."""
        self._on_change = on_change
        self._on_ceiling = on_ceiling

    def __repr__(self) -> str:
        return f"<Breaker {self.state} generation {self.generation} {self._window!r}>"

    def acquire(self, now: float, *, stream: bool) -> Ticket | None:
        """Returns a ticket, or None when the breaker is open (or half-open with all its probes running)."""
        if self._running or self._timed:
            self.tick(now)
        if self.state is CLOSED:
            return Ticket(self, self.generation, False, stream)
        if self.state is OPEN or not self._probes.free(self.settings.probes):
            return None
        ticket = Ticket(self, self.generation, True, stream)
        self._probes.running.append(ticket)
        return ticket

    @property
    def room(self) -> float:
        """How many more calls could go when it was last used or ticked: by its state, its probes and its ceiling."""
        if self.state is OPEN:
            return 0
        free = inf if self.state is CLOSED else self.settings.probes - self._probes.successes - len(self._probes)
        return free if self.ramp.size is None else min(free, self.ramp.size - self.ramp.places.used)

    def lets_go(self, now: float) -> bool:
        """Whether `acquire` would give a ticket."""
        self.tick(now)
        return self.state is CLOSED or (self.state is HALF_OPEN and self._probes.free(self.settings.probes))

    def stays_open(self, now: float, seconds: float) -> bool:
        """Whether it is open, and will be longer than this."""
        self.tick(now)
        return self.state is OPEN and self.retry_after(now) > seconds

    def retry_after(self, now: float) -> float:
        """Returns seconds until a call may pass again; one second at least while probes decide."""
        return max(self._open_until - now, 1.0) if self.state is not CLOSED else 0.0

    def tick(self, now: float) -> None:
        """Moves on what time alone decides: slow calls, probes' deadlines, the end of the open state, the ramp."""
        running = self._running
        while running and (running[0].ended or running[0].started_at + self._slow_after <= now):
            self._count_slow(running.popleft(), now)
        if self._timed:
            self._tick_state(now)

    def watch(self, ticket: Ticket) -> None:
        """Follows a running stream, so that it counts as slow while it runs. Calls start in order."""
        self._running.append(ticket)

    def settle(self, ticket: Ticket, verdict: Verdict, now: float, *, retry_after: float | None) -> None:
        """Takes the end of a call; only `Ticket.end` calls this, once."""
        if ticket.generation != self.generation:
            return
        if verdict is Verdict.GIVEN_UP:
            verdict = Verdict.FAILURE if self._hung(ticket, now) else Verdict.NEUTRAL
        if ticket.probe:
            self._settle_probe(ticket, verdict, now, retry_after)
        elif verdict is Verdict.SUCCESS:
            self._consecutive = 0
            if now - ticket.started_at >= self._first_byte:
                self.took(ticket, now)
            if ticket.slow_entry is None:
                window = self._window
                window.succeeded(now)
                if window.failures or window.slow:
                    self._judge(now)
        elif verdict is Verdict.FAILURE:
            self._failed(ticket, now, retry_after)
        elif verdict is Verdict.HEALTHY:
            self._consecutive = 0

    def took(self, ticket: Ticket, now: float) -> None:
        """Takes note of a success that took longer than a stream's first byte may, late ones of probes too."""
        if ticket.started_at and not ticket.stream and (seconds := now - ticket.started_at) >= self._first_byte:
            self._probes.learn(seconds, now)

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
            ceiling=self.ramp.size,
        )

    def _hung(self, ticket: Ticket, now: float) -> bool:
        """Whether a call that its caller gave up was slow already: else a hung provider stays invisible."""
        if not ticket.started_at or ticket.content:
            return False
        return now - ticket.started_at >= (self._slow_after if ticket.stream else ticket.slow_after)

    def _failed(self, ticket: Ticket, now: float, retry_after: float | None) -> None:
        if retry_after is not None:
            self._told_until = max(now + retry_after, self._told_until if self._consecutive else 0.0)
        elif not self._consecutive:
            self._told_until = 0.0
        self._consecutive += 1
        if ticket.slow_entry is None or not self._window.fail(ticket.slow_entry, now):
            self._window.add(now, failed=True)
        self._judge(now)

    def _count_slow(self, ticket: Ticket, now: float) -> None:
        if ticket.ended or ticket.content or ticket.probe or ticket.generation != self.generation:
            return
        ticket.slow_entry = self._window.add(now, failed=False, slow=True)
        self._judge(now)

    def _judge(self, now: float) -> None:
        """Opens when one of the three rules holds; asked after every result."""
        settings, window = self.settings, self._window
        if settings.consecutive and self._consecutive >= settings.consecutive:
            self._fall("consecutive", now)
        elif (calls := len(window)) >= settings.min_calls:
            if window.failures > settings.failure_ratio * calls:
                self._fall("failure_ratio", now)
            elif window.slow > settings.slow_ratio * calls:
                self._fall("slow", now)

    def _fall(self, why: str, now: float) -> None:
        """Opens a closed breaker, for as long as the failures in a row told, if that is longer."""
        self._cooldown.healthy(now - self._changed_at)
        self._open(why, now, told=self._told_until - now if self._consecutive else 0.0)

    def _tick_state(self, now: float) -> None:
        if self.state is HALF_OPEN:
            self._tick_probes(now)
        elif self.state is OPEN and now >= self._open_until:
            self._move(HALF_OPEN, "waited", now)
        if self.ramp.advance(now):
            self._on_ceiling()
        self._timed = self.state is not CLOSED or self.ramp.since is not None

    def _tick_probes(self, now: float) -> None:
        if self._probes.successes >= self.settings.probes:
            self._move(CLOSED, "probes_ok", now)
        elif (late := self._probes.overdue(now, first_byte=self._first_byte, answer=self._answer)) is not None:
            late.ended = True
            self._settle_probe(late, Verdict.FAILURE, now, None)

    def _settle_probe(self, ticket: Ticket, verdict: Verdict, now: float, retry_after: float | None) -> None:
        said = self._probes.ended(ticket, verdict)
        if said is Verdict.FAILURE:
            self._open("probe_failed", now, told=retry_after or 0.0)
        elif said is Verdict.NEUTRAL:
            self._open("probe_neutral", now, told=0.0)
        elif self._probes.successes >= self.settings.probes:
            self._move(CLOSED, "probes_ok", now)

    def _open(self, why: str, now: float, *, told: float) -> None:
        settings, cooldown = self.settings, self._cooldown
        stay = cooldown.same if why == "probe_neutral" else cooldown.longer
        seconds = stay(settings.open_first, settings.open_cap, told=told)
        self._open_until = now + seconds
        self._move(OPEN, why, now, open_seconds=seconds)

    def _move(self, state: BreakerState, why: str, now: float, *, open_seconds: float = 0.0) -> None:
        change = BreakerChange(old=self.state, new=state, why=why, open_seconds=open_seconds)
        self.state = state
        self.generation += 1
        self._changed_at = now
        self._probes.clear()
        self._consecutive = 0
        if state is CLOSED:
            self._window.clear()
            self.ramp.rise(now)
        elif state is HALF_OPEN:
            self.ramp.hold()
        else:
            self.ramp.end()
        self._timed = True
        if self.ramp.advance(now):
            self._on_ceiling()
        self._on_change(change)
