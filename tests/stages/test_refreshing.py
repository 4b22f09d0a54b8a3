"""Refreshing: detached calls that fetch old answers anew, few at a time, seen as requests of their own."""

from __future__ import annotations

import asyncio

from proxy.exchange import CancelCause
from proxy.observer import CacheUse, Shared, Sharing
from proxy.outcome import Outcome, OutcomeKind
from proxy.trace_context import TraceContext
from tests.fakes import settle
from tests.stages.saving import Saved


async def test_a_refresh_is_observed_once_as_a_request_of_its_own() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    caller, _ = await saved.ask()
    saved.script.answer()
    await settle()
    (refresh,) = saved.seen.ended_ones
    assert refresh.facts is not caller.facts
    assert (refresh.facts.kind, refresh.facts.request_id) == (OutcomeKind.OK, "r1-refresh")
    assert len(refresh.facts.attempts) == 1
    assert caller.facts.attempts == []


async def test_a_refresh_that_fails_leaves_the_old_answer_and_the_next_caller_starts_another() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    await saved.ask()
    saved.script.end(Outcome(OutcomeKind.UPSTREAM_ERROR, status=503))
    await settle()
    assert saved.at_rest
    exchange, _ = await saved.ask()
    assert exchange.facts.cache is CacheUse.STALE
    assert len(saved.script.works) == 2
    saved.script.end(Outcome(OutcomeKind.UPSTREAM_ERROR, status=503))
    await settle()
    assert saved.at_rest


async def test_only_so_many_refreshes_run_at_once() -> None:
    saved = Saved(most_refreshes=1)
    for body in (b"1", b"2"):
        await saved.kept(body)
    saved.clock.advance(15.0)
    for body in (b"1", b"2"):
        exchange, _ = await saved.ask(body)
        assert exchange.facts.cache is CacheUse.STALE
    assert len(saved.script.works) == 1
    saved.refreshes.stop()
    await settle()
    assert saved.at_rest


async def test_one_route_leaves_places_to_the_others() -> None:
    saved = Saved(most_refreshes=4)
    names = [b"%d" % number for number in range(7)]
    for name in names:
        await saved.kept(name)
    saved.clock.advance(15.0)
    running = []
    for name, route in zip(names, ["slow"] * 3 + ["well"] * 3 + ["late"], strict=True):
        exchange = saved.exchange(name)
        exchange.facts.route = route
        await saved.call(exchange)
        running.append(saved.refreshes.running)
    assert running == [1, 2, 2, 3, 4, 4, 4]
    saved.refreshes.stop()
    await settle()
    assert saved.at_rest


async def test_a_refresh_has_a_span_of_its_own_in_the_trace_of_who_found_the_old_answer() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    caller = saved.exchange()
    caller.facts.trace = TraceContext(
        trace_id=7, span_id=8, parent_span_id=0, sampled=True, tracestate="", remote=False
    )
    await saved.call(caller)
    await settle()
    trace = saved.script.work.facts.trace
    assert trace is not None
    assert (trace.trace_id, trace.parent_span_id, trace.sampled) == (7, 8, True)
    assert trace.span_id != 8
    saved.script.answer()
    await settle()
    (refresh,) = saved.seen.ended_ones
    assert [event for _, event in refresh.facts.events] == [Shared(how=Sharing.REPLAYED, link=(7, 8))]


async def test_a_refresh_takes_its_callers_body_along_and_lets_it_go_at_its_end() -> None:
    saved = Saved()
    await saved.kept(b"body")
    saved.clock.advance(15.0)
    caller, _ = await saved.ask(b"body")
    assert caller.request.body is None
    assert saved.script.work.request.body == b"body"
    saved.script.answer()
    await settle()
    assert saved.seen.ended_ones[0].request.body is None


async def test_a_refresh_that_is_stopped_has_been_ended_by_a_drain() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    await (await saved.ask())[1]
    (work,) = saved.script.works
    saved.refreshes.stop()
    await settle()
    assert work.cancel_cause is CancelCause.DRAIN
    assert [exchange.facts.kind for exchange in saved.seen.ended_ones] == [OutcomeKind.DRAINED]


async def test_whenever_a_refresh_is_stopped_nothing_is_left() -> None:
    for moment in range(6):
        saved = Saved()
        await saved.kept()
        saved.clock.advance(15.0)
        await saved.call(saved.exchange())
        for _ in range(moment):
            await asyncio.sleep(0)
        saved.refreshes.stop()
        await settle()
        assert saved.at_rest
