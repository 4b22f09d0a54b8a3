"""Tickets: a breaker's leave for one call, and what the call tells it on its way (`semantics.md` §1)."""

from __future__ import annotations

from math import inf
from typing import Protocol

from proxy.decisions.verdict import Verdict
from proxy.decisions.window import Entry

SLOW_PART = 2 / 3
"""A call is slow when this part of its first-byte limit has passed (`policy.md`, `breaker.slow`)."""


class Issuer(Protocol):
    """What a ticket needs of the breaker that gave it."""

    def tick(self, now: float) -> None:
        """Moves on what time alone decides."""
        ...

    def watch(self, ticket: Ticket) -> None:
        """Follows a running stream."""
        ...

    def took(self, ticket: Ticket, now: float) -> None:
        """Takes note of a success that came after its lease had ended."""
        ...

    def settle(self, ticket: Ticket, verdict: Verdict, now: float, *, retry_after: float | None) -> None:
        """Takes the end of a call."""
        ...


class Ticket:
    """One call's leave to go; a probe when the breaker is half-open.

    Ends once; later ends change nothing, but a success after a probe's deadline tells how long answers take.
    `started_at` is 0.0 until the call uses the network. `slow_entry` is the window's entry that counts it as slow.
    `slow_after` is after how many seconds an answer in one piece that its caller gives up was slow; whoever ends the
    ticket that way says it.
    """

    __slots__ = (
        "_issuer",
        "content",
        "ended",
        "generation",
        "probe",
        "slow_after",
        "slow_entry",
        "started_at",
        "stream",
    )

    def __init__(self, issuer: Issuer, generation: int, probe: bool, stream: bool) -> None:
        self._issuer = issuer
        self.generation = generation
        self.probe = probe
        self.stream = stream
        self.started_at = 0.0
        self.content = False
        self.ended = False
        self.slow_after = inf
        self.slow_entry: Entry | None = None

    def __repr__(self) -> str:
        kind = "probe" if self.probe else "call"
        return f"<Ticket {kind} of generation {self.generation}{' ended' * self.ended}>"

    def on_wire(self, now: float) -> None:
        """The call uses the network from now on: slow calls and a probe's deadline count from here."""
        if self.ended or self.started_at:
            return
        self.started_at = now
        if self.stream:
            self._issuer.watch(self)

    def first_content(self, now: float) -> None:
        """The first content came: the call is not slow any more, and a streaming probe has succeeded."""
        if self.content or self.ended:
            return
        if not self.stream:
            self.content = True
            return
        self._issuer.tick(now)
        self.content = True
        if self.probe:
            self.end(Verdict.SUCCESS, now)

    def end(self, verdict: Verdict, now: float, *, retry_after: float | None = None) -> None:
        """The call has ended with this verdict; `retry_after` (seconds) may lengthen the open state it causes."""
        if not self.ended:
            self._issuer.tick(now)  # A probe beyond its deadline has failed already, whatever its end says.
        if not self.ended:
            self.ended = True
            self._issuer.settle(self, verdict, now, retry_after=retry_after)
        elif verdict is Verdict.SUCCESS:
            self._issuer.took(self, now)
