"""What must be kept, whatever happens: limits as they are in force at a moment, and every breach of a promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

GRACE_SECONDS = 0.5
"""After a change is seen to be live: so long may a call that was let go before it still be on its way."""
KEPT = 5


class Promise(StrEnum):
    """What is promised, in the words of the report."""

    NO_FAILURE = "no request fails"
    LIMITS = "no provider, model or key gets more at once than is allowed"
    BREAKER = "no reload closes a breaker"
    KEYS = "a resting key rests on, a parked one stays parked"
    QUEUE = "nobody loses a place in a queue"
    QUOTAS = "no reload refills a bucket"
    POOLS = "connections stay where the address stays"
    WHOLE = "no half and no invalid policy goes live"
    REVISIONS = "every policy is one revision"
    LIVE = "what is written is in force"
    HONEST = "every answer is whole, or visibly broken off, and comes"
    AGENTS = "no agent sees an error"
    ONCE = "no write of an agent is executed twice"
    DELAY = "agents wait no longer than the provider lets them"
    REST = "permits, queues, bodies, breakers and keys are as at first"
    CONNECTIONS = "connections on both sides end"
    TASKS = "tasks stay flat"
    OBJECTS = "nothing is left in memory"
    FREED = "what has ended is freed at once"
    MEMORY = "memory stays flat"
    DESCRIPTORS = "descriptors stay flat"
    CLEAN = "the log tells of no bug, and the end is clean"


@dataclass(slots=True)
class Book:
    """Counts what is in flight by scope, against the limits in force; takes down breaches. `now()` is monotonic."""

    now: Callable[[], float]
    allowed: dict[str, int] = field(default_factory=dict)
    coming: dict[str, int] = field(default_factory=dict)
    comes_at: float = float("inf")
    in_flight: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    breaches: Counter[Promise] = field(default_factory=Counter)
    examples: dict[Promise, list[str]] = field(default_factory=dict)

    def breach(self, promise: Promise, what: str) -> None:
        """Takes down that a promise was broken, with the first few descriptions."""
        self.breaches[promise] += 1
        examples = self.examples.setdefault(promise, [])
        if len(examples) < KEPT:
            examples.append(what)

    def expect(self, limits: Mapping[str, int]) -> None:
        """A policy with these limits may be live from now on: the higher of old and new is allowed."""
        self._settle()
        self.comes_at = float("inf")
        for scope in {*self.allowed, *limits}:
            values = [table[scope] for table in (self.allowed, limits) if scope in table]
            self.allowed[scope] = max(values)

    def live(self, limits: Mapping[str, int]) -> None:
        """The policy with these limits is live."""
        self.coming, self.comes_at = dict(limits), self.now() + GRACE_SECONDS

    def taken(self, scopes: Iterable[str]) -> None:
        """A call has come that counts in these scopes; what no policy limits is not judged."""
        self._settle()
        for scope in scopes:
            self.in_flight[scope] += 1
            self.judged += 1
            count, allowed = self.in_flight[scope], self.allowed.get(scope)
            if allowed is None:
                continue
            if count > allowed:
                self.breach(Promise.LIMITS, f"{scope}: {count} at once, {allowed} allowed")
            elif count == allowed:
                self.reached[scope] += 1

    def given(self, scopes: Iterable[str]) -> None:
        """The call ends."""
        for scope in scopes:
            self.in_flight[scope] -= 1

    def _settle(self) -> None:
        if self.now() >= self.comes_at:
            self.allowed.update(self.coming)
            self.comes_at = float("inf")
