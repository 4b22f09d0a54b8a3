"""Merging, as a stage: who goes at once, who waits for whom, and who never travels with whom."""

from __future__ import annotations

import json
from dataclasses import replace

from proxy.exchange import CancelCause
from proxy.outcome import OutcomeKind, Reason, refused
from tests.fakes import answered, settle
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
    assert caller.exchange.on_attempt is None
    assert not caller.exchange.facts.events
    assert world.idle


async def test_those_who_come_within_a_window_travel_as_one() -> None:
    world = Merging()
    first = await world.busy()
    callers = [await world.caller(name) for name in "abc"]
    assert len(world.asked) == 1
    await world.passes()
    assert world.sizes() == [1, 3]
    world.asked[1].answers(tokens=10)
    world.asked[0].answers()
    await settle()
    assert [caller.texts for caller in callers] == [["a"], ["b"], ["c"]]
    assert sum(caller.answer["usage"]["prompt_tokens"] for caller in callers) == 10
    assert first.texts == ["first"]
    assert world.idle


async def test_who_waits_alone_goes_as_it_came() -> None:
    world = Merging()
    await world.busy()
    caller = await world.caller("a")
    assert len(world.asked) == 1
    await world.passes()
    assert world.asked[1].exchange is caller.exchange
    assert world.asked[1].exchange.request.body == caller.body


async def test_a_full_call_waits_for_no_window() -> None:
    world = Merging(most=3)
    await world.busy()
    for name in "abcd":
        await world.caller(name)
    assert world.sizes() == [1, 3]
    world.asked[1].begins()
    await world.passes()
    assert world.sizes() == [1, 3, 1]


async def test_a_list_counts_its_inputs_and_one_too_long_travels_alone() -> None:
    world = Merging(most=3)
    await world.busy()
    await world.caller(["a", "b"])
    await world.caller(["c", "d", "e", "f"])
    assert world.sizes() == [1, 4]
    pair = await world.caller(["g", "h"])
    assert world.sizes() == [1, 4, 2]
    assert world.asked[2].inputs == ["a", "b"]
    world.asked[2].begins()
    await world.passes()
    assert world.asked[3].exchange is pair.exchange


async def test_behind_a_call_that_waits_for_its_place_they_gather() -> None:
    world = Merging()
    await world.busy()
    for name in "ab":
        await world.caller(name)
    await world.passes()
    for name in "cde":
        await world.caller(name)
        await world.passes()
    assert world.sizes() == [1, 2]
    world.asked[1].begins()
    await settle()
    assert world.sizes() == [1, 2, 3]


async def test_behind_a_lone_one_that_waits_too() -> None:
    world = Merging()
    await world.caller("first")
    await world.caller("a")
    await world.passes(10.0)
    assert world.sizes() == [1]
    world.asked[0].end.set_result(refused(Reason.QUEUE_TIMEOUT))
    await settle()
    assert world.sizes() == [1, 1]


async def test_a_merged_call_asks_for_an_answer_that_can_be_read() -> None:
    world = Merging()
    await world.busy()
    for name in "ab":
        await world.caller(name, headers=[("Accept-Encoding", "gzip, br"), ("x-mine", name)])
    await world.passes()
    work = world.asked[1].exchange
    assert work.request.fields.get("accept-encoding") == "identity"
    assert work.request.fields.get("x-mine") == "a"
    assert work.document == {"model": "m1", "input": ["a", "b"]}
    assert json.loads(work.request.body or b"") == work.document
    assert work.demand is None
    assert work.alike == b""


async def test_who_leaves_before_the_call_goes_is_taken_out() -> None:
    world = Merging()
    await world.busy()
    leaving = await world.caller("a")
    await world.caller("b")
    await world.caller("c")
    await leaving.leaves()
    await world.passes()
    assert world.asked[1].inputs == ["b", "c"]


async def test_the_only_one_who_waits_leaves_nothing_behind() -> None:
    world = Merging()
    await world.busy()
    leaving = await world.caller("a")
    await leaving.leaves()
    await world.passes(10.0)
    assert len(world.asked) == 1
    world.asked[0].answers()
    await settle()
    assert world.idle


async def test_who_is_cancelled_when_its_turn_has_come_holds_nobody_up() -> None:
    world = Merging()
    await world.busy()
    leaving = await world.caller("a")
    world.clock.advance(WINDOW)
    leaving.task.cancel()
    await settle()
    assert leaving.task.cancelled()
    assert len(world.asked) == 1
    for name in "bc":
        await world.caller(name)
    await world.passes()
    assert world.asked[1].inputs == ["b", "c"]


async def test_a_callers_own_deadline_ends_its_wait() -> None:
    world = Merging()
    await world.caller("first")
    waiting = await world.caller("a", deadline=5.0)
    patient = await world.caller("b")
    await world.passes(5.0)
    assert waiting.outcome.kind is OutcomeKind.TOTAL_TIMEOUT
    world.asked[0].answers()
    await settle()
    assert world.asked[1].exchange is patient.exchange


async def test_the_least_of_what_policy_and_providers_take_is_the_most() -> None:
    world = Merging(most=8)
    world.scope["most"] = 2
    world.stage = world.new_stage()
    await world.busy()
    for name in "abc":
        await world.caller(name)
    assert world.sizes() == [1, 2]


async def test_lanes_in_which_nothing_happens_are_forgotten() -> None:
    world = Merging()
    for number in range(50):
        await world.caller("a", user=f"u{number}")
        world.asked[-1].answers()
        await world.passes(1.0)
    assert len(world.lanes.lanes) <= 2
    busy = await world.caller("a", user="busy")
    for number in range(50):
        await world.caller("a", user=f"v{number}")
        world.asked[-1].answers()
        await world.passes(1.0)
    assert len(world.lanes.lanes) <= 3
    assert not busy.done


async def test_each_one_looks_for_its_own_kept_answer_when_a_merged_call_has_failed() -> None:
    world = Merging(stale_tier=2)
    await world.busy()
    callers = [await world.caller(name) for name in "ab"]
    for caller in callers:
        caller.exchange.alike = b"named"
    await world.passes()
    world.asked[1].fails(503, OutcomeKind.UPSTREAM_ERROR)
    await settle()
    has, has_not = world.asked[2:]
    assert [one.exchange for one in (has, has_not)] == [caller.exchange for caller in callers]
    assert [one.exchange.first_tier for one in (has, has_not)] == [2, 2]
    has.exchange.reply.start(200, b"OK", b"", length=2, body=b"{}")
    has.end.set_result(answered())
    has_not.exchange.facts.tier = 2
    has_not.end.set_result(replace(refused(Reason.QUEUE_FULL), reason=None))
    await settle()
    assert callers[0].outcome.kind is OutcomeKind.OK
    assert callers[1].outcome.status == 503
    assert callers[1].exchange.facts.tier == 1


async def test_a_drain_that_cancels_the_last_caller_is_a_drain() -> None:
    world = Merging()
    await world.busy()
    callers = [await world.caller(name) for name in "ab"]
    await world.passes()
    for caller in callers:
        caller.exchange.cancel_cause = CancelCause.DRAIN
        await caller.leaves()
    assert world.asked[1].cancelled
    assert world.asked[1].exchange.cancel_cause is CancelCause.DRAIN
