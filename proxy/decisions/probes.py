"""Probes: the leases that a half-open breaker gives out, and what their ends say together (`semantics.md` §1).

A lease ends once: by success (of a stream: its first content), failure, neutral, without verdict, or by its deadline,
which runs from its start on the wire. One that waits in a queue has no deadline here: the queue ends it, and it goes
back without verdict.

The deadline is the first-byte limit. An answer in one piece may need longer, by its own limit ten minutes: a provider
that hangs must not hold its leases for so long, nor may a healthy one that is slower than the first-byte limit never
come back. So such a probe has half as much again as the longest good answer in one piece of the last hour, where that
is more, and never more than the answer limit. Where none is known, as after a start, the first probe fails at the
first-byte limit; when its call succeeds all the same, the next half-open time knows.
"""

from __future__ import annotations

from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

PATIENCE = 1.5
REMEMBERED_SECONDS = 3600.0
MOST_NEUTRAL = 3
"""So many probes that say nothing end a half-open time: who never answers the question is not asked for ever."""


class Probes:
    """The leases of one half-open time; `successes` and `neutral` count those that have ended.

    What is known of answers in one piece outlives it.
    """

    __slots__ = ("_longest", "_longest_at", "neutral", "running", "successes")

    def __init__(self) -> None:
        self.running: list[Ticket] = []
        self.successes = self.neutral = 0
        self._longest = self._longest_at = 0.0

    def __len__(self) -> int:
        return len(self.running)

    def __repr__(self) -> str:
        return f"<Probes {len(self)} running, {self.successes} good, {self.neutral} neutral>"

    def free(self, wanted: int) -> bool:
        """Whether one more may go: never more than what is still missing of the `wanted` successes."""
        return len(self.running) < wanted - self.successes

    def ended(self, ticket: Ticket, verdict: Verdict) -> Verdict | None:
        """Takes a lease back; returns what now holds of all of them: FAILURE, NEUTRAL, or None while it is open."""
        self.running.remove(ticket)
        if verdict is Verdict.SUCCESS or verdict is Verdict.HEALTHY:
            self.successes += 1
        elif verdict is Verdict.FAILURE or verdict is Verdict.REJECTED:
            return Verdict.FAILURE
        elif verdict is Verdict.NEUTRAL and ticket.started_at:
            self.neutral += 1
            if self.neutral >= MOST_NEUTRAL:
                return Verdict.NEUTRAL
        return None

    def overdue(self, now: float, *, first_byte: float, answer: float) -> Ticket | None:
        """Returns a lease that is beyond its deadline, if there is one, by these limits in seconds."""
        longer = max(first_byte, min(answer, self._longest * PATIENCE)) if self._remembers(now) else first_byte
        for ticket in self.running:
            if ticket.started_at and ticket.started_at + (first_byte if ticket.stream else longer) <= now:
                return ticket
        return None

    def learn(self, seconds: float, now: float) -> None:
        """Takes note of an answer in one piece that took so long and was good."""
        if seconds >= self._longest or not self._remembers(now):
            self._longest, self._longest_at = seconds, now

    def _remembers(self, now: float) -> bool:
        return now <= self._longest_at + REMEMBERED_SECONDS

    def clear(self) -> None:
        """The half-open time is over: what still runs belongs to an older generation."""
        self.running.clear()
        self.successes = self.neutral = 0
