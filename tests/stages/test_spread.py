"""Spread: equals stand in for each other within one tier; the last of them is asked as a tier alone would be."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from proxy.decisions.retry import RetrySettings
from proxy.decisions.spread import Spread
from proxy.exchange import Exchange
from proxy.observer import FellBack, Refused
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.plan import Equals, Tier
from proxy.stages.fallback import FallbackTiers
from proxy.stages.spread import Equal, spread_over
from tests.fakes import FakeClock, answered, make_exchange
from tests.stages.world import failed, unanswered

CLOCK = FakeClock()


@dataclass(slots=True, eq=False)
class Asked:
    """A tier that ends as it was told, and notes what it has left."""

    number: int
    provider: str
    outcome: Outcome
    own_key: bool = True
    seen: list[tuple[int, int]] = field(default_factory=list)

    async def __call__(self, exchange: Exchange) -> Outcome:
        assert (exchange.facts.tier, exchange.facts.provider) == (self.number, self.provider)
        self.seen.append((exchange.later_tiers, exchange.attempts_kept))
        return self.outcome


class Member:
    """An equal of which `part` is left."""

    def __init__(self, provider: str, outcome: Outcome, *, number: int = 1, model: str | None = None) -> None:
        self.early = Asked(number, provider, outcome)
        self.able = Asked(number, provider, outcome)
        self.last = Asked(number, provider, outcome)
        self.part = 1.0
        self.models: list[str | None] = []
        self.equal = Equal(early=self.early, able=self.able, last=self.last, model=model, left=self._left)

    def _left(self, model: str | None, now: float) -> float:
        assert now == CLOCK.now()
        self.models.append(model)
        return self.part


def step(*members: Member, weights: tuple[float, ...] = ()) -> Equals:
    spread = Spread(weights or [1.0] * len(members), by_weight=bool(weights))
    return spread_over([member.equal for member in members], spread, clock=CLOCK)


async def ask(*order: Tier | Equals, exchange: Exchange | None = None) -> tuple[Outcome, Exchange]:
    exchange = exchange or make_exchange()
    stage = FallbackTiers(order, retry=RetrySettings(attempts=3), clock=CLOCK)
    return await stage(exchange), exchange


async def test_the_one_with_most_left_answers_and_no_other_is_asked() -> None:
    low, high = Member("low", answered()), Member("high", answered())
    low.part = 0.2
    outcome, exchange = await ask(step(low, high))
    assert outcome.kind is OutcomeKind.OK
    assert (exchange.facts.tier, exchange.facts.provider) == (1, "high")
    assert high.early.seen == [(1, 1)]
    assert low.last.seen == low.early.seen == []


@pytest.mark.parametrize(
    "outcome",
    [
        refused(Reason.QUEUE_TIMEOUT),
        refused(Reason.KEYS_RESTING),
        refused(Reason.QUOTA_EXHAUSTED),
        refused(Reason.BREAKER_OPEN),
        refused(Reason.CONTEXT_TOO_LONG),
        failed(429),
        failed(503),
        unanswered(OutcomeKind.UNREACHABLE),
    ],
    ids=lambda outcome: f"{outcome.reason or outcome.kind}{outcome.status}",
)
async def test_what_one_cannot_give_the_next_equal_gives_within_the_tier(outcome: Outcome) -> None:
    first, second = Member("a", outcome), Member("b", answered())
    said, exchange = await ask(step(first, second), Asked(2, "c", answered()))
    assert said.kind is OutcomeKind.OK
    assert (exchange.facts.tier, exchange.facts.provider) == (1, "b")
    assert first.early.seen == [(2, 2)], "a member after it counts as a tier that may still be asked"
    assert second.last.seen == [(1, 1)]
    events = [event for _, event in exchange.facts.events]
    assert not any(isinstance(event, FellBack) for event in events), "it is the same tier"
    assert [event.provider for event in events if isinstance(event, Refused)] == ["a"] * outcome.local


@pytest.mark.parametrize("outcome", [failed(404), Outcome(OutcomeKind.CLIENT_LEFT), failed(401)])
async def test_what_no_tier_could_mend_no_equal_is_asked_for(outcome: Outcome) -> None:
    first, second = Member("a", outcome), Member("b", answered())
    assert (await ask(step(first, second)))[0] is outcome
    assert second.last.seen == []


async def test_when_all_have_failed_the_next_tier_is_asked_once() -> None:
    equals = [Member(name, failed(500)) for name in "abc"]
    said, exchange = await ask(step(*equals), Asked(2, "d", answered()))
    assert said.kind is OutcomeKind.OK
    assert (exchange.facts.tier, exchange.facts.provider) == (2, "d")
    fell = [event for _, event in exchange.facts.events if isinstance(event, FellBack)]
    assert fell == [FellBack(from_tier=1, to_tier=2, after=OutcomeKind.UPSTREAM_ERROR, reason=None)]


async def test_attempts_in_all_count_every_equal_as_a_tier() -> None:
    exchange = make_exchange()
    await ask(
        Asked(1, "z", answered()), step(*(Member(name, answered(), number=2) for name in "abc")), exchange=exchange
    )
    assert exchange.attempts_left == 3 + 3


async def test_the_order_is_that_of_the_moment_in_which_it_is_its_turn() -> None:
    first, second = Member("a", answered(), number=2), Member("b", answered(), number=2)

    class Drains(Asked):
        async def __call__(self, exchange: Exchange) -> Outcome:
            first.part = 0.1
            return await Asked.__call__(self, exchange)

    _, exchange = await ask(Drains(1, "z", failed(500)), step(first, second))
    assert exchange.facts.provider == "b"


async def test_when_all_refuse_the_caller_learns_when_the_first_of_them_returns() -> None:
    refusals = [refused(Reason.KEYS_RESTING, retry_after=seconds) for seconds in (30.0, 4.0, 20.0)]
    outcome, exchange = await ask(step(*(Member(f"p{i}", one) for i, one in enumerate(refusals))))
    assert (outcome.reason, outcome.retry_after) == (Reason.KEYS_RESTING, 4.0)
    assert exchange.facts.provider == "p0"


async def test_a_tier_after_them_says_nothing_of_their_return() -> None:
    away, answer = refused(Reason.KEYS_RESTING, retry_after=30.0), refused(Reason.QUEUE_FULL, retry_after=1.0)
    outcome, _ = await ask(step(Member("a", away), Member("b", away)), Asked(2, "c", answer))
    assert outcome.retry_after == 30.0


async def test_what_is_left_is_asked_of_the_model_that_would_be_called() -> None:
    own, callers = Member("a", answered(), model="m9"), Member("b", answered())
    exchange = make_exchange()
    exchange.model = "m1"
    await ask(step(own, callers), exchange=exchange)
    assert (own.models, callers.models) == (["m9"], ["m1"])


async def test_each_is_asked_as_its_place_in_the_order_wants() -> None:
    equals = [Member(name, failed(500)) for name in "abcd"]
    for member, part in zip(equals, (0.0, 0.9, 0.0, 0.5), strict=True):
        member.part = part
    await ask(step(*equals))
    asked = [[len(one.seen) for one in (member.early, member.able, member.last)] for member in equals]
    assert asked == [[1, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]


async def test_where_none_can_go_only_the_last_waits() -> None:
    equals = [Member(name, failed(500)) for name in "ab"]
    for member in equals:
        member.part = 0.0
    await ask(step(*equals))
    assert [[len(one.seen) for one in (member.early, member.last)] for member in equals] == [[1, 0], [0, 1]]


async def test_by_weight_each_gets_its_part_of_the_calls() -> None:
    heavy, light = Member("a", answered()), Member("b", answered())
    order = step(heavy, light, weights=(3.0, 1.0))
    providers = [(await ask(order))[1].facts.provider for _ in range(8)]
    assert providers.count("a") == 6
