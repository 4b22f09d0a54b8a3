"""Admission: the only waiting room. Permit, quotas and key are taken together; places come back with the last byte."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from proxy.clock import Clock
from proxy.decisions.admission import Admission
from proxy.decisions.classes import ClassSettings
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Key, Lack
from proxy.decisions.observing import Tally, would_do
from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.decisions.room import LOWEST
from proxy.exchange import Credential, Exchange
from proxy.observer import Observed, Waited
from proxy.outcome import Outcome, OutcomeKind, refused
from proxy.stage import CallNext
from proxy.stages.metering import Adapting, Lanes, Meter, take_hints

STREAMED_WAIT_SECONDS: Final = 0.3
"""A request whose body still arrives never waits long: while it is unread, nobody notices that its caller leaves."""

_CLASS_INDEX: Final = {"P0": 0, "P1": 1, "P2": 2}
_LACKING: Final = {Lack.KEY: "key", Lack.QUOTA: "quota"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a call's turn depends on besides its line; None: the policy has no such thing here.

    `settles`: how an attempt ended makes a difference to quotas or keys. `instances` use the keys' limits alike.
    `credentials` are those of this policy by the ids of their keys, `audience` its provider's addresses.
    """

    classes: ClassSettings = ClassSettings()
    lanes: Lanes | None = None
    meter: Meter | None = None
    adapting: Adapting | None = None
    settles: bool = False
    instances: int = 1
    audience: tuple[str, ...] = ()
    credentials: Mapping[str, Credential] = field(default_factory=dict)


class AdmissionStage:
    """Lets an attempt go when everything that binds it has a place for it."""

    __slots__ = (
        "_adapting", "_admission", "_audience", "_clock", "_credentials", "_idle", "_instances", "_lanes", "_limits",
        "_line", "_meter", "_promote_after", "_settles", "_short",
    )  # fmt: skip

    def __init__(
        self, admission: Admission, line: Line, *, limits: WaitLimits, clock: Clock, terms: Terms = Terms()
    ) -> None:
        self._admission = admission
        self._line = line
        self._limits = limits
        self._idle = WaitLimits(queue=terms.classes.queue, quota_wait=terms.classes.queue)
        self._short = WaitLimits(
            queue=min(limits.queue, STREAMED_WAIT_SECONDS), quota_wait=min(limits.quota_wait, STREAMED_WAIT_SECONDS)
        )
        self._promote_after = terms.classes.promote_after
        self._lanes = terms.lanes
        self._meter = terms.meter
        self._adapting = terms.adapting
        self._settles = terms.settles
        self._instances = terms.instances
        self._audience = terms.audience
        self._credentials = terms.credentials
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Waits for its turn, or is refused; holds the permit around the whole call."""
        clock, meter = self._clock, self._meter
        line = self._line if self._lanes is None else self._lanes.of(exchange)
        klass = _CLASS_INDEX[exchange.facts.klass]
        tokens = 0.0 if meter is None else meter.reserve(exchange)
        permit = self._admission.enter_at_once(line, exchange.tried_keys, clock.now(), klass=klass, tokens=tokens)
        if permit is None:
            answer = await self._enter(exchange, line, klass, tokens)
            if isinstance(answer, Refusal):
                return refused(answer.reason, retry_after=answer.retry_after, detail=answer.detail)
            permit = answer
        key = permit.key
        if self._settles:
            exchange.attempt = None
        try:
            if key is not None:
                credential = key.credential
                if credential is None or credential.audience is not self._audience:
                    credential = self._own(key)
                exchange.credential = credential
                if exchange.tried_keys is None:
                    exchange.tried_keys = {key.id}
                else:
                    exchange.tried_keys.add(key.id)
            if self._adapting is None:
                outcome = await call_next(exchange)
            else:
                outcome = await self._adapt(self._adapting, permit, exchange, call_next)
            ring = permit.line.ring
            if key is not None and ring is not None and outcome.kind is not OutcomeKind.OK:
                outcome.own_key = True
                ring.judge(key, outcome, clock.now(), used=exchange.credential)
            return outcome
        finally:
            exchange.credential = None
            if self._settles:
                self._settle(permit, exchange)
            else:
                permit.release(clock.now())

    def _own(self, key: Key) -> Credential | None:
        """Returns what to send where this policy's calls go: a newer secret only if it is meant for the same addresses.

        Keys are renewed while calls wait for them, and those go where their own policy said.
        """
        credential = key.credential
        if credential is None or credential.audience == self._audience:
            return credential
        return self._credentials.get(key.id) or next(iter(self._credentials.values()), None)

    def _settle(self, permit: Permit, exchange: Exchange) -> None:
        """Releases the permit, and says what the attempt has used: one that reached nobody has used nothing."""
        attempt = exchange.attempt
        try:
            if self._meter is not None:
                self._meter.settle(permit, exchange)
            elif attempt is None or not attempt.sent_bytes:
                permit.settle(request=False, tokens=0.0)
            if attempt is not None and attempt.rates is not None:
                take_hints(permit, exchange, self._clock.now(), instances=self._instances)
        finally:
            permit.release(self._clock.now())

    async def _adapt(self, adapting: Adapting, permit: Permit, exchange: Exchange, call_next: CallNext) -> Outcome:
        began, in_use = self._clock.now(), adapting.in_use(permit)
        outcome = await call_next(exchange)
        now = self._clock.now()
        adapting.judge(outcome, seconds=now - began, in_use=in_use, now=now)
        return outcome

    async def _enter(self, exchange: Exchange, line: Line, klass: int, tokens: float) -> Permit | Refusal:
        now, waits = self._clock.now(), self._waits(exchange, klass)
        ask = Ask(
            klass=klass,
            bytes=len(exchange.payload or b""),
            limits=waits,
            # What a P2 may wait, it may wait in all, whatever it lacks meanwhile.
            deadline_at=exchange.deadline_at if klass < LOWEST else min(exchange.deadline_at, now + waits.queue),
            tried=exchange.tried_keys,
            tokens=tokens,
            tenant=exchange.facts.tenant,
            promote_after=self._promote_after,
        )
        answer = self._admission.enter(line, ask, now)
        return await self._wait(answer, exchange) if isinstance(answer, Waiter) else answer

    def _waits(self, exchange: Exchange, klass: int) -> WaitLimits:
        if exchange.payload is None:
            return self._short
        return self._idle if klass == LOWEST else self._limits

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
            lacking = _LACKING.get(waiter.lack, "permit")
            exchange.note(now, Waited(provider=exchange.facts.provider, seconds=waited, lacking=lacking))
        self._admission.goes_on(waiter)
        answer = waiter.permit or waiter.refusal
        assert answer is not None
        return answer


class ObservingAdmissionStage(AdmissionStage):
    """Lets every attempt go that lacks nothing but a place or quota (`mode: observe`), and counts those that did.

    `line` must observe; a resting key is waited for as ever.
    """

    __slots__ = ("_tally",)

    def __init__(
        self,
        admission: Admission,
        line: Line,
        *,
        limits: WaitLimits,
        clock: Clock,
        tally: Tally,
        terms: Terms = Terms(),
    ) -> None:
        super().__init__(admission, line, limits=limits, clock=clock, terms=terms)
        self._tally = tally

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Notes what enforcing would have done; learns how long calls hold their places."""
        now, facts, tally = self._clock.now(), exchange.facts, self._tally
        klass = _CLASS_INDEX[facts.klass]
        line = self._line if self._lanes is None else self._lanes.of(exchange)
        tokens = 0.0 if self._meter is None else self._meter.reserve(exchange)
        would = would_do(line, tally, self._waits(exchange, klass), now, klass=klass, tokens=tokens)
        if would is not None:
            tally.count(would)
            exchange.note(now, Observed(provider=facts.provider, tier=facts.tier, would=would))
        queued = facts.queued_seconds
        outcome = await super().__call__(exchange, call_next)
        if not outcome.local:
            tally.held(self._clock.now() - now - (facts.queued_seconds - queued))
        return outcome
