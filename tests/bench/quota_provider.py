"""The provider and the calls of the quota experiment: calls of many kinds, counted by one of three rules.

Calls are prose and code, short and long, with open and with bounded answers; some are cut, fail, are never sent or are
answered without usage.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from proxy.dialects.demand import Demand
from proxy.exchange import Attempt, PhaseLimits, Usage
from proxy.outcome import OutcomeKind

LIMITS = PhaseLimits(connect=5.0, first_byte=30.0, answer=600.0, idle=30.0, stream=3600.0)
TOKENS_PER_SECOND = 80.0


class Rule(StrEnum):
    """How a provider counts tokens."""

    AS_USED = "as used"
    """The prompt at arrival, the output when it is there."""
    IN_ADVANCE = "in advance"
    """The prompt and all that the caller allows at arrival; what was not used comes back at the end."""
    FOR_GOOD = "for good"
    """The same, but nothing comes back."""


@dataclass(slots=True, eq=False)
class Call:
    """One call: what it asks for, and what will really come of it."""

    demand: Demand
    prompt: int
    output: int
    kind: OutcomeKind
    status: int
    stream: bool
    reports: bool
    reserved: float = 0.0
    counted: float = 0.0

    @property
    def sent(self) -> bool:
        """Whether the provider gets to see it."""
        return self.kind is not OutcomeKind.UNREACHABLE

    def ended(self) -> Attempt:
        """Returns the record that the proxy has of its end."""
        attempt = Attempt(1, 1, "alpha", "m", LIMITS)
        attempt.kind, attempt.status = self.kind, self.status
        attempt.sent_bytes = self.demand.text_bytes if self.sent else 0
        attempt.head_at = 1.0 if self.status else 0.0
        attempt.answer_bytes = self.output * (220 if self.stream else 5)
        if self.reports and self.kind is OutcomeKind.OK:
            attempt.usage = Usage(self.prompt, self.output)
        return attempt


@dataclass(slots=True, eq=False)
class Provider:
    """A provider's own count of tokens, and its refusals."""

    rule: Rule
    per_second: float
    level: float
    capacity: float
    at: float = 0.0
    counted: float = 0.0
    refusals: int = 0

    def arrives(self, call: Call, now: float) -> None:
        """Counts a call at its arrival, or refuses it: 429."""
        self._refill(now)
        advance = 0 if self.rule is Rule.AS_USED else call.demand.output_limit or 0
        if call.prompt + advance > self.level:
            self.refusals += 1
            call.kind, call.status, call.output = OutcomeKind.RATE_LIMITED, 429, 0
            return
        self._count(call, call.prompt + advance)

    def ends(self, call: Call, now: float) -> None:
        """Counts what is known only now."""
        self._refill(now)
        if call.kind is OutcomeKind.RATE_LIMITED:
            return
        used = call.prompt + call.output
        if self.rule is not Rule.FOR_GOOD or used > call.counted:
            self._count(call, used - call.counted)

    def _count(self, call: Call, tokens: float) -> None:
        call.counted += tokens
        self.counted += tokens
        self.level = min(self.level - tokens, self.capacity)

    def _refill(self, now: float) -> None:
        self.level = min(self.level + (now - self.at) * self.per_second, self.capacity)
        self.at = now


def make_call(random: Random) -> Call:
    """Returns the next call of the mix."""
    shape = random.random()
    if shape < 0.6:
        size, ratio, limit = random.randint(300, 3000), random.gauss(4.3, 0.3), None
        output = min(round(random.lognormvariate(4.8, 0.7)), 2000) + 1
    elif shape < 0.85:
        size, ratio, limit = random.randint(8_000, 48_000), random.gauss(4.3, 0.3), 512
        output = random.randint(50, limit)
    else:
        size, ratio, limit = random.randint(2_000, 12_000), random.gauss(2.6, 0.2), 1024
        output = random.randint(100, limit)
    call = Call(
        Demand(text_bytes=size, max_output=limit),
        prompt=max(round(size / ratio), 1),
        output=output,
        kind=OutcomeKind.OK,
        status=200,
        stream=random.random() < 0.6,
        reports=random.random() < 0.95,
    )
    _spoil(call, random.random(), random)
    return call


def _spoil(call: Call, chance: float, random: Random) -> None:
    """Lets one call in ten end badly."""
    if chance < 0.04:
        call.kind, call.output, call.stream = OutcomeKind.CLIENT_LEFT, random.randint(0, call.output), True
    elif chance < 0.07:
        call.kind, call.status, call.output = OutcomeKind.UPSTREAM_ERROR, 503, 0
    elif chance < 0.09:
        call.kind, call.status, call.output = OutcomeKind.UNREACHABLE, 0, 0
    elif chance < 0.10:
        call.kind, call.status = OutcomeKind.DISCONNECTED, 0
