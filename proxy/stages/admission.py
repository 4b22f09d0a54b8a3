"""Admission: the only waiting room. Permit and key are taken together, and given back when the last byte is through."""

from __future__ import annotations

import asyncio

from proxy.clock import Clock
from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Lack
from proxy.decisions.observing import Tally, would_do
from proxy.decisions.queues import Ask, Line, Permit, Refusal, Waiter
from proxy.exchange import Exchange
from proxy.observer import Observed, Waited
from proxy.outcome import Outcome, OutcomeKind, refused
from proxy.stage import CallNext

STREAMED_WAIT_SECONDS = 0.3
"""A request whose body still arrives never waits long: while it is unread, nobody notices that its caller leaves."""

_CLASS_INDEX = {"P0": 0, "P1": 1, "P2": 2}


class AdmissionStage:
    """Lets an attempt go when everything that binds it has a place for it."""

    __slots__ = ("_admission", "_clock", "_limits", "_line", "_short")

    def __init__(self, admission: Admission, line: Line, *, limits: WaitLimits, clock: Clock) -> None:
        self._admission = admission
        self._line = line
        self._limits = limits
        self._short = WaitLimits(
            queue=min(limits.queue, STREAMED_WAIT_SECONDS), quota_wait=min(limits.quota_wait, STREAMED_WAIT_SECONDS)
        )
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Waits for its turn, or is refused; holds the permit around the whole call."""
        clock = self._clock
        permit = self._admission.enter_at_once(self._line, exchange.tried_keys, clock.now())
        if permit is None:
            answer = await self._enter(exchange)
            if isinstance(answer, Refusal):
                return refused(answer.reason, retry_after=answer.retry_after, detail=answer.detail)
            permit = answer
        key = permit.key
        try:
            if key is not None:
                exchange.credential = key.credential
                if exchange.tried_keys is None:
                    exchange.tried_keys = {key.id}
                else:
                    exchange.tried_keys.add(key.id)
            outcome = await call_next(exchange)
            ring = self._line.ring
            if key is not None and ring is not None and outcome.kind is not OutcomeKind.OK:
                outcome.own_key = True
                ring.judge(key, outcome, clock.now(), used=exchange.credential)
            return outcome
        finally:
            exchange.credential = None
            permit.release(clock.now())

    async def _enter(self, exchange: Exchange) -> Permit | Refusal:
        ask = Ask(
            klass=_CLASS_INDEX[exchange.facts.klass],
            bytes=len(exchange.payload or b""),
            limits=self._waits(exchange),
            deadline_at=exchange.deadline_at,
            tried=exchange.tried_keys,
        )
        answer = self._admission.enter(self._line, ask, self._clock.now())
        return await self._wait(answer, exchange) if isinstance(answer, Waiter) else answer

    def _waits(self, exchange: Exchange) -> WaitLimits:
        return self._limits if exchange.payload is not None else self._short

    async def _wait(self, waiter: Waiter, exchange: Exchange) -> Permit | Refusal:
        """Waits until the core has decided; a caller that leaves gives back what was handed to it meanwhile."""
        decided = asyncio.get_running_loop().create_future()
        waiter.wake = lambda: None if decided.done() else decided.set_result(None)
        try:
            await decided
        except BaseException:
            self._admission.leave(waiter, self._clock.now())
            raise
        finally:
            now = self._clock.now()
            waited = now - waiter.since
            exchange.facts.queued_seconds += waited
            lacking = "key" if waiter.lack is Lack.KEY else "permit"
            exchange.note(now, Waited(provider=exchange.facts.provider, seconds=waited, lacking=lacking))
        self._admission.goes_on(waiter)
        answer = waiter.permit or waiter.refusal
        assert answer is not None
        return answer


class ObservingAdmissionStage(AdmissionStage):
    """Lets every attempt go that lacks nothing but a place (`mode: observe`), and counts those that did.

    `line` must observe; a resting key is waited for as ever.
    """

    __slots__ = ("_tally",)

    def __init__(self, admission: Admission, line: Line, *, limits: WaitLimits, clock: Clock, tally: Tally) -> None:
        super().__init__(admission, line, limits=limits, clock=clock)
        self._tally = tally

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Notes what enforcing would have done; learns how long calls hold their places."""
        now, facts, tally = self._clock.now(), exchange.facts, self._tally
        would = would_do(self._line, tally, self._waits(exchange).queue, now)
        if would is not None:
            tally.count(would)
            exchange.note(now, Observed(provider=facts.provider, tier=facts.tier, would=would))
        queued = facts.queued_seconds
        outcome = await super().__call__(exchange, call_next)
        if not outcome.local:
            tally.held(self._clock.now() - now - (facts.queued_seconds - queued))
        return outcome
