"""Retry: the one retry loop of the product. Back-off holds nothing; the deadline bounds it."""

from __future__ import annotations

from proxy.clock import Clock
from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.keys import KeyRing
from proxy.decisions.retry import (
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
from proxy.outcome import Outcome, OutcomeKind
from proxy.stage import CallNext


class RetryStage:
    """Calls one tier until it has answered, or another try would not help."""

    __slots__ = ("_breaker", "_budget", "_clock", "_replay_bytes", "_ring", "_settings")

    def __init__(
        self,
        settings: RetrySettings,
        *,
        budget: RetryBudget,
        breaker: Breaker | None,
        ring: KeyRing | None,
        replay_bytes: int,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._breaker = breaker
        self._ring = ring
        self._replay_bytes = replay_bytes
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Returns the last outcome that says something: a local refusal of a retry gives way to what was before it."""
        allowed = attempts_for_tier(self._settings, left=exchange.attempts_left, later_tiers=exchange.attempts_kept)
        exchange.tried_keys = None
        before: Outcome | None = None
        calls = choices = 0
        self._budget.called(self._clock.now())
        while True:
            calls += 1
            exchange.replaceable = self._resendable(exchange) and (calls < allowed or exchange.later_tiers > 0)
            outcome = await call_next(exchange)
            if outcome.local:
                exchange.attempts_left -= calls - 1
                return outcome if before is None else _spent(before)
            if outcome.committed or outcome.kind is OutcomeKind.OK:
                return outcome
            self._keep_answer(exchange, before, outcome)
            again = self._decide(exchange, outcome, calls=calls, allowed=allowed, choices=choices)
            if isinstance(again, Enough):
                exchange.attempts_left -= calls
                outcome.retries_spent = again.spent or calls > 1
                return outcome
            if again.other_key:
                calls -= 1
                choices += 1
            await self._pause(exchange, outcome, again)
            before = outcome

    def _decide(
        self, exchange: Exchange, outcome: Outcome, *, calls: int, allowed: int, choices: int
    ) -> Again | Enough:
        now = self._clock.now()
        ring = self._ring
        situation = Situation(
            calls=calls,
            allowed=allowed,
            key_choices=choices,
            other_key=ring is not None and ring.has_other(now, exchange.tried_keys or ()),
            own_key=ring is not None,
            repeatable=exchange.repeatable,
            resendable=self._resendable(exchange),
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

    def _stays_open(self, now: float, seconds: float) -> bool:
        """Whether the breaker would refuse a retry: then nobody waits for it."""
        breaker = self._breaker
        if breaker is None:
            return False
        breaker.tick(now)
        return breaker.state is BreakerState.OPEN and breaker.retry_after(now) > seconds

    @staticmethod
    def _keep_answer(exchange: Exchange, before: Outcome | None, outcome: Outcome) -> None:
        """Keeps what the provider said last: an attempt that brought no answer at all does not undo it."""
        if before is None or before.answer is None or outcome.answer is not None:
            return
        ours = before.key_fault and before.kind is OutcomeKind.CREDENTIAL_REJECTED
        if not ours and (exchange.repeatable or not outcome.maybe_executed):
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

    def _resendable(self, exchange: Exchange) -> bool:
        if exchange.payload is None:
            return not exchange.request.upload_taken
        return len(exchange.payload) <= self._replay_bytes


def _spent(outcome: Outcome) -> Outcome:
    outcome.retries_spent = True
    return outcome
