"""Whole exchanges over random outcomes: what retry and fallback decide together never breaks rule 7.

The loops here are the stages' in their shortest form; what is under test are the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.fallback import moves_on
from proxy.decisions.retry import Again, RetrySettings, Situation, attempts_for_tier, attempts_in_all, decide
from proxy.outcome import Outcome, OutcomeKind

K = OutcomeKind
LONGEST_REST = 30.0
# What was refused here has not been executed anywhere.
OUTCOMES = st.builds(
    Outcome,
    # Mostly what is tried again: exchanges that end at once prove little.
    st.one_of(
        st.sampled_from([K.UPSTREAM_ERROR, K.RATE_LIMITED, K.UNREACHABLE, K.CREDENTIAL_REJECTED, K.REFUSED]),
        st.sampled_from(list(OutcomeKind)),
    ),
    retry_after=st.sampled_from([None, None, 0.0, 0.5, 3.0, 100.0]),
    maybe_executed=st.sampled_from([False, False, True]),
    should_retry=st.sampled_from([None, None, None, True, False]),
    key_fault=st.booleans(),
    committed=st.sampled_from([False, False, False, True]),
).filter(lambda outcome: not (outcome.local and outcome.maybe_executed))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What an exchange meets: its tiers (False: one that asks nobody), its provider's keys, its nature."""

    tiers: tuple[bool, ...]
    settings: RetrySettings
    caller_retries: int
    keys: int
    keys_rest: float
    repeatable: bool
    seconds: float


WORLDS = st.builds(
    World,
    tiers=st.lists(st.booleans(), min_size=1, max_size=4).map(tuple),
    settings=st.builds(RetrySettings, attempts=st.integers(1, 4), base=st.sampled_from([0.01, 0.25, 4.0])),
    caller_retries=st.sampled_from([0, 0, 1, 5]),
    keys=st.sampled_from([0, 1, 2, 6]),
    keys_rest=st.sampled_from([0.0, 0.0, 0.5, 3.0, 100.0]),
    repeatable=st.booleans(),
    seconds=st.sampled_from([1.0, 60.0, 1000.0]),
)


@dataclass(slots=True)
class Exchange:
    """One exchange on its way; every call's outcome is drawn."""

    world: World
    data: st.DataObject
    left: int
    elapsed: float = 0.0
    calls: list[int] = field(default_factory=list)
    ended: Outcome | None = None

    def call(self) -> Outcome:
        last = self.ended
        assert last is None or not last.committed, "called again after the commit"
        assert self.world.repeatable or last is None or not last.maybe_executed, "executed twice"
        self.ended = self.data.draw(OUTCOMES)
        return self.ended

    def tier(self, *, later: int, later_asks: int) -> Outcome:
        world, settings = self.world, self.world.settings
        allowed = attempts_for_tier(settings, left=self.left, later_tiers=later_asks)
        calls = choices = 0
        while True:
            outcome = self.call()
            if outcome.local:
                break
            calls += 1
            situation = Situation(
                calls=calls,
                allowed=allowed,
                key_choices=choices,
                other_key=choices + 1 < world.keys,
                own_key=world.keys > 0,
                keys_rest=world.keys_rest,
                longest_rest=LONGEST_REST,
                repeatable=world.repeatable,
                resendable=True,
                later_tier=later > 0,
                seconds_left=world.seconds - self.elapsed,
                request_id="r1",
            )
            again = decide(outcome, situation, settings)
            if not isinstance(again, Again):
                break
            if again.other_key:
                calls -= 1
                choices += 1
            self.check_delay(again, outcome, later=later)
        self.left -= calls
        self.calls.append(calls)
        assert choices <= 3
        return outcome

    def check_delay(self, again: Again, outcome: Outcome, *, later: int) -> None:
        rests = outcome.kind is K.RATE_LIMITED and self.world.keys > 0
        told = self.world.keys_rest if rests else outcome.retry_after or 0.0
        self.elapsed += again.delay
        assert self.elapsed < self.world.seconds
        if not again.other_key:
            assert again.delay <= max(self.world.settings.cap, told)
            assert again.delay >= told or rests
            assert max(again.delay, told) <= 1.0 or not later
            assert not rests or told - again.delay <= LONGEST_REST


@given(world=WORLDS, data=st.data())
def test_rule_seven_holds_whatever_the_outcomes(world: World, data: st.DataObject) -> None:
    asking = sum(world.tiers)
    total = attempts_in_all(world.settings, provider_tiers=asking, caller_retries=world.caller_retries)
    exchange = Exchange(world, data, left=total)
    for index, asks in enumerate(world.tiers):
        if not asks:
            continue
        later = world.tiers[index + 1 :]
        outcome = exchange.tier(later=len(later), later_asks=sum(later))
        if not moves_on(outcome, own_key=world.keys > 0, repeatable=world.repeatable, resendable=True):
            break
    assert sum(exchange.calls) <= world.settings.attempts + max(0, asking - 1)
    assert all(calls <= world.settings.attempts for calls in exchange.calls)


@given(world=WORLDS)
def test_when_everything_fails_every_tier_is_asked(world: World) -> None:
    """No tier starves because an earlier one was allowed to use all attempts up."""
    asking = sum(world.tiers)
    left = attempts_in_all(world.settings, provider_tiers=asking, caller_retries=world.caller_retries)
    total = left
    for later in reversed(range(asking)):
        allowed = attempts_for_tier(world.settings, left=left, later_tiers=later)
        assert allowed >= 1
        left -= allowed
    assert 0 <= left < total or not asking
