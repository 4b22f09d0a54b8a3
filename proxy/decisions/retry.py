"""Retry: again or not, and after how long (`policy.md` rule 7, `semantics.md` §5).

The one retry loop's brain. Key choices stand outside attempts and budget; back-off is told, never slept, here.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass

from proxy.decisions.window import RateWindow
from proxy.outcome import Outcome, OutcomeKind

MOST_KEY_CHOICES = 3
LONGEST_WAIT_WITH_NEXT_TIER = 1.0
BUDGET_SECONDS = 10.0
BUDGET_FLOOR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """`retry`: calls per tier, the first included; back-off in seconds; retries as a part of all calls (0-1)."""

    attempts: int = 3
    base: float = 0.25
    cap: float = 30.0
    budget: float = 0.2


RETRYABLE = frozenset(
    {
        OutcomeKind.UNREACHABLE,
        OutcomeKind.CONNECT_TIMEOUT,
        OutcomeKind.DISCONNECTED,
        OutcomeKind.BAD_ANSWER,
        OutcomeKind.UPSTREAM_ERROR,
        OutcomeKind.ERROR_IN_ANSWER,
        OutcomeKind.RATE_LIMITED,
        OutcomeKind.STREAM_BROKEN,
    }
)
"""What the same target may answer better a moment later. A timeout is not: the next tier is asked instead."""

KEY_KINDS = frozenset({OutcomeKind.RATE_LIMITED, OutcomeKind.CREDENTIAL_REJECTED})


def attempts_for_tier(settings: RetrySettings, *, left: int, later_tiers: int) -> int:
    """Returns how many calls this tier may make when the exchange has `left`: every later tier keeps one."""
    return max(1, min(settings.attempts, left - later_tiers))


def attempts_in_all(settings: RetrySettings, *, provider_tiers: int, caller_retries: int) -> int:
    """Returns the calls an exchange may make: `attempts` + later provider tiers, fewer for a caller that retries."""
    return max(1, settings.attempts - caller_retries) + max(0, provider_tiers - 1)


def backoff_seconds(settings: RetrySettings, *, retry: int, request_id: str) -> float:
    """Returns min(cap, base · 2ⁿ · factor), n = 0 for the first retry, factor 0.5-1.5 from the request id."""
    digest = hashlib.blake2b(f"{request_id}:{retry}".encode(), digest_size=8).digest()
    factor = 0.5 + int.from_bytes(digest) / 2**64
    return min(settings.cap, settings.base * 2.0 ** min(retry, 60) * factor)


class RetryBudget:
    """How many retries the calls of the last 10 s allow: 10, else a part of all calls.

    Retries are rare and counted one by one, so that no 10 s have more of them than that. Calls are counted in steps of
    a second: those of the last 9 to 10 s.
    """

    __slots__ = ("_calls", "_retries", "ratio")

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self._calls = RateWindow(seconds=BUDGET_SECONDS)
        self._retries: deque[float] = deque()

    def __repr__(self) -> str:
        return f"<RetryBudget {self.ratio:g} of all calls, {len(self._retries)} retries taken>"

    def reconfigure(self, ratio: float) -> None:
        """Changes the ratio; what was counted stays counted."""
        self.ratio = ratio

    def called(self, now: float) -> None:
        """Counts a first call."""
        self._calls.add(now)

    def take(self, now: float) -> bool:
        """Takes one retry from the budget, or returns False when it is spent."""
        retries = self._retries
        while retries and retries[0] <= now - BUDGET_SECONDS:
            retries.popleft()
        if len(retries) + 1 > max(BUDGET_FLOOR, self.ratio * self._calls.total(now)):
            return False
        retries.append(now)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Call this tier again after `delay` seconds; `other_key` when nothing but the key changes."""

    delay: float = 0.0
    other_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """Call this tier no more; `spent` when more would have been tried, had attempts or budget been left."""

    spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the retry decision looks at besides the outcome.

    `calls` made by this tier so far and `allowed` in all, key choices apart. `other_key`: a key that this request has
    not tried is usable now. `keys_rest`: seconds until any key is usable (0: now), of which admission would wait
    `longest_rest`. `repeatable`: the request may be executed twice; `resendable`: its body is still there.
    `seconds_left` until the deadline.
    """

    calls: int
    allowed: int
    key_choices: int
    other_key: bool
    own_key: bool
    keys_rest: float
    longest_rest: float
    repeatable: bool
    resendable: bool
    later_tier: bool
    seconds_left: float
    request_id: str


def decide(outcome: Outcome, at: Situation, settings: RetrySettings) -> Again | Enough:
    """Decides what follows an outcome within its tier; the budget is asked by the caller, for an `Again` with delay."""
    if outcome.committed or not at.resendable or (outcome.maybe_executed and not at.repeatable):
        return Enough()
    if outcome.kind in KEY_KINDS and at.own_key:
        fault = outcome.kind is OutcomeKind.RATE_LIMITED or outcome.key_fault
        if fault and at.other_key and at.key_choices < MOST_KEY_CHOICES:
            return Again(other_key=True)
    if outcome.should_retry is False or not worth_another(outcome):
        return Enough()
    if at.calls >= at.allowed:
        return Enough(spent=at.allowed > 1)
    return _wait(outcome, at, settings)


def _wait(outcome: Outcome, at: Situation, settings: RetrySettings) -> Again | Enough:
    """Decides whether the time until another try is worth it.

    What our keys rest is waited for in admission, which is not even asked when it would refuse.
    """
    delay = backoff_seconds(settings, retry=at.calls - 1, request_id=at.request_id)
    rests = outcome.kind is OutcomeKind.RATE_LIMITED and at.own_key
    known = max(at.keys_rest if rests else outcome.retry_after or 0.0, delay)
    if at.later_tier and known > LONGEST_WAIT_WITH_NEXT_TIER:
        return Enough()
    if known >= at.seconds_left or (rests and known > delay + at.longest_rest):
        return Enough(spent=True)
    return Again(delay=delay if rests else known)


def worth_another(outcome: Outcome) -> bool:
    """Whether the same request may succeed at the same target a moment later."""
    if outcome.kind in RETRYABLE:
        return not outcome.key_fault
    return outcome.should_retry is True and outcome.kind is OutcomeKind.CALLER_ERROR
