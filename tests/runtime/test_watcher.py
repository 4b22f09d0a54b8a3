"""When to look: after events, when asked, and every second in any case; a watcher that dies is started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from proxy.runtime import watcher
from proxy.runtime.watcher import Events, changes

SOON = 10.0
NEVER = 3600.0


class Source:
    """Events on demand; fails as often as `failures` says before it works."""

    def __init__(self, *failures: BaseException) -> None:
        self._failures = list(failures)
        self.starts = 0
        self.happened = asyncio.Event()

    async def __call__(self, directory: Path) -> AsyncIterator[object]:
        """Yields after each event."""
        self.starts += 1
        if self._failures:
            raise self._failures.pop(0)
        while True:
            await self.happened.wait()
            self.happened.clear()
            yield directory


class Told:
    """What the watcher says of itself."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.asked = asyncio.Event()

    def looks(self, path: Path, events: Events = watcher.inotify, *, poll: float = NEVER) -> AsyncGenerator[None, None]:
        """The generator under test."""
        return changes(path, self.asked, self.states.append, events=events, poll_seconds=poll, revive_seconds=0.01)


async def look(looks: AsyncGenerator[None, None]) -> None:
    await asyncio.wait_for(anext(looks), SOON)


async def test_without_any_event_it_looks_again_and_again(tmp_path: Path) -> None:
    async with aclosing(Told().looks(tmp_path, Source(), poll=0.01)) as looks:
        await look(looks)
        await look(looks)


async def test_an_event_and_a_signal_are_answered_at_once(tmp_path: Path) -> None:
    source, told = Source(), Told()
    async with aclosing(told.looks(tmp_path, source)) as looks:
        told.asked.set()
        await look(looks)
        source.happened.set()
        await look(looks)


async def test_a_watcher_that_fails_is_complained_of_once_and_revived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, told = Source(OSError("no inotify"), RuntimeError("still none")), Told()
    with caplog.at_level(logging.WARNING):
        async with aclosing(told.looks(tmp_path, source)) as looks:
            told.asked.set()
            await look(looks)
            while source.starts < 3:
                await asyncio.sleep(0.01)
            assert told.states == ["inotify and polling", "polling"] * 2 + ["inotify and polling"]
            source.happened.set()
            await look(looks)
    assert caplog.text.count("cannot watch") == 1
    assert str(tmp_path) in caplog.text


async def test_a_watcher_that_is_killed_is_revived(tmp_path: Path) -> None:
    source, told = Source(), Told()
    async with aclosing(told.looks(tmp_path, source, poll=0.02)) as looks:
        await look(looks)
        (killed,) = [task for task in asyncio.all_tasks() if task.get_name() == "policy watcher"]
        killed.cancel()
        await asyncio.wait([killed])
        while source.starts < 2:
            await look(looks)


async def test_a_watcher_that_fails_in_a_way_nobody_thought_of_polls_says_so_and_is_revived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, told = Source(LookupError("a bug")), Told()
    with caplog.at_level(logging.WARNING):
        async with aclosing(told.looks(tmp_path, source, poll=0.01)) as looks:
            while source.starts < 2:
                await look(looks)
    assert told.states == ["inotify and polling", "polling", "inotify and polling"]
    assert caplog.text.count("cannot watch") == 1
    assert "task policy watcher failed" not in caplog.text


async def test_a_watcher_that_worked_is_complained_of_again_when_it_fails_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def flaky(directory: Path) -> AsyncIterator[object]:
        yield directory
        raise OSError("ended")

    asked = asyncio.Event()
    with caplog.at_level(logging.WARNING):
        looks = changes(tmp_path, asked, lambda how: None, events=flaky, poll_seconds=NEVER, revive_seconds=0.01)
        async with aclosing(looks):
            for _ in range(3):
                await look(looks)
    assert caplog.text.count("cannot watch") >= 2


def written(file: Path) -> None:
    file.write_text("in place")


def renamed(file: Path) -> None:
    (file.parent / "new").write_text("moved")
    (file.parent / "new").rename(file)


@pytest.mark.parametrize("change", [written, renamed])
async def test_a_real_directory_tells_of_writes_and_renames(tmp_path: Path, change: Callable[[Path], None]) -> None:
    file, told = tmp_path / "policy.yaml", Told()
    file.write_text("first")

    async def until_told() -> None:
        # The watch begins to stand at some time of its own.
        while not told.asked.is_set():
            change(file)
            await asyncio.sleep(0.05)

    changing = asyncio.ensure_future(until_told())
    async with aclosing(told.looks(file)) as looks:
        await look(looks)
    changing.cancel()


async def test_nothing_is_left_running(tmp_path: Path) -> None:
    looks = Told().looks(tmp_path, poll=0.01)
    await look(looks)
    await looks.aclose()
    async with asyncio.timeout(SOON):
        while any(task.get_name() == "policy watcher" for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)
