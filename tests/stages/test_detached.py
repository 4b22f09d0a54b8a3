"""Calls in tasks of their own: their end is told once, whatever it is, and those who wait hear of all news."""

from __future__ import annotations

import asyncio

import pytest

from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stages.detached import Waits, run_detached
from tests.fakes import Ask, answered, make_exchange, settle


class Waiter(Waits):
    """One who waits."""

    def __init__(self) -> None:
        self._waiter = None


async def test_who_waits_hears_of_news_and_may_be_told_more_than_once() -> None:
    waiter = Waiter()
    waiter.wake()
    waiting = asyncio.ensure_future(waiter.news())
    await settle()
    assert not waiting.done(), "what happened before is no news"
    waiter.wake()
    waiter.wake()
    await waiting
    waiter.wake()


async def test_who_leaves_waits_no_more() -> None:
    waiter = Waiter()
    waiting = asyncio.ensure_future(waiter.news())
    await settle()
    waiting.cancel()
    waiter.wake()
    await settle()
    assert waiting.cancelled()
    assert waiter._waiter is None


async def test_the_outcome_is_told() -> None:
    told: list[Outcome] = []

    async def call(exchange: Exchange) -> Outcome:
        return answered()

    await run_detached(make_exchange(Ask()), call, told.append)
    assert [outcome.kind for outcome in told] == [OutcomeKind.OK]


async def test_a_bug_is_told_and_goes_on() -> None:
    told: list[Outcome] = []

    async def call(exchange: Exchange) -> Outcome:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        await run_detached(make_exchange(Ask()), call, told.append)
    assert [outcome.kind for outcome in told] == [OutcomeKind.BUG]


async def test_a_cancellation_is_told_with_its_cause_and_goes_on() -> None:
    told: list[Outcome] = []
    work = make_exchange(Ask())
    work.cancel_cause = CancelCause.DRAIN

    async def call(exchange: Exchange) -> Outcome:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    task = asyncio.ensure_future(run_detached(work, call, told.append))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [outcome.kind for outcome in told] == [OutcomeKind.DRAINED]
