"""Retry with keys: which choices stand outside the attempts, what rests, and what is told of a key."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.retry import BUDGET_FLOOR, RetrySettings
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from tests.fakes import answered, settle
from tests.stages.retrying import Loop, rejected, trying
from tests.stages.world import failed, unanswered


async def test_a_429_takes_another_key_at_once_outside_attempts() -> None:
    tried: list[str] = []

    async def call(exchange: Exchange) -> Outcome:
        key = "abc"[len(tried)]
        tried.append(key)
        exchange.tried_keys = (exchange.tried_keys or set()) | {key}
        return failed(429) if key != "c" else answered()

    loop = Loop(call, keys="a b c", settings=RetrySettings(attempts=1))
    task = asyncio.ensure_future(loop.stage(loop.exchange, loop.terminal))
    await settle()
    assert tried == ["a", "b", "c"]
    assert (await task).kind is OutcomeKind.OK
    assert [(event.other_key, event.delay) for event in loop.retried] == [(True, 0.0)] * 2


async def test_a_choice_that_finds_no_place_is_no_retry_but_its_first_call_was_an_attempt() -> None:
    limited = failed(429)
    loop = Loop(trying(limited, refused(Reason.QUEUE_TIMEOUT)), keys="a b")
    assert await loop.run() is limited
    assert not limited.retries_spent
    assert loop.exchange.attempts_left == 2


async def test_choices_come_before_attempts_and_budget_and_leave_both_whole() -> None:
    loop = Loop(trying(failed(429), failed(429), failed(429), failed(500), failed(500), failed(500)), keys="a b c d")
    outcome = await loop.run(seconds=9.0)
    assert (loop.calls, outcome.status, loop.exchange.attempts_left) == (6, 500, 0)
    assert [event.other_key for event in loop.retried] == [True, True, True, False, False]
    assert sum(loop.budget.take(loop.clock.now()) for _ in range(20)) == BUDGET_FLOOR - 2


@pytest.mark.parametrize(("rest", "calls"), [(25.0, 2), (35.0, 1)])
async def test_a_key_that_rests_longer_than_admission_waits_is_not_waited_for_at_all(rest: float, calls: int) -> None:
    loop = Loop(trying(failed(429), answered()), keys="a")
    assert loop.ring is not None
    loop.ring.keys[0].rests_until = loop.clock.now() + rest
    outcome = await loop.run(seconds=2.0)
    assert (loop.calls, outcome.status) == (calls, 200 if calls == 2 else 429)


async def test_with_a_next_tier_a_key_that_rests_over_a_second_goes_there_at_once() -> None:
    loop = Loop(trying(failed(429)), keys="a")
    assert loop.ring is not None
    loop.ring.keys[0].rests_until = loop.clock.now() + 1.1
    loop.exchange.later_tiers = 1
    assert (await loop.run(seconds=0.0)).status == 429
    assert loop.calls == 1
    assert loop.budget.take(loop.clock.now())


async def test_an_answer_is_held_back_while_another_key_may_be_chosen() -> None:
    seen: list[bool] = []

    async def call(exchange: Exchange) -> Outcome:
        seen.append(exchange.replaceable)
        exchange.tried_keys = {*(exchange.tried_keys or ()), "ab"[len(seen) - 1]}
        return failed(429)

    for keys, held in [("a b", [True, True]), ("a", [False])]:
        seen.clear()
        await Loop(call, keys=keys, settings=RetrySettings(attempts=1)).run()
        assert seen == held


async def test_at_most_three_other_keys_are_chosen() -> None:
    tried: list[str] = []

    async def call(exchange: Exchange) -> Outcome:
        tried.append(str(len(tried)))
        exchange.tried_keys = set(tried)
        return Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=401, key_fault=True)

    loop = Loop(call, keys="0 1 2 3 4 5 6 7")
    await loop.run()
    assert len(tried) == 4


async def test_what_another_key_met_is_told_rather_than_that_the_last_one_was_turned_away() -> None:
    limited = failed(429)
    loop = Loop(trying(limited, rejected(), answered()), keys="a b")
    assert await loop.run() is limited
    assert (loop.calls, limited.retries_spent) == (2, False)


async def test_a_key_that_was_turned_away_says_nothing_of_keys_that_only_rest() -> None:
    loop = Loop(trying(rejected()), keys="a b")
    assert loop.ring is not None
    loop.ring.keys[0].parked, loop.ring.keys[1].rests_until = True, loop.clock.now() + 20.0
    outcome = await loop.run()
    assert (outcome.reason, outcome.retry_after) == (Reason.KEYS_RESTING, 20.0)


async def test_what_a_provider_says_of_our_key_is_not_kept_for_the_caller() -> None:
    loop = Loop(rejected(), unanswered(OutcomeKind.CONNECT_TIMEOUT), keys="a b")
    outcome = await loop.run()
    assert loop.calls > 1
    assert outcome.kind is OutcomeKind.CONNECT_TIMEOUT
    assert outcome.answer is None
