"""Merging leaves nothing to the garbage collector: callers, calls and bodies go with the last one's answer."""

from __future__ import annotations

import pytest

from proxy.exchange import Exchange
from proxy.stages.merged_call import Caller, MergedCall
from tests.fakes import settle
from tests.freed import uncollected
from tests.stages.merging_world import Merging

LATE = 1_000.0
"""Seconds after which the clock has forgotten all timers that were cancelled."""


async def answered(world: Merging) -> None:
    """Three travel together behind one who has gone alone."""
    await world.busy()
    for name in "abc":
        await world.caller(name)
    await world.passes()
    for asked in world.asked:
        asked.answers()


async def asked_singly(world: Merging) -> None:
    """An answer that cannot be dealt."""
    await world.busy()
    for name in "abc":
        await world.caller(name)
    await world.passes()
    world.asked[1].gives(b"[]")
    await settle()
    for asked in (world.asked[0], *world.asked[2:]):
        asked.answers()


async def left_in_the_lane(world: Merging) -> None:
    """One leaves before its turn has come."""
    await world.busy()
    await (await world.caller("a")).leaves()
    world.asked[0].answers()


async def left_under_way(world: Merging) -> None:
    """All leave in the middle."""
    callers = [await world.busy(), *[await world.caller(name) for name in "ab"]]
    await world.passes()
    for caller in callers:
        await caller.leaves()


@pytest.mark.parametrize("ends", [answered, asked_singly, left_in_the_lane, left_under_way], ids=lambda f: f.__name__)
async def test_nothing_waits_for_the_garbage_collector(ends: object) -> None:
    assert callable(ends)
    with uncollected(MergedCall, Caller, Exchange) as remaining:
        world = Merging()
        await ends(world)
        await settle()
        assert world.idle
        world.asked.clear()
        world.clock.advance(LATE)
        await settle()
        assert remaining() == 0
