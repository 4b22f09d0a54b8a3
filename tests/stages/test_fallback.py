"""Fallback: the policy's order, one tier after the other; what the caller is told when all have failed."""

from __future__ import annotations

import pytest

from proxy.decisions.retry import RetrySettings
from proxy.exchange import Exchange
from proxy.observer import FellBack, Refused
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.plan import Equals, Tier
from proxy.stages.fallback import FallbackTiers
from tests.fakes import Ask, FakeClock, answered, make_exchange, with_attempt
from tests.stages.world import failed, unanswered


class Told:
    """A tier that ends as it was told; `provider` "" asks nobody."""

    def __init__(self, number: int, outcome: Outcome, *, provider: str | None = None, own_key: bool = True) -> None:
        self.number = number
        self.provider = f"p{number}" if provider is None else provider
        self.own_key = own_key
        self._outcome = outcome
        self.seen: list[tuple[int, int, int]] = []

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Notes what it has left, and ends."""
        assert (exchange.facts.tier, exchange.facts.provider) == (self.number, self.provider)
        self.seen.append((exchange.later_tiers, exchange.attempts_kept, exchange.attempts_left))
        return self._outcome


def tiers(*outcomes: Outcome) -> list[Told]:
    return [Told(number, outcome) for number, outcome in enumerate(outcomes, 1)]


async def ask(order: list[Told], exchange: Exchange | None = None, *, attempts: int = 3) -> Outcome:
    plain: list[Tier] = list(order)
    stage = FallbackTiers(plain, retry=RetrySettings(attempts=attempts), clock=FakeClock())
    return await stage(exchange or make_exchange())


@pytest.mark.parametrize(
    "outcome",
    [
        answered(),
        failed(404),
        failed(422),
        Outcome(OutcomeKind.CLIENT_LEFT),
        Outcome(OutcomeKind.DRAINED),
        Outcome(OutcomeKind.STREAM_BROKEN, status=200, committed=True),
        unanswered(OutcomeKind.TOTAL_TIMEOUT),
    ],
    ids=lambda outcome: f"{outcome.kind}{outcome.status}",
)
async def test_what_another_tier_cannot_mend_is_final(outcome: Outcome) -> None:
    order = tiers(outcome, answered())
    assert await ask(order) is outcome
    assert order[1].seen == []


@pytest.mark.parametrize(
    "outcome",
    [
        failed(429),
        failed(500),
        failed(529),
        refused(Reason.QUEUE_FULL),
        refused(Reason.BREAKER_OPEN),
        refused(Reason.KEYS_RESTING),
        unanswered(OutcomeKind.UNREACHABLE),
        unanswered(OutcomeKind.CONNECT_TIMEOUT),
        unanswered(OutcomeKind.FIRST_BYTE_TIMEOUT, maybe_executed=True),
        unanswered(OutcomeKind.ANSWER_TIMEOUT, maybe_executed=True),
        unanswered(OutcomeKind.STREAM_BROKEN, maybe_executed=True),
        Outcome(OutcomeKind.ERROR_IN_ANSWER, status=200),
    ],
    ids=lambda outcome: f"{outcome.reason or outcome.kind}{outcome.status}",
)
async def test_every_other_failure_goes_to_the_next_tier_once(outcome: Outcome) -> None:
    order = tiers(outcome, answered())
    exchange = make_exchange()
    assert (await ask(order, exchange)).kind is OutcomeKind.OK
    assert [len(tier.seen) for tier in order] == [1, 1]
    fell = [event for _, event in exchange.facts.events if isinstance(event, FellBack)]
    assert fell == [FellBack(from_tier=1, to_tier=2, after=outcome.kind, reason=outcome.reason)]


async def test_a_rejected_key_of_ours_goes_on_a_callers_own_does_not() -> None:
    for own_key, asked in [(True, 1), (False, 0)]:
        rejected = failed(401)
        rejected.key_fault = True
        order = [Told(1, rejected, own_key=own_key), Told(2, answered())]
        await ask(order)
        assert len(order[1].seen) == asked


async def test_what_may_have_been_executed_ends_a_request_that_must_not_be_repeated() -> None:
    order = tiers(unanswered(OutcomeKind.DISCONNECTED, maybe_executed=True), answered())
    exchange = make_exchange()
    exchange.repeatable = False
    outcome = await ask(order, exchange)
    assert outcome.reason is Reason.MAYBE_EXECUTED
    assert order[1].seen == []


async def test_a_body_that_is_gone_cannot_go_to_another_tier_unless_nothing_was_asked_yet() -> None:
    for outcome, asked in [(failed(500), 0), (refused(Reason.QUEUE_FULL), 1)]:
        order = tiers(outcome, answered())
        exchange = make_exchange()
        exchange.payload = None
        exchange.request.upload_taken = outcome.kind is not OutcomeKind.REFUSED
        await ask(order, exchange)
        assert len(order[1].seen) == asked


async def test_a_body_that_was_not_kept_goes_to_another_tier_only_while_nothing_was_sent() -> None:
    for sent, asked in [(100, 0), (0, 1)]:
        order = tiers(unanswered(OutcomeKind.UNREACHABLE), answered())
        exchange = make_exchange()
        exchange.replayable = False
        with_attempt(exchange).sent_bytes = sent
        await ask(order, exchange)
        assert len(order[1].seen) == asked


async def test_retries_that_one_tier_has_spent_are_said_of_what_another_is_told_for() -> None:
    spent = failed(500)
    spent.retries_spent = True
    for others in [(failed(503),), (refused(Reason.BREAKER_OPEN),), (failed(503), unanswered(OutcomeKind.UNREACHABLE))]:
        assert (await ask(tiers(spent, *others))).retries_spent
    first = refused(Reason.QUEUE_FULL)
    silent = unanswered(OutcomeKind.UNREACHABLE)
    silent.retries_spent = True
    assert await ask(tiers(first, silent)) is first
    assert first.retries_spent


async def test_tiers_that_were_called_once_each_have_spent_no_retries() -> None:
    assert not (await ask(tiers(failed(500), failed(503)))).retries_spent


async def test_all_failed_the_last_answer_of_a_provider_is_told() -> None:
    last = failed(503)
    order = tiers(failed(500), last, refused(Reason.BREAKER_OPEN))
    assert await ask(order) is last


@pytest.mark.parametrize(
    ("outcomes", "number"),
    [
        ((failed(500), refused(Reason.BREAKER_OPEN)), 1),
        ((failed(500), unanswered(OutcomeKind.UNREACHABLE)), 1),
        ((failed(500), unanswered(OutcomeKind.TOTAL_TIMEOUT, maybe_executed=True)), 1),
        ((refused(Reason.QUEUE_FULL), failed(503), unanswered(OutcomeKind.CONNECT_TIMEOUT)), 2),
        ((failed(500), failed(503)), 2),
        ((refused(Reason.QUEUE_FULL), refused(Reason.BREAKER_OPEN)), 1),
        ((failed(500), answered()), 2),
    ],
)
async def test_what_is_told_bears_the_provider_and_tier_that_said_it(
    outcomes: tuple[Outcome, ...], number: int
) -> None:
    exchange = make_exchange()
    order = tiers(*outcomes)
    assert await ask(order, exchange) is outcomes[number - 1]
    assert (exchange.facts.tier, exchange.facts.provider) == (number, f"p{number}")


async def test_what_is_told_bears_the_model_that_its_tier_asked_for() -> None:
    class Named(Told):
        """A tier of one model."""

        async def __call__(self, exchange: Exchange) -> Outcome:
            """Names its model."""
            exchange.facts.model = f"m{self.number}"
            return await super().__call__(exchange)

    exchange = make_exchange()
    await ask([Named(1, failed(500)), Named(2, refused(Reason.BREAKER_OPEN))], exchange)
    assert exchange.facts.model == "m1"


async def test_all_refused_the_first_tiers_reason_is_told() -> None:
    first = refused(Reason.QUEUE_TIMEOUT)
    assert await ask(tiers(first, refused(Reason.BREAKER_OPEN), unanswered(OutcomeKind.UNREACHABLE))) is first


async def test_a_deadline_in_a_later_tier_does_not_hide_what_a_provider_said() -> None:
    first = failed(500)
    assert await ask(tiers(first, unanswered(OutcomeKind.TOTAL_TIMEOUT, maybe_executed=True))) is first


async def test_a_later_tier_that_may_have_executed_it_is_told_of_even_so() -> None:
    last = unanswered(OutcomeKind.TOTAL_TIMEOUT, maybe_executed=True)
    exchange = make_exchange()
    exchange.repeatable = False
    assert await ask(tiers(failed(500), last), exchange) is last
    assert last.reason is Reason.MAYBE_EXECUTED


async def test_refusals_are_noted_with_their_tier() -> None:
    exchange = make_exchange()
    await ask(tiers(refused(Reason.QUEUE_FULL), refused(Reason.BREAKER_OPEN)), exchange)
    noted = [event for _, event in exchange.facts.events if isinstance(event, Refused)]
    assert noted == [
        Refused(provider="p1", tier=1, reason=Reason.QUEUE_FULL),
        Refused(provider="p2", tier=2, reason=Reason.BREAKER_OPEN),
    ]
    assert sum(isinstance(event, FellBack) for _, event in exchange.facts.events) == 1


async def test_every_later_provider_tier_keeps_one_attempt_and_one_that_asks_nobody_none() -> None:
    order = [*tiers(failed(500), failed(500)), Told(3, answered(), provider="")]
    await ask(order)
    assert [tier.seen for tier in order] == [[(2, 1, 4)], [(1, 0, 4)], [(0, 0, 4)]]


@pytest.mark.parametrize(
    ("headers", "left"),
    [
        ((), 4),
        ((("x-stainless-retry-count", "0"),), 4),
        ((("x-stainless-retry-count", "1"),), 3),
        ((("x-stainless-retry-count", "99999999999999999999"),), 2),
        ((("x-stainless-retry-count", "many"),), 4),
        ((("x-envoy-attempt-count", "1"),), 4),
        ((("x-envoy-attempt-count", "2"),), 3),
        ((("x-envoy-attempt-count", "0"),), 4),
        ((("x-stainless-retry-count", "0"), ("x-envoy-attempt-count", "3")), 2),
        ((("x-stainless-retry-count", "2"), ("x-envoy-attempt-count", "1")), 2),
        ((("x-stainless-retry-count", "\u00b2"),), 4),
        ((("x-envoy-attempt-count", "\u0663"),), 4),
        ((("x-stainless-retry-count", "-1"), ("x-envoy-attempt-count", "+2")), 4),
    ],
)
async def test_a_caller_that_retries_gets_fewer_attempts(headers: tuple[tuple[str, str], ...], left: int) -> None:
    order = tiers(failed(500), answered())
    await ask(order, make_exchange(Ask(headers=headers)))
    assert order[0].seen[0][2] == left


async def test_a_request_that_begins_later_asks_no_tier_before_and_keeps_no_attempts_for_any() -> None:
    order = [*tiers(answered(), failed(500), failed(500)), Told(4, answered(), provider="")]
    exchange = make_exchange()
    exchange.first_tier = 2
    assert (await ask(order, exchange)).status == 200
    assert [tier.seen for tier in order] == [[], [(2, 1, 4)], [(1, 0, 4)], [(0, 0, 4)]]
    fell = [(event.from_tier, event.to_tier) for _, event in exchange.facts.events if isinstance(event, FellBack)]
    assert fell == [(2, 3), (3, 4)]


async def test_a_caller_that_retries_and_begins_later_gets_fewer_attempts_of_those_that_are_left() -> None:
    order = tiers(answered(), failed(500), answered())
    exchange = make_exchange(Ask(headers=(("x-stainless-retry-count", "1"),)))
    exchange.first_tier = 3
    await ask(order, exchange)
    assert [tier.seen for tier in order] == [[], [], [(0, 0, 2)]]


async def test_equals_before_the_first_tier_do_not_take_their_turn() -> None:
    asked: list[Exchange] = []
    first, later = tiers(answered(), answered())

    def order(exchange: Exchange) -> list[Tier]:
        asked.append(exchange)
        return [first]

    exchange = make_exchange()
    exchange.first_tier = 2
    steps = (Equals(tiers=(first,), order=order), later)
    await FallbackTiers(steps, retry=RetrySettings(), clock=FakeClock())(exchange)
    assert (asked, first.seen, len(later.seen)) == ([], [], 1)
