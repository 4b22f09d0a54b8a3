"""Background tasks: named, kept alive, and never lost in silence."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from proxy.tasks import start_task
from tests.fakes import settle
from tests.freed import uncollected


class Kept:
    """Something that a task has."""


async def test_a_task_has_its_name_and_gives_its_result() -> None:
    async def work() -> int:
        return 7

    task = start_task(work(), name="seven")
    assert task.get_name() == "seven"
    assert await task == 7


async def test_a_task_that_nobody_holds_is_not_collected() -> None:
    reached = asyncio.Event()

    async def work() -> None:
        # Nothing but the task refers to what it waits for.
        waiting: asyncio.Future[None] = asyncio.Future()
        asyncio.get_running_loop().call_later(0.01, waiting.set_result, None)
        await waiting
        reached.set()

    start_task(work(), name="forgotten")
    await settle()
    gc.collect()
    await asyncio.wait_for(reached.wait(), 5.0)


async def test_a_failure_is_reported_with_the_name(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        raise ValueError("what went wrong")

    with caplog.at_level(logging.ERROR, "sponson.tasks"):
        start_task(work(), name="broken one")
        await settle()
    assert "broken one" in caplog.text
    assert "what went wrong" in caplog.text


async def test_a_cancelled_task_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    task = start_task(asyncio.sleep(60), name="cancelled")
    await settle()
    task.cancel()
    await settle()
    assert task.cancelled()
    assert caplog.text == ""


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_task_that_names_its_timeout_is_freed_however_it_ends(cancelled: bool) -> None:
    async def work(kept: Kept) -> None:
        async with asyncio.timeout(60) as limit:
            await asyncio.sleep(60 * cancelled)
            limit.reschedule(None)

    with uncollected(Kept) as alive:
        task = start_task(work(Kept()), name="watched")
        await settle()
        assert alive() == cancelled
        task.cancel()
        await settle()
        assert task.done()
        del task
        assert alive() == 0


async def test_who_waits_for_a_cancelled_task_is_told() -> None:
    task = start_task(asyncio.sleep(60), name="cancelled")
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(asyncio.CancelledError):
        task.result()
