"""MergedCall: each caller's part of what comes of it, whatever that is, and whoever has left meanwhile."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from proxy.decisions.answers import Answers
from proxy.dialects.demand import demand_of
from proxy.exchange import Usage
from proxy.observer import Merged, Split, Waited
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from tests.fakes import settle
from tests.stages.merging_world import JSON, Asked, Caller, Merging


async def merged(world: Merging, *values: Any, **rest: Any) -> tuple[list[Caller], Asked]:
    """Several who travel together, and their call."""
    await world.busy()
    callers = [await world.caller(value, **rest) for value in values]
    await world.passes()
    asked = world.asked[-1]
    assert asked.exchange not in [caller.exchange for caller in callers]
    asked.begins()
    return callers, asked


async def over(world: Merging) -> None:
    """The one who came first is answered, too; then nothing is left."""
    world.asked[0].answers()
    await settle()
    assert world.idle, world.lanes.lanes


def events(caller: Caller) -> list[object]:
    return [event for _, event in caller.exchange.facts.events]


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


async def test_what_was_refused_here_has_not_travelled() -> None:
    world = Merging()
    await world.busy()
    callers = [await world.caller(name) for name in "ab"]
    await world.passes()
    world.asked[-1].end.set_result(refused(Reason.QUEUE_FULL, retry_after=1.0))
    await settle()
    assert [events(caller) for caller in callers] == [[], []]
    assert [caller.outcome.reason for caller in callers] == [Reason.QUEUE_FULL] * 2
    await over(world)


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


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_may_be_ones_fault_is_asked_of_each_alone(status: int) -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "bad", "c")
    attempts = asked.exchange.facts.attempts
    asked.fails(status)
    await settle()
    singles = world.asked[2:]
    assert [one.exchange for one in singles] == [caller.exchange for caller in callers]
    assert [one.exchange.request.body for one in singles] == [caller.body for caller in callers]
    singles[1].fails(status)
    singles[0].answers()
    singles[2].answers()
    await settle()
    assert callers[0].texts == ["a"]
    assert callers[2].texts == ["c"]
    assert callers[1].outcome.status == status
    assert events(callers[0]) == [Split(callers=3, after=OutcomeKind.CALLER_ERROR)]
    assert not events(callers[1])
    assert callers[0].exchange.facts.attempts[:1] == attempts[:1]
    assert (world.lanes.calls, world.lanes.split) == (1, 1)
    await over(world)


@pytest.mark.parametrize(
    "outcome",
    [
        refused(Reason.CONTEXT_TOO_LONG),
        refused(Reason.BODY_TOO_LARGE),
        refused(Reason.QUOTA_EXHAUSTED),
        Outcome(OutcomeKind.ERROR_IN_ANSWER, status=400),
    ],
    ids=repr,
)
async def test_what_is_too_much_together_is_asked_of_each_alone(outcome: Outcome) -> None:
    world = Merging()
    _, asked = await merged(world, "a", "b")
    asked.end.set_result(outcome)
    await settle()
    assert world.sizes() == [1, 2, 1, 1]


@pytest.mark.parametrize(
    "outcome",
    [
        refused(Reason.QUEUE_FULL, retry_after=1.0),
        refused(Reason.QUOTA_EXHAUSTED, retry_after=60.0),
        refused(Reason.BREAKER_OPEN),
        Outcome(OutcomeKind.FIRST_BYTE_TIMEOUT, maybe_executed=True),
        Outcome(OutcomeKind.DISCONNECTED, maybe_executed=True),
        Outcome(OutcomeKind.TOTAL_TIMEOUT),
        Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=401),
        Outcome(OutcomeKind.ERROR_IN_ANSWER, status=500),
    ],
    ids=repr,
)
async def test_any_other_failure_is_everybodys(outcome: Outcome) -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    asked.end.set_result(outcome)
    await settle()
    for caller in callers:
        assert (caller.outcome.kind, caller.outcome.reason) == (outcome.kind, outcome.reason)
        assert caller.outcome is not outcome
        assert caller.outcome.retry_after == outcome.retry_after
        assert not caller.outcome.committed
        assert not caller.reply.started
    assert world.sizes() == [1, 2]
    await over(world)


async def test_a_kept_failure_is_given_to_each() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    asked.fails(503, OutcomeKind.UPSTREAM_ERROR)
    await settle()
    first, second = (caller.outcome for caller in callers)
    assert first is not second
    assert first.answer is second.answer
    assert first.answer is not None


async def test_the_policys_own_answer_is_given_to_each() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    asked.exchange.reply.start(400, b"No", JSON, length=4, body=b"sure")
    asked.end.set_result(Outcome(OutcomeKind.ANSWERED, status=400, committed=True))
    await settle()
    for caller in callers:
        assert (caller.reply.status, caller.reply.body, caller.reply.end) == (400, b"sure", "finished")
        assert caller.outcome.kind is OutcomeKind.ANSWERED
        assert caller.outcome.committed


async def test_a_broken_answer_is_an_answer_to_nobody() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    asked.exchange.reply.start(200, b"OK", JSON, length=100)
    asked.exchange.reply.write(b'{"data"')
    asked.exchange.reply.abort()
    asked.end.set_result(Outcome(OutcomeKind.STREAM_BROKEN, status=200, committed=True))
    await settle()
    for caller in callers:
        assert not caller.reply.started
        assert caller.outcome.kind is OutcomeKind.STREAM_BROKEN
        assert not caller.outcome.committed
    await over(world)


def one_result(asked: Asked) -> bytes:
    return json.dumps({"data": [{"index": 0, "embedding": "a"}]}).encode()


@pytest.mark.parametrize(
    "answer",
    [
        one_result,
        lambda asked: b"no json",
        lambda asked: gzip.compress(b"{}"),
        lambda asked: b'{"data": [{"index": 0}, {"index": 0}]}',
        lambda asked: b'{"data": [{"index": 0}, {"index": 1}, {"index": 2}]}',
        lambda asked: b"x" * (33 * 1024 * 1024),
    ],
    ids=["too few", "no json", "packed", "twice", "too many", "too large"],
)
async def test_an_answer_that_cannot_be_dealt_is_asked_for_by_each_alone(answer: Callable[[Asked], bytes]) -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    asked.gives(answer(asked), usage=Usage(20))
    await settle()
    assert world.sizes() == [1, 2, 1, 1]
    for one in world.asked[2:]:
        one.answers()
    await settle()
    assert [caller.texts for caller in callers] == [["a"], ["b"]]
    await over(world)


async def test_another_good_status_is_nobodys() -> None:
    world = Merging()
    _, asked = await merged(world, "a", "b")
    asked.exchange.reply.start(202, b"Accepted", JSON, length=2, body=b"{}")
    asked.end.set_result(Outcome(OutcomeKind.OK, status=202, committed=True))
    await settle()
    assert world.sizes() == [1, 2, 1, 1]


async def test_without_room_for_the_bytes_each_asks_alone() -> None:
    world = Merging(ledger=Answers(most_bytes=10))
    await world.busy()
    callers = [await world.caller(name) for name in "ab"]
    await world.passes()
    assert [one.exchange for one in world.asked[1:]] == [caller.exchange for caller in callers]
    for one in world.asked[1:]:
        one.answers()
    await settle()
    assert [caller.texts for caller in callers] == [["a"], ["b"]]
    await over(world)


async def test_a_bug_below_is_told_to_each() -> None:
    world = Merging()
    callers, asked = await merged(world, "a", "b")
    asked.end.set_exception(ZeroDivisionError("a bug"))
    await settle()
    assert [caller.outcome.kind for caller in callers] == [OutcomeKind.BUG] * 2
    await over(world)


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
