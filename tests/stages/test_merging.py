"""Merging, as a stage: who goes at once, who waits for whom, and what each one gets."""

from __future__ import annotations

from tests.fakes import settle
from tests.stages.merging_world import WINDOW, Merging


async def test_a_request_that_finds_its_lane_quiet_goes_at_once_as_it_came() -> None:
    world = Merging()
    caller = await world.caller("a")
    (asked,) = world.asked
    assert asked.exchange is caller.exchange
    assert asked.exchange.request.body == caller.body
    asked.answers()
    await settle()
    assert caller.texts == ["a"]
    assert world.idle


async def test_those_who_come_within_a_window_travel_as_one() -> None:
    world = Merging()
    first = await world.busy()
    callers = [await world.caller(name) for name in "abc"]
    assert len(world.asked) == 1
    await world.passes(WINDOW)
    assert world.sizes() == [1, 3]
    world.asked[1].answers(tokens=10)
    world.asked[0].answers()
    await settle()
    assert [caller.texts for caller in callers] == [["a"], ["b"], ["c"]]
    assert sum(caller.answer["usage"]["prompt_tokens"] for caller in callers) == 10
    assert first.texts == ["first"]
    assert world.idle
