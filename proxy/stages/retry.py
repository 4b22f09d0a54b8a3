"""Retry: the one retry loop of the product. Back-off holds nothing; the deadline bounds it."""

from __future__ import annotations

from typing import Protocol

from proxy.clock import Clock
from proxy.decisions.keys import KeyRing, Pinned
from proxy.decisions.retry import (
    MOST_KEY_CHOICES,
    Again,
    Enough,
    RetryBudget,
    RetrySettings,
    Situation,
    attempts_for_tier,
    decide,
)
from proxy.exchange import Exchange
from proxy.observer import Retried
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stage import CallNext


class Opening(Protocol):
    """A breaker, or all of a provider's several addresses together."""

    def stays_open(self, now: float, seconds: float) -> bool:
        """Whether it would refuse a call that comes in so many seconds."""
        ...


class RetryStage:
    """Calls one tier until it has answered, or another try would not help.

    `longest_rest`: seconds for which admission lets a call wait until a key has rested.
    """

    __slots__ = ("_breaker", "_budget", "_clock", "_longest_rest", "_ring", "_settings")

    def __init__(
        self,
        settings: RetrySettings,
        *,
        budget: RetryBudget,
        breaker: Opening | None,
        ring: KeyRing | None,
        longest_rest: float,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._breaker = breaker
        self._ring = ring
        self._longest_rest = longest_rest
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Returns the last outcome that says something: a local refusal of a retry gives way to what was before it."""
        allowed = attempts_for_tier(self._settings, left=exchange.attempts_left, later_tiers=exchange.attempts_kept)
        exchange.tried_keys = None
        before: Outcome | None = None
        calls = choices = 0
        chosen = False
        self._budget.called(self._clock.now())
        while True:
            if not chosen:
                calls += 1
            exchange.replaceable = exchange.resendable and (
                calls < allowed or exchange.later_tiers > 0 or self._may_choose(choices)
            )
            outcome = await call_next(exchange)
            if outcome.local:
                exchange.attempts_left -= calls if chosen else calls - 1
                return outcome if before is None else _told(before, spent=calls > 1)
            if outcome.committed or outcome.kind is OutcomeKind.OK:
                return outcome
            self._keep_answer(exchange, before, outcome)
            if before is not None and before.maybe_executed:
                _stays_unknown(exchange, outcome)
            again = self._decide(exchange, outcome, calls=calls, allowed=allowed, choices=choices)
            if isinstance(again, Enough):
                exchange.attempts_left -= calls
                return _told(self._to_tell(before, outcome), spent=again.spent or calls > 1)
            chosen = again.other_key
            choices += chosen
            await self._pause(exchange, outcome, again)
            before = outcome

    def _decide(
        self, exchange: Exchange, outcome: Outcome, *, calls: int, allowed: int, choices: int
    ) -> Again | Enough:
        now = self._clock.now()
        ring = self._ring
        if outcome.maybe_executed and not self._may_repeat(exchange, now):
            return Enough()
        situation = Situation(
            calls=calls,
            allowed=allowed,
            key_choices=choices,
            other_key=ring is not None and ring.has_other(now, exchange.tried_keys or ()),
            own_key=ring is not None,
            keys_rest=self._keys_rest(now),
            longest_rest=self._longest_rest,
            repeatable=exchange.repeatable or outcome.maybe_executed,
            resendable=exchange.resendable,
            later_tier=exchange.later_tiers > 0,
            seconds_left=exchange.deadline_at - now,
            request_id=exchange.facts.request_id,
        )
        again = decide(outcome, situation, self._settings)
        if isinstance(again, Enough):
            return again
        if self._stays_open(now, again.delay) or not (again.other_key or self._budget.take(now)):
            return Enough(spent=True)
        return again

    def _may_repeat(self, exchange: Exchange, now: float) -> bool:
        """Whether what may have been executed may be sent again."""
        return exchange.repeatable

    def _may_choose(self, choices: int) -> bool:
        """Whether another key may answer what this one cannot."""
        return self._ring is not None and choices < MOST_KEY_CHOICES and len(self._ring.keys) > 1

    def _keys_rest(self, now: float) -> float:
        """Seconds until a key of ours can be used; endless when none ever can by waiting."""
        if self._ring is None:
            return 0.0
        usable_at = self._ring.usable_at(now)
        return float("inf") if usable_at is None else usable_at - now

    def _stays_open(self, now: float, seconds: float) -> bool:
        """Whether the breaker would refuse a retry: then nobody waits for it."""
        return self._breaker is not None and self._breaker.stays_open(now, seconds)

    def _to_tell(self, before: Outcome | None, outcome: Outcome) -> Outcome:
        """What is told of this tier: that it turned one key of ours away hides nothing, while others are only resting.

        What another key met before says more; where there was none, when a key has rested.
        """
        if not self._our_key(outcome):
            return outcome
        if before is not None and not self._our_key(before):
            return before
        now = self._clock.now()
        rest = self._keys_rest(now)
        if 0.0 < rest < float("inf"):
            outcome.reason, outcome.retry_after = Reason.KEYS_RESTING, rest
        return outcome

    def _our_key(self, outcome: Outcome) -> bool:
        """Whether a provider turned away a credential that the caller never saw."""
        return self._ring is not None and outcome.key_fault and outcome.kind is OutcomeKind.CREDENTIAL_REJECTED

    def _keep_answer(self, exchange: Exchange, before: Outcome | None, outcome: Outcome) -> None:
        """Keeps what the provider said last: an attempt that brought no answer at all does not undo it."""
        if before is None or before.answer is None or outcome.answer is not None:
            return
        if not self._our_key(before) and (exchange.repeatable or not outcome.maybe_executed):
            outcome.answer = before.answer

    async def _pause(self, exchange: Exchange, outcome: Outcome, again: Again) -> None:
        facts = exchange.facts
        exchange.note(
            self._clock.now(),
            Retried(
                provider=facts.provider,
                tier=facts.tier,
                after=outcome.kind,
                delay=again.delay,
                other_key=again.other_key,
            ),
        )
        if again.delay > 0:
            await self._clock.sleep(again.delay)


class DeduplicatedRetryStage(RetryStage):
    """Calls a provider that knows a request with an idempotency key when it comes again from the same account."""

    __slots__ = ()

    def _may_repeat(self, exchange: Exchange, now: float) -> bool:
        """With its key, and the credential of the account that may have executed it.

        What is repeatable goes to that account, too, where it can; else it is executed a second time.
        """
        ring, attempt = self._ring, exchange.attempt
        if exchange.idempotency_key is None:
            return exchange.repeatable
        if ring is None or attempt is None:
            return True
        others = {key.id for key in ring.keys if key.id != attempt.key_id}
        if exchange.repeatable:
            exchange.tried_keys = others
            return True
        if not ring.has_other(now, others):
            return False
        exchange.tried_keys = Pinned(others, only=attempt.key_id)
        return True


def _stays_unknown(exchange: Exchange, outcome: Outcome) -> None:
    """What an earlier try may have executed, a later one that failed has not undone; nor does its answer say so."""
    outcome.maybe_executed = True
    if not exchange.repeatable:
        outcome.answer = None


def _told(outcome: Outcome, *, spent: bool) -> Outcome:
    outcome.retries_spent = spent
    return outcome
