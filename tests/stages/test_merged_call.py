"""MergedCall: each caller's part of what comes of it, whatever that is, and whoever has left meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.dialects.demand import demand_of
from proxy.observer import Merged, Waited
from proxy.outcome import OutcomeKind
from tests.fakes import settle
from tests.stages.merging_world import Asked, Caller, Merging, events, merged, over


async def test_each_one_gets_its_own_answer_and_head() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", ["b", "c"])
    asked.answers()
    await settle()
    assert [caller.texts for caller in callers] == [["a"], ["b", "c"]]
    for caller in callers:
        assert caller.outcome.kind is OutcomeKind.OK
        assert caller.outcome.committed
        assert caller.reply.length == len(caller.reply.body)
        assert caller.reply.header(b"content-type") == b"application/json"
        assert caller.reply.header(b"etag") is None
        assert caller.reply.header(b"set-cookie") is None
        assert caller.exchange.facts.first_byte_at == world.clock.now()
    await over(world)


async def test_facts_are_told_of_the_carrier_and_tokens_of_everybody() -> None:
    world = Merging()
    callers, asked = await merged(world, "a" * 40, "b" * 40, "c" * 80)
    asked.exchange.facts.queued_seconds = 0.5
    asked.exchange.note(1.0, Waited(provider="alpha", seconds=0.5, lacking="permit"))
    asked.answers(tokens=100)
    await settle()
    carrier, *others = callers
    assert carrier.exchange.facts.attempts == asked.exchange.facts.attempts
    assert carrier.exchange.facts.queued_seconds == 0.5
    assert [other.exchange.facts.attempts for other in others] == [[], []]
    usages = [caller.exchange.facts.usage for caller in callers]
    assert [usage.input for usage in usages if usage is not None] == [26, 25, 49]
    assert [caller.answer["usage"]["prompt_tokens"] for caller in callers] == [26, 25, 49]
    for caller in callers:
        facts = caller.exchange.facts
        assert (facts.tier, facts.provider, facts.model) == (1, "alpha", "m1")
    spans = tuple(other.span for other in others)
    assert events(carrier)[1:] == [Merged(callers=3, inputs=3, carries=True, links=spans)]
    for other in others:
        assert events(other) == [Merged(callers=3, inputs=3, carries=False, links=(carrier.span,))]
    assert (world.lanes.calls, world.lanes.merged, world.lanes.split) == (1, 3, 0)


async def test_what_it_asks_for_is_measured_anew_and_it_can_be_sent_twice_if_each_can() -> None:
    world = Merging()
    await world.busy()
    for name in ("a" * 100, "b" * 1000):
        caller = Caller(world, name)
        demand = demand_of(caller.exchange)
        assert demand is not None
        caller.exchange.replayable = len(name) == 100
        await settle()
    await world.passes()
    work = world.asked[-1].exchange
    both = demand_of(work)
    assert both is not None
    assert both.text_bytes == len(work.request.body or b"") > 1100
    assert work.payload is None
    assert not work.replayable


async def test_who_leaves_meanwhile_costs_the_others_nothing() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b", "c")
    await callers[0].leaves()
    assert callers[0].task.cancelled()
    assert not asked.cancelled
    asked.answers(tokens=30)
    await settle()
    assert callers[1].texts == ["b"]
    assert callers[2].texts == ["c"]
    assert callers[0].exchange.facts.usage is None, "what has ended is told of nothing more"
    carrier = callers[1].exchange.facts
    assert carrier.attempts == asked.exchange.facts.attempts
    assert not callers[0].exchange.facts.attempts
    assert events(callers[1]) == [Merged(callers=3, inputs=3, carries=True, links=(callers[2].span,))]
    await over(world)


async def test_when_the_last_one_leaves_the_call_ends() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    for caller in callers:
        await caller.leaves()
    assert asked.cancelled
    assert not callers[0].exchange.facts.attempts
    (attempt,) = callers[1].exchange.facts.attempts
    assert attempt.kind is OutcomeKind.CLIENT_LEFT
    assert attempt.ended_at == world.clock.now()
    await over(world)


async def test_a_caller_keeps_its_own_deadline_and_the_call_the_latest() -> None:
    world = Merging()
    await world.busy()
    hurried, patient = await world.caller("a", deadline=1.0), await world.caller("b", deadline=50.0)
    await world.passes()
    asked = world.asked[-1]
    asked.begins()
    assert asked.exchange.deadline_at == patient.exchange.deadline_at
    await world.passes(2.0)
    assert hurried.outcome.kind is OutcomeKind.TOTAL_TIMEOUT
    assert not patient.done
    await world.passes(60.0)
    assert not patient.done, "its deadline is the call's own to keep"
    asked.answers()
    await settle()
    assert patient.texts == ["b"]
    await over(world)


async def test_a_hurried_last_one_ends_the_call() -> None:
    world = Merging()
    await world.busy()
    hurried, patient = await world.caller("a", deadline=1.0), await world.caller("b", deadline=50.0)
    await world.passes()
    world.asked[-1].begins()
    await patient.leaves()
    await world.passes(2.0)
    assert hurried.outcome.kind is OutcomeKind.TOTAL_TIMEOUT
    assert world.asked[-1].cancelled
    await over(world)


async def test_prompts_with_several_answers_are_dealt_too() -> None:
    world = Merging()
    await world.caller("z", path="/v1/completions", field="prompt", n=2)
    world.asked[-1].begins()
    callers = [await world.caller(name, path="/v1/completions", field="prompt", n=2) for name in "ab"]
    await world.passes()
    choices = [{"index": i, "text": f"t{i}"} for i in range(4)]
    world.asked[-1].gives(json.dumps({"choices": choices}).encode())
    await settle()
    assert world.asked[-1].body["prompt"] == ["a", "b"]
    assert [[one["text"] for one in caller.answer["choices"]] for caller in callers] == [["t0", "t1"], ["t2", "t3"]]


Step = Callable[[list[Caller], Asked, Merging], Coroutine[Any, Any, None]]


async def nothing(callers: list[Caller], asked: Asked, world: Merging) -> None:
    """It is under way."""


async def answered_in_this_step(callers: list[Caller], asked: Asked, world: Merging) -> None:
    """Its answer is there, and nobody has heard of it."""
    asked.answers()


async def failed_in_this_step(callers: list[Caller], asked: Asked, world: Merging) -> None:
    """It has failed, and nobody has heard of it."""
    asked.fails(400)


async def split(callers: list[Caller], asked: Asked, world: Merging) -> None:
    """Each one asks alone."""
    asked.fails(400)
    await settle()


@pytest.mark.parametrize("step", [nothing, answered_in_this_step, failed_in_this_step, split])
@pytest.mark.parametrize("who", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
async def test_wherever_anybody_is_cancelled_nothing_is_left(step: Step, who: tuple[int, ...]) -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b", "c")
    await step(callers, asked, world)
    for index in who:
        callers[index].task.cancel()
    await settle()
    for one in world.asked[1:]:
        if not one.end.done():
            one.answers()
    await settle()
    for index, caller in enumerate(callers):
        assert caller.done
        if index not in who:
            assert caller.texts == [caller.value]
    await over(world)
