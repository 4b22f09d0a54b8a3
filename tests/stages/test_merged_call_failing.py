"""MergedCall: what fails, or cannot be dealt, and what each caller is told of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable

import pytest

from proxy.decisions.answers import Answers
from proxy.exchange import Usage
from proxy.observer import Split
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from tests.fakes import settle
from tests.stages.merging_world import JSON, Asked, Merging, events, merged, over


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


async def test_whose_answer_could_not_be_dealt_is_asked_singly_for_a_while() -> None:
    world = Merging()
    _, asked = await merged(world, "a", "b")
    asked.gives(b"{}")
    await settle()
    for count, name in enumerate("cde", 5):
        await world.caller(name)
        assert len(world.asked) == count
    for one in (world.asked[0], *world.asked[2:]):
        one.answers()
    await world.passes(60.0)
    before = len(world.asked)
    await world.caller("first")
    await world.caller("f")
    await world.caller("g")
    assert len(world.asked) == before + 1


async def test_what_was_one_inputs_fault_keeps_nobody_apart() -> None:
    world = Merging()
    _, asked = await merged(world, "a", "b")
    asked.fails(400)
    await settle()
    before = len(world.asked)
    for name in "cd":
        await world.caller(name)
    assert len(world.asked) == before


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
