"""Retry: the one loop. How often, after how long, with which key; and what is told in the end."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.retry import BUDGET_FLOOR, RetrySettings, backoff_seconds
from proxy.decisions.verdict import Verdict
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from tests.fakes import answered
from tests.stages.retrying import SETTINGS, Loop
from tests.stages.world import BREAKER, failed, unanswered


async def test_a_success_is_called_once() -> None:
    loop = Loop(answered())
    assert (await loop.run()).kind is OutcomeKind.OK
    assert loop.calls == 1


async def test_failures_are_tried_again_up_to_attempts_and_the_last_one_says_so() -> None:
    loop = Loop(failed(500), failed(502), failed(503))
    outcome = await loop.run()
    assert loop.calls == 3
    assert outcome.status == 503
    assert outcome.retries_spent
    assert [event.after for event in loop.retried] == [OutcomeKind.UPSTREAM_ERROR] * 2


async def test_the_first_delay_is_base_times_its_factor_and_the_next_twice_that_range() -> None:
    loop = Loop(failed(500), failed(500), answered())
    began = loop.clock.now()
    await loop.run()
    first, second = (event.delay for event in loop.retried)
    assert 0.5 <= first <= 1.5
    assert 1.0 <= second <= 3.0
    assert loop.exchange.facts.events[1][0] >= began + first


async def test_a_retry_after_is_waited_for_and_never_undercut() -> None:
    limited = failed(503)
    limited.retry_after = 7.0
    loop = Loop(limited, answered())
    task = asyncio.ensure_future(loop.stage(loop.exchange, loop.terminal))
    await loop.clock.run(6.9)
    assert loop.calls == 1
    await loop.clock.run(0.2)
    assert loop.calls == 2
    assert (await task).kind is OutcomeKind.OK


@pytest.mark.parametrize("status", [400, 404, 409, 422, 501])
async def test_other_errors_are_never_tried_again(status: int) -> None:
    loop = Loop(failed(status))
    outcome = await loop.run()
    assert loop.calls == 1
    assert not outcome.retries_spent


async def test_a_committed_answer_that_breaks_is_never_tried_again() -> None:
    loop = Loop(Outcome(OutcomeKind.STREAM_BROKEN, status=200, committed=True))
    await loop.run()
    assert loop.calls == 1


async def test_what_may_have_been_executed_is_tried_again_only_where_that_does_no_harm() -> None:
    cut = unanswered(OutcomeKind.DISCONNECTED, maybe_executed=True)
    for repeatable, calls in [(True, 3), (False, 1)]:
        loop = Loop(cut)
        loop.exchange.repeatable = repeatable
        await loop.run()
        assert loop.calls == calls


async def test_a_request_that_is_too_large_to_keep_is_sent_once() -> None:
    loop = Loop(failed(500))
    loop.exchange.replayable = False
    await loop.run()
    assert loop.calls == 1


async def test_a_body_that_was_passed_on_is_sent_once_and_one_that_was_not_again() -> None:
    for taken, calls in [(True, 1), (False, 3)]:
        loop = Loop(failed(500))
        loop.exchange.payload = None
        loop.exchange.request.upload_taken = taken
        await loop.run()
        assert loop.calls == calls


async def test_a_refused_retry_gives_way_to_what_the_provider_said() -> None:
    loop = Loop(failed(500), refused(Reason.BREAKER_OPEN))
    outcome = await loop.run()
    assert outcome.status == 500
    assert outcome.retries_spent
    assert loop.exchange.attempts_left == 2


async def test_a_first_refusal_is_told_as_it_is_and_costs_no_attempt() -> None:
    loop = Loop(refused(Reason.QUEUE_TIMEOUT))
    outcome = await loop.run()
    assert outcome.reason is Reason.QUEUE_TIMEOUT
    assert loop.calls == 1
    assert loop.exchange.attempts_left == 3


async def test_a_providers_answer_is_not_lost_to_a_later_silence() -> None:
    loop = Loop(failed(500), unanswered(OutcomeKind.CONNECT_TIMEOUT))
    outcome = await loop.run()
    assert outcome.kind is OutcomeKind.CONNECT_TIMEOUT
    assert outcome.answer is not None
    assert outcome.answer.status == 500


async def test_a_later_tiers_attempt_is_kept_for_it() -> None:
    loop = Loop(failed(500))
    loop.exchange.attempts_left, loop.exchange.attempts_kept, loop.exchange.later_tiers = 3, 1, 1
    loop.exchange.facts.request_id = request_id_with_a_short_delay()
    await loop.run()
    assert loop.calls == 2
    assert loop.exchange.attempts_left == 1


async def test_with_a_next_tier_a_known_wait_over_a_second_goes_there() -> None:
    limited = failed(503)
    limited.retry_after = 1.1
    loop = Loop(limited)
    loop.exchange.later_tiers = 1
    await loop.run(seconds=0.0)
    assert loop.calls == 1


async def test_no_back_off_outlasts_the_deadline() -> None:
    loop = Loop(failed(500))
    loop.exchange.deadline_at = loop.clock.now() + 0.4
    outcome = await loop.run(seconds=0.0)
    assert loop.calls == 1
    assert outcome.retries_spent


async def test_a_spent_budget_ends_retries_of_other_requests_too() -> None:
    loop = Loop(failed(500))
    for _ in range(BUDGET_FLOOR):
        assert loop.budget.take(loop.clock.now())
    outcome = await loop.run(seconds=0.0)
    assert loop.calls == 1
    assert outcome.retries_spent


@pytest.mark.parametrize(("told", "calls"), [(0.0, 1), (BREAKER.open_first + 1.0, 2)])
async def test_nobody_waits_for_a_retry_that_an_open_breaker_would_refuse(told: float, calls: int) -> None:
    loop: Loop

    async def call(exchange: Exchange) -> Outcome:
        for _ in range(BREAKER.consecutive):
            if (ticket := loop.breaker.acquire(loop.clock.now(), stream=False)) is not None:
                ticket.on_wire(loop.clock.now())
                ticket.end(Verdict.FAILURE, loop.clock.now())
        outcome = failed(503)
        outcome.retry_after = told
        return outcome

    loop = Loop(call, settings=RetrySettings(attempts=2))
    outcome = await loop.run()
    assert loop.calls == calls
    assert outcome.retries_spent


async def test_an_answer_is_held_back_only_while_another_call_may_follow() -> None:
    seen: list[bool] = []

    async def call(exchange: Exchange) -> Outcome:
        seen.append(exchange.replaceable)
        return failed(500)

    loop = Loop(call)
    await loop.run()
    assert seen == [True, True, False]


def request_id_with_a_short_delay() -> str:
    """A request whose first delay is below a second, so that a next tier does not take it."""
    return next(name for name in map(str, range(1000)) if backoff_seconds(SETTINGS, retry=0, request_id=name) < 1.0)
