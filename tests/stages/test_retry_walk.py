"""Retry and fallback as they are, over random ends of calls: rule 7 holds whatever providers and admission do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.decisions.retry import RetryBudget, RetrySettings
from proxy.exchange import Exchange
from proxy.observer import Retried
from proxy.outcome import KeptAnswer, Outcome, OutcomeKind
from proxy.plan import Tier
from proxy.stages.fallback import FallbackTiers
from proxy.stages.retry import RetryStage
from tests.fakes import Ask, FakeClock, make_exchange, with_attempt
from tests.stages.world import ring_of

K = OutcomeKind
SECONDS = 120.0
ANSWER = KeptAnswer(status=500, phrase=b"", lines=b"", body=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a call ends; `sent`: bytes of it reached the wire."""

    kind: OutcomeKind
    told: float | None
    executed: bool
    fault: bool
    hint: bool | None
    committed: bool

    def outcome(self) -> Outcome:
        """Returns it as an outcome that can be."""
        refused = self.kind is K.REFUSED
        answered = self.kind in (K.UPSTREAM_ERROR, K.RATE_LIMITED, K.CREDENTIAL_REJECTED)
        return Outcome(
            self.kind,
            retry_after=self.told,
            answer=ANSWER if answered else None,
            maybe_executed=self.executed and not (refused or answered or self.committed),
            should_retry=self.hint if answered else None,
            key_fault=self.fault and self.kind in (K.RATE_LIMITED, K.CREDENTIAL_REJECTED),
            committed=self.committed and not refused,
        )


ENDS = st.builds(
    End,
    # Mostly what is tried again: walks that end at once prove little.
    kind=st.one_of(
        st.sampled_from([K.UPSTREAM_ERROR, K.RATE_LIMITED, K.CREDENTIAL_REJECTED, K.UNREACHABLE, K.REFUSED]),
        st.sampled_from([kind for kind in K if kind not in (K.OK, K.ANSWERED)]),
    ),
    told=st.sampled_from([None, None, 0.0, 0.5, 3.0, 100.0]),
    executed=st.sampled_from([False, False, True]),
    fault=st.booleans(),
    hint=st.sampled_from([None, None, True, False]),
    committed=st.sampled_from([False, False, False, False, True]),
)


@dataclass(slots=True)
class Called:
    """One call of a tier's target: in which tier, how it ended, and whether only a key was chosen for it."""

    tier: int
    outcome: Outcome
    choice: bool
    at: float


@dataclass(slots=True)
class Walk:
    """An exchange on its way through real stages over drawn ends."""

    data: st.DataObject
    attempts: int
    keys: tuple[int, ...]
    exchange: Exchange
    clock: FakeClock = field(default_factory=FakeClock)
    calls: list[Called] = field(default_factory=list)

    def run(self) -> Outcome:
        """Runs it to its end."""
        return asyncio.run(self._run())

    async def _run(self) -> Outcome:
        settings = RetrySettings(attempts=self.attempts, base=0.25)
        self.exchange.deadline_at = self.clock.now() + SECONDS
        tiers: list[Tier] = [Step(self, number, keys, settings) for number, keys in enumerate(self.keys, 1)]
        asking = asyncio.ensure_future(FallbackTiers(tiers, retry=settings, clock=self.clock)(self.exchange))
        await self.clock.run(SECONDS + 1.0, step=SECONDS)
        assert asking.done(), "still not decided after the deadline"
        return asking.result()


class Step:
    """One provider tier: a real retry stage over drawn ends; its keys are tried as admission would try them."""

    def __init__(self, walk: Walk, number: int, keys: int, settings: RetrySettings) -> None:
        self.number, self.provider, self.own_key = number, f"p{number}", keys > 0
        self._walk = walk
        self._names = "abcdef"[:keys]
        self._stage = RetryStage(
            settings,
            budget=RetryBudget(0.2),
            breaker=None,
            ring=ring_of(list(self._names)) if keys else None,
            longest_rest=30.0,
            clock=walk.clock,
        )

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Asks it."""
        return await self._stage(exchange, self._call)

    async def _call(self, exchange: Exchange) -> Outcome:
        walk = self._walk
        last = walk.calls[-1] if walk.calls else None
        check_may_follow(exchange, last)
        outcome = walk.data.draw(ENDS).outcome()
        events = [event for _, event in exchange.facts.events]
        choice = bool(events) and isinstance(events[-1], Retried) and events[-1].other_key
        walk.calls.append(Called(self.number, outcome, choice, walk.clock.now()))
        if not outcome.local:
            with_attempt(exchange).sent_bytes = int(outcome.kind is not K.UNREACHABLE)
            fresh = [name for name in self._names if name not in (exchange.tried_keys or ())]
            exchange.tried_keys = {*(exchange.tried_keys or ()), *fresh[:1]}
        return outcome


def check_may_follow(exchange: Exchange, last: Called | None) -> None:
    """A call may follow another only where nothing forbids it."""
    if last is None:
        return
    assert not last.outcome.committed
    assert exchange.repeatable or not last.outcome.maybe_executed
    sent = any(attempt.sent_bytes for attempt in exchange.facts.attempts)
    assert exchange.replayable or not sent


@settings(deadline=None)
@given(
    data=st.data(),
    attempts=st.integers(1, 4),
    keys=st.lists(st.sampled_from([0, 1, 2, 6]), min_size=1, max_size=4).map(tuple),
    repeatable=st.booleans(),
    replayable=st.sampled_from([True, True, False]),
    caller=st.sampled_from(["", "0", "1", "9"]),
)
def test_rule_seven_holds(
    data: st.DataObject, attempts: int, keys: tuple[int, ...], *, repeatable: bool, replayable: bool, caller: str
) -> None:
    headers = (("x-stainless-retry-count", caller),) if caller else ()
    walk = Walk(data, attempts, keys, make_exchange(Ask(headers=headers)))
    walk.exchange.repeatable, walk.exchange.replayable = repeatable, replayable
    told = walk.run()
    counted = [call for call in walk.calls if not (call.outcome.local or call.choice)]
    tried = int(caller or 0)
    assert len(counted) <= max(1, attempts - tried) + len(keys) - 1
    for number in range(1, len(keys) + 1):
        here = [call for call in walk.calls if call.tier == number]
        assert sum(not (call.outcome.local or call.choice) for call in here) <= attempts
        assert sum(call.choice for call in here) <= 3
    reached = {call.tier for call in walk.calls}
    assert reached == set(range(1, max(reached) + 1)), "a tier was left out"
    check_what_is_told(walk, told)


def check_what_is_told(walk: Walk, told: Outcome) -> None:
    """What is told came of a call; retries are spent only where there were some, or their budget or time was over."""
    assert any(told is call.outcome for call in walk.calls)
    retried = any(isinstance(event, Retried) and not event.other_key for _, event in walk.exchange.facts.events)
    assert told.retries_spent or not retried or told.committed
