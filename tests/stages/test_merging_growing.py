"""A merged call that has waited takes along those who came meanwhile, where that changes nothing of what it holds."""

from __future__ import annotations

import json

import pytest

from proxy.decisions.answers import Answers
from tests.fakes import settle
from tests.stages.merging_world import Asked, Merging


def shaped(asked: Asked) -> Asked:
    """The tier has put the body in that it will send."""
    asked.exchange.payload = asked.exchange.request.body
    return asked


def sent(asked: Asked) -> list[str]:
    """What is sent when the attempt begins; it is answered for that."""
    asked.begins()
    asked.body = json.loads(asked.exchange.payload or b"")
    return asked.inputs


async def waiting(world: Merging, first: str = "ab", then: str = "cd") -> Asked:
    """A merged call waits in admission, and others behind it."""
    await world.busy()
    for name in first:
        await world.caller(name)
    await world.passes()
    asked = shaped(world.asked[1])
    for name in then:
        await world.caller(name)
    return asked


async def test_those_who_came_while_it_waited_travel_with_it() -> None:
    world = Merging()
    await world.busy()
    callers = [await world.caller(name) for name in "ab"]
    await world.passes()
    asked = shaped(world.asked[1])
    callers += [await world.caller(name) for name in "cd"]
    assert sent(asked) == ["a", "b", "c", "d"]
    asked.answers()
    world.asked[0].answers()
    await settle()
    assert [caller.texts for caller in callers] == [["a"], ["b"], ["c"], ["d"]]
    assert sum(caller.answer["usage"]["prompt_tokens"] for caller in callers) == 40
    assert (world.lanes.merged, world.lanes.calls, world.idle) == (4, 1, True)


async def test_it_takes_no_more_than_fit() -> None:
    world = Merging(most=3)
    asked = await waiting(world, "ab", "cd")
    assert sent(asked) == ["a", "b", "c"]
    await world.passes()
    assert world.asked[2].inputs == ["d"]


async def test_who_is_larger_than_the_room_left_keeps_those_behind_from_passing() -> None:
    world = Merging(most=4)
    asked = await waiting(world, "ab", "")
    await world.caller(["c", "d", "e"])
    await world.caller("f")
    assert sent(asked) == ["a", "b"]


async def test_a_call_for_which_tokens_were_reserved_stays_as_it_is() -> None:
    world = Merging()
    asked = await waiting(world)
    asked.exchange.demand = object()
    assert sent(asked) == ["a", "b"]


async def test_a_call_whose_body_a_tier_has_changed_stays_as_it_is() -> None:
    world = Merging()
    asked = await waiting(world)
    asked.exchange.payload = b'{"input":["a","b"],"model":"other"}'
    assert sent(asked) == ["a", "b"]


async def test_another_attempt_takes_nobody_along() -> None:
    world = Merging()
    asked = await waiting(world, "ab", "")
    assert sent(asked) == ["a", "b"]
    await world.caller("c")
    assert sent(asked) == ["a", "b"]


async def test_where_there_is_no_room_for_more_bytes_it_goes_as_it_is() -> None:
    world = Merging(ledger=Answers(most_bytes=80))
    asked = await waiting(world)
    assert asked.inputs == ["a", "b"]
    assert sent(asked) == ["a", "b"]


@pytest.mark.parametrize("leaver", range(4))
async def test_one_may_leave_afterwards_and_the_others_are_answered(leaver: int) -> None:
    world = Merging()
    await world.busy()
    callers = [await world.caller(name) for name in "ab"]
    await world.passes()
    asked = shaped(world.asked[1])
    callers += [await world.caller(name) for name in "cd"]
    sent(asked)
    callers[leaver].task.cancel()
    await settle()
    asked.answers()
    world.asked[0].answers()
    await settle()
    stayed = [caller for number, caller in enumerate(callers) if number != leaver]
    assert [caller.texts for caller in stayed] == [[name] for number, name in enumerate("abcd") if number != leaver]
    assert world.idle


async def test_when_it_fails_for_one_input_each_asks_singly_those_too_who_came_later() -> None:
    world = Merging()
    asked = await waiting(world)
    sent(asked)
    asked.fails(400)
    await settle()
    assert [one.inputs for one in world.asked[2:]] == [["a"], ["b"], ["c"], ["d"]]
