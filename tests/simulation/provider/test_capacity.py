from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider.capacity import Capacity


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_waiters_are_served_in_order() -> None:
    capacity, order = Capacity(1, None), []

    async def work(name: int) -> None:
        await capacity.take(0.0)
        order.append(name)
        await settle()
        capacity.give(0.0)

    async with asyncio.TaskGroup() as group:
        for name in range(5):
            group.create_task(work(name))
            await asyncio.sleep(0)
        assert capacity.queued == 4
    assert order == [0, 1, 2, 3, 4]
    assert capacity.free


async def test_a_place_is_had_since_the_work_before_was_due_to_end_but_not_since_before_one_came() -> None:
    capacity = Capacity(1, None)
    assert await capacity.take(1.0) == 1.0
    loop = asyncio.get_running_loop()
    early, late = loop.create_task(capacity.take(2.0)), loop.create_task(capacity.take(5.5))
    await settle()
    capacity.give(3.0)
    assert await early == 3.0
    capacity.give(4.0)
    assert await late == 5.5


async def test_full_means_no_place_and_no_place_in_the_queue() -> None:
    capacity = Capacity(1, 1)
    assert not capacity.full
    await capacity.take(0.0)
    assert not capacity.full
    waiter = asyncio.get_running_loop().create_task(capacity.take(0.0))
    await settle()
    assert capacity.full
    capacity.give(0.0)
    await waiter
    assert not capacity.full
    assert not capacity.free


async def test_without_a_limit_nobody_waits() -> None:
    capacity = Capacity(None, None)
    for _ in range(100):
        await capacity.take(0.0)
    assert capacity.free
    assert capacity.queued == 0


async def test_a_waiter_cancelled_after_its_turn_came_passes_it_on() -> None:
    capacity = Capacity(1, None)
    await capacity.take(0.0)
    loop = asyncio.get_running_loop()
    first, second = loop.create_task(capacity.take(0.0)), loop.create_task(capacity.take(0.0))
    await settle()
    capacity.give(0.0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 1)
    capacity.give(0.0)
    assert capacity.free
    assert capacity.queued == 0


@given(st.integers(1, 3), st.lists(st.sampled_from(["take", "give", "cancel"]), max_size=40))
def test_places_are_conserved_whatever_is_cancelled(limit: int, steps: list[str]) -> None:
    async def scenario() -> None:
        capacity = Capacity(limit, None)
        tasks: list[asyncio.Task[float]] = []
        given_back = 0
        for step in steps:
            holders = [task for task in tasks if task.done() and not task.cancelled()]
            if step == "take":
                tasks.append(asyncio.get_running_loop().create_task(capacity.take(0.0)))
            elif step == "give" and len(holders) > given_back:
                capacity.give(0.0)
                given_back += 1
            elif step == "cancel" and tasks:
                tasks[-1].cancel()
            await settle()
            holding = sum(task.done() and not task.cancelled() for task in tasks) - given_back
            waiting = sum(not task.done() for task in tasks)
            assert holding <= limit
            assert capacity.queued == waiting
            assert waiting == 0 or holding == limit
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
