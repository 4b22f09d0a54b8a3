"""Single flight: who joins whom, who is told what, and that failures end with those who waited."""

from __future__ import annotations

import asyncio
import random

import pytest

from proxy.exchange import Usage
from proxy.observer import CacheUse, Shared, Sharing
from proxy.outcome import Outcome, OutcomeKind
from proxy.stages.recording import LARGEST_KEPT
from proxy.trace_context import TraceContext
from tests.fakes import settle
from tests.stages.saving import BODY, Saved, body_of, header_of

JSON = b"content-type: application/json\r\n"


async def test_equal_requests_are_one_call_and_each_has_the_answer() -> None:
    saved = Saved()
    asked = [await saved.ask() for _ in range(5)]
    saved.script.answer()
    outcomes = await asyncio.gather(*(task for _, task in asked))
    assert all(outcome.committed for outcome in outcomes)
    assert len(saved.script.works) == 1
    assert [exchange.facts.cache for exchange, _ in asked] == [CacheUse.MISS, *[CacheUse.SHARED] * 4]
    assert {body_of(exchange) for exchange, _ in asked} == {BODY}
    assert (saved.flights.joined, saved.at_rest) == (4, True)


async def test_who_joins_is_linked_to_the_one_who_makes_the_call() -> None:
    saved = Saved()
    leader = saved.exchange()
    leader.facts.trace = TraceContext(
        trace_id=7, span_id=8, parent_span_id=0, sampled=True, tracestate="", remote=False
    )
    first = asyncio.ensure_future(saved.call(leader))
    follower, second = await saved.ask()
    saved.script.answer()
    await asyncio.gather(first, second)
    ((_, event),) = follower.facts.events
    assert event == Shared(how=Sharing.JOINED, link=(7, 8))
    assert leader.facts.events == []


async def test_one_caller_has_spent_the_tokens_and_the_others_have_saved_them() -> None:
    saved = Saved()
    (leader, first), (follower, second) = await saved.ask(), await saved.ask()
    saved.script.work.facts.usage = usage = Usage(input=3, output=4)
    saved.script.answer()
    await asyncio.gather(first, second)
    assert (leader.facts.usage, leader.facts.saved) == (usage, None)
    assert (follower.facts.usage, follower.facts.saved) == (None, usage)
    assert (len(leader.facts.attempts), follower.facts.attempts) == (1, [])


async def test_who_takes_the_leaders_place_has_spent_its_tokens() -> None:
    saved = Saved()
    (_, first), (follower, second) = await saved.ask(), await saved.ask()
    first.cancel()
    await settle()
    saved.script.work.facts.usage = usage = Usage(input=3, output=4)
    saved.script.answer()
    await second
    assert (follower.facts.usage, follower.facts.saved) == (usage, None)
    assert len(follower.facts.attempts) == 1


async def test_the_leaders_leaving_changes_nothing_for_those_who_joined() -> None:
    saved = Saved()
    (_, first), (follower, second) = await saved.ask(), await saved.ask()
    first.cancel()
    await settle()
    saved.script.answer()
    assert (await second).committed
    assert (body_of(follower), saved.script.cancelled) == (BODY, 0)
    assert len(saved.shelf.kept) == 1


async def test_the_last_ones_leaving_ends_the_call_and_nothing_is_kept() -> None:
    saved = Saved()
    tasks = [(await saved.ask())[1] for _ in range(3)]
    for task in tasks:
        task.cancel()
    await settle()
    assert (saved.script.cancelled, saved.shelf.kept, saved.at_rest) == (1, {}, True)


async def test_who_comes_late_reads_a_stream_from_its_beginning() -> None:
    saved = Saved()
    _, first = await saved.ask()
    saved.script.begin(b"content-type: text/event-stream\r\n")
    saved.script.write(b"data: 1\n\n")
    await settle()
    late, second = await saved.ask()
    assert body_of(late) == b"data: 1\n\n"
    saved.script.write(b"data: 2\n\n")
    saved.script.finish()
    await asyncio.gather(first, second)
    assert body_of(late) == b"data: 1\n\ndata: 2\n\n"


async def test_another_class_makes_its_own_call() -> None:
    saved = Saved()
    tasks = [(await saved.ask(klass=klass))[1] for klass in ("P0", "P1", "P2")]
    assert [work.facts.klass for work in saved.script.works] == ["P0", "P1", "P2"]
    for task in tasks:
        task.cancel()
    await settle()
    assert saved.at_rest


async def test_a_failure_is_shared_by_those_who_waited_and_by_no_one_after() -> None:
    saved = Saved()
    tasks = [(await saved.ask())[1] for _ in range(3)]
    saved.script.end(Outcome(OutcomeKind.UPSTREAM_ERROR, status=503))
    assert {(await task).kind for task in tasks} == {OutcomeKind.UPSTREAM_ERROR}
    _, task = await saved.ask()
    assert len(saved.script.works) == 2
    saved.script.end(Outcome(OutcomeKind.UPSTREAM_ERROR, status=503))
    await task


async def test_a_follower_keeps_its_own_deadline() -> None:
    saved = Saved()
    (_, first), (hurried, second) = await saved.ask(), await saved.ask(deadline=5.0)
    saved.clock.advance(6.0)
    await settle()
    assert second.result().kind is OutcomeKind.TOTAL_TIMEOUT
    assert not hurried.reply.started
    saved.script.answer()
    assert (await first).committed


async def test_without_joining_each_makes_its_own_call_and_its_answer_is_kept() -> None:
    saved = Saved(joins=False)
    tasks = [(await saved.ask())[1] for _ in range(2)]
    assert len(saved.script.works) == 2
    assert saved.flights.calls == {}
    saved.script.works.pop(0)
    saved.script.answer()
    await tasks[1]
    assert len(saved.shelf.kept) == 1
    tasks[0].cancel()
    await settle()
    assert saved.at_rest


async def test_an_answer_that_has_grown_too_large_is_joined_by_nobody_and_not_kept() -> None:
    saved = Saved()
    _, first = await saved.ask()
    saved.script.begin(JSON)
    for _ in range(5):
        saved.script.write(b" " * (LARGEST_KEPT // 4))
    await settle()
    saved.script.works.clear()
    _, second = await saved.ask()
    assert len(saved.script.works) == 1, "it made its own call"
    for task in (first, second):
        task.cancel()
    await settle()
    assert (saved.shelf.kept, saved.at_rest) == ({}, True)


@pytest.mark.parametrize("seed", range(30))
async def test_whoever_leaves_whenever_nothing_is_left_and_who_stays_is_answered(seed: int) -> None:
    saved, draw = Saved(), random.Random(seed)
    callers = [(await saved.ask()) for _ in range(6)]
    steps = [
        lambda: saved.script.begin(JSON, length=len(BODY)),
        lambda: saved.script.write(BODY),
        saved.script.finish,
    ]
    leavers = draw.sample(callers, draw.randrange(7))
    for step in steps:
        if leavers and draw.random() < 0.7:
            leavers.pop()[1].cancel()
        if draw.random() < 0.5:
            await settle()
        if saved.script.cancelled:
            break
        step()
    for _, task in leavers:
        task.cancel()
    await settle()
    assert saved.at_rest
    for exchange, task in callers:
        assert task.done()
        assert task.cancelled() or body_of(exchange) == BODY


async def test_all_leave_in_every_step() -> None:
    for moment in range(8):
        saved = Saved()
        tasks = [asyncio.ensure_future(saved.call(saved.exchange())) for _ in range(3)]
        for _ in range(moment):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await settle()
        assert saved.at_rest
        assert all(task.cancelled() for task in tasks)


async def test_a_refresh_that_joins_a_call_stays_a_refresh() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    _, asking = await saved.ask(klass="P2", headers=(("cache-control", "no-cache"),))
    stale, answered = await saved.ask()
    await answered
    saved.script.answer()
    await asking
    await settle()
    assert stale.facts.cache is CacheUse.STALE
    (refresh,) = saved.seen.ended_ones
    assert (refresh.facts.cache, len(saved.script.works)) == (CacheUse.REFRESH, 1)
    assert saved.at_rest


async def test_who_has_much_longer_than_a_call_makes_its_own_which_others_join() -> None:
    saved = Saved()
    early, first = await saved.ask()
    saved.clock.advance(51.0)
    late, second = await saved.ask()
    assert (late.facts.cache, len(saved.script.works)) == (CacheUse.MISS, 2)
    joined, third = await saved.ask()
    assert (joined.facts.cache, len(saved.script.works)) == (CacheUse.SHARED, 2)
    assert early.deadline_at < late.deadline_at
    for task in (first, second, third):
        task.cancel()
    await settle()
    assert saved.at_rest


async def test_a_stream_that_has_begun_is_joined_however_late() -> None:
    saved = Saved()
    _, first = await saved.ask(stream=True)
    saved.script.begin()
    saved.clock.advance(99.0)
    late, second = await saved.ask(stream=True)
    assert late.facts.cache is CacheUse.SHARED
    saved.script.finish()
    await asyncio.gather(first, second)


async def test_nobody_joins_a_refresh_which_would_get_no_kept_answer_in_the_end() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    await (await saved.ask())[1]
    saved.clock.advance(15.0)
    (refresh,) = saved.script.works
    asking, task = await saved.ask(klass="P2")
    assert refresh.facts.cache is CacheUse.REFRESH
    assert (asking.facts.cache, len(saved.script.works)) == (CacheUse.MISS, 2)
    task.cancel()
    saved.refreshes.stop()
    await settle()
    assert saved.at_rest


async def test_who_joins_a_call_that_ends_with_a_kept_answer_has_saved_its_tokens() -> None:
    saved = Saved()
    (_, first), (follower, second) = await saved.ask(), await saved.ask()
    facts = saved.script.work.facts
    facts.cache, facts.saved = CacheUse.STALE, Usage(input=3, output=4)
    saved.script.answer()
    await asyncio.gather(first, second)
    assert (follower.facts.usage, follower.facts.saved) == (None, Usage(input=3, output=4))


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_cookie_is_for_the_one_alone_who_has_made_the_call(at_once: bool) -> None:
    saved = Saved()
    (leader, first), (follower, second) = await saved.ask(), await saved.ask()
    lines = JSON + b"Set-Cookie: session=1\r\nx-kept: 1\r\n"
    if at_once:
        saved.script.answer(BODY, lines)
    else:
        saved.script.begin(lines)
        await settle()
        saved.script.write(BODY)
        saved.script.finish()
    await asyncio.gather(first, second)
    assert [header_of(one, b"set-cookie") for one in (leader, follower)] == [b"session=1", None]
    assert header_of(follower, b"x-kept") == b"1"
    assert body_of(leader) == body_of(follower) == BODY
