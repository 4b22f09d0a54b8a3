"""The keeper follows its directory by itself, once a second at most; a late secret mends a rejection."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.runtime.reload import BETWEEN_RELOADS_SECONDS
from tests.runtime.desk import WAIT_SECONDS, Desk, text, with_key
from tests.runtime.places import moved_in


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


async def run(desk: Desk) -> asyncio.Task[None]:
    return asyncio.create_task(desk.keeper.run())


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def test_it_follows_its_directory_by_itself_and_says_how(desk: Desk) -> None:
    task = await run(desk)
    await until(lambda: desk.keeper.state.watching != "starting")
    assert desk.keeper.state.watching == "inotify and polling"
    moved_in(desk.path, text(2))
    await until(lambda: desk.limits == [1, 2])
    await stop(task)


async def test_a_signal_has_it_look(desk: Desk) -> None:
    task = await run(desk)
    moved_in(desk.path, text(2))
    desk.keeper.ask()
    await until(lambda: desk.limits == [1, 2])
    await stop(task)


async def test_there_is_at_most_one_reload_a_second_and_the_newest_content_wins(desk: Desk) -> None:
    task = await run(desk)
    for number in (2, 3, 4):
        moved_in(desk.path, text(number))
        desk.keeper.ask()
        await until(lambda: len(desk.limits) >= 2)
    went = desk.limits[1]
    moved_in(desk.path, text(5))
    desk.keeper.ask()
    await until(lambda: desk.clock.next_due is not None)
    desk.clock.advance(BETWEEN_RELOADS_SECONDS * 0.9)
    await asyncio.sleep(0.2)
    assert desk.limits == [1, went]
    desk.clock.advance(BETWEEN_RELOADS_SECONDS * 0.2)
    await until(lambda: desk.limits == [1, went, 5])
    await stop(task)


async def test_a_killed_watcher_does_not_end_the_following(desk: Desk) -> None:
    task = await run(desk)
    await until(lambda: desk.keeper.state.watching != "starting")
    (watcher,) = [other for other in asyncio.all_tasks() if other.get_name() == "policy watcher"]
    watcher.cancel()
    moved_in(desk.path, text(2))
    await until(lambda: desk.limits == [1, 2])
    await stop(task)


async def test_a_directory_that_is_replaced_as_a_whole_is_noticed_though_the_watch_is_deaf(tmp_path: Path) -> None:
    place = tmp_path / "conf"
    place.mkdir()
    (place / "policy.yaml").write_text(text(1))
    desk = Desk(place)
    await desk.keeper.first()
    task = await run(desk)
    await until(lambda: desk.keeper.state.watching != "starting")
    (tmp_path / "next").mkdir()
    moved_in(tmp_path / "next" / "policy.yaml", text(2))
    shutil.rmtree(place)
    (tmp_path / "next").rename(place)
    await until(lambda: desk.limits == [1, 2])
    await stop(task)


# Secrets.


@pytest.fixture
async def keyed(tmp_path: Path) -> tuple[Desk, Path]:
    """A keeper whose policy has a key, and the key's file."""
    key = tmp_path / "key"
    key.write_text("first\n")
    (tmp_path / "policy.yaml").write_text(with_key(key))
    desk = Desk(tmp_path / "policy.yaml")
    await desk.keeper.first()
    return desk, key


async def test_a_changed_secret_is_a_reload_of_the_same_policy(keyed: tuple[Desk, Path]) -> None:
    desk, key = keyed
    await desk.check()
    assert desk.keeper.state.revision == 1
    key.write_text("second")
    await desk.check()
    await desk.check()
    assert desk.keeper.state.revision == 2
    assert len(desk.live) == 2


@pytest.mark.parametrize("content", [None, "", "first\n\n", "two\nlines"])
async def test_a_secret_that_vanished_spoiled_or_stayed_is_none(keyed: tuple[Desk, Path], content: str | None) -> None:
    desk, key = keyed
    if content is None:
        key.unlink()
    else:
        key.write_text(content)
    await desk.check()
    assert desk.keeper.state.revision == 1


async def test_a_policy_that_lacks_a_secret_is_rejected_until_the_secret_comes(keyed: tuple[Desk, Path]) -> None:
    desk, key = keyed
    late = key.with_name("late")
    moved_in(desk.path, with_key(late, concurrency=2))
    for _ in range(2):
        await desk.check()
    state = desk.keeper.state
    assert (desk.limits, state.revision, state.rejected) == ([1], 1, 1)
    assert str(late) in state.problems[0]
    late.write_text("hush-hush")
    await desk.check()
    assert (desk.limits, state.revision, state.problems) == ([1, 2], 2, ())
