"""Probes: the leases that a half-open breaker gives out, and what their ends say together (`semantics.md` §1).

A lease ends once: by success (of a stream: its first content), failure, neutral, without verdict, or by its deadline,
which runs from its start on the wire. One that waits in a queue has no deadline here: the queue ends it, and it goes
back without verdict.
"""

from __future__ import annotations

from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict

MOST_NEUTRAL = 3
"""So many probes that say nothing end a half-open time: who never answers the question is not asked for ever."""


class Probes:
    """The leases of one half-open time; `successes` and `neutral` count those that have ended."""

    __slots__ = ("neutral", "running", "successes")

    def __init__(self) -> None:
        self.running: list[Ticket] = []
        self.successes = self.neutral = 0

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

    def overdue(self, now: float, limit: float) -> Ticket | None:
        """Returns a lease that has been on the wire for `limit` seconds, if there is one."""
        for ticket in self.running:
            if ticket.started_at and ticket.started_at + limit <= now:
                return ticket
        return None

    def clear(self) -> None:
        """The half-open time is over: what still runs belongs to an older generation."""
        self.running.clear()
        self.successes = self.neutral = 0
