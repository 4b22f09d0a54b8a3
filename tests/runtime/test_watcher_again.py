"""Watches that look at what was replaced, or hear nothing any more, are made anew; without inotify it polls."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.runtime.test_watcher import SOON, Source, Told, look, renamed

# What is watched is not there any more.


def exchanged(place: Path) -> None:
    place.rename(place.with_name("old"))
    place.mkdir()


def removed_and_back(place: Path) -> None:
    place.rmdir()
    place.mkdir()


@pytest.mark.parametrize("change", [exchanged, removed_and_back])
async def test_a_directory_that_was_replaced_is_watched_anew(tmp_path: Path, change: Callable[[Path], None]) -> None:
    place, source, told = tmp_path / "conf", Source(), Told()
    place.mkdir()
    async with aclosing(told.looks(place, source, poll=0.01)) as looks:
        await look(looks)
        assert source.starts == 1
        change(place)
        while source.starts < 2:
            await look(looks)
        for _ in range(5):
            await look(looks)
    assert source.starts == 2


async def test_while_its_directory_is_away_the_one_above_is_watched(tmp_path: Path) -> None:
    place, told = tmp_path / "conf", Told()
    place.mkdir()
    seen: list[Path] = []

    async def silent(directory: Path) -> AsyncIterator[object]:
        seen.append(directory)
        await asyncio.Event().wait()
        yield directory

    async with aclosing(told.looks(place, silent, poll=0.01)) as looks:
        for step in (place.exists, place.rmdir, place.mkdir):
            step()
            before = len(seen)
            while len(seen) == before:
                await look(looks)
    assert seen == [place, tmp_path, place]


async def test_where_nothing_is_there_at_all_it_looks_again_and_again(tmp_path: Path) -> None:
    told = Told()
    async with aclosing(told.looks(tmp_path / "none" / "policy.yaml", poll=0.01)) as looks:
        for _ in range(3):
            await look(looks)
    assert told.states[-1] == "polling"


async def test_a_watch_that_hears_nothing_is_made_anew(tmp_path: Path) -> None:
    source, told = Source(), Told()
    async with aclosing(told.looks(tmp_path, source, poll=0.01)) as looks:
        await look(looks)
        for number in range(2):
            (tmp_path / f"unheard {number}").touch()
            while source.starts < number + 2:
                await look(looks)


async def test_a_watch_that_hears_stays(tmp_path: Path) -> None:
    source, told = Source(), Told()
    async with aclosing(told.looks(tmp_path, source)) as looks:
        for number in range(5):
            (tmp_path / f"heard {number}").touch()
            source.happened.set()
            await look(looks)
    assert source.starts == 1


def watches() -> list[str]:
    """The descriptors of this process that are inotify instances."""
    folder = Path("/proc/self/fd")
    return [fd.name for fd in folder.iterdir() if fd.is_symlink() and "inotify" in os.readlink(fd)]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at inotify's descriptors")
async def test_a_real_watch_whose_descriptor_was_taken_away_hears_again(tmp_path: Path) -> None:
    file, told = tmp_path / "policy.yaml", Told()
    before = set(watches())
    async with aclosing(told.looks(file, poll=0.1)) as looks:
        await look(looks)
        (watch,) = set(watches()) - before
        with open(os.devnull) as null:
            os.dup2(null.fileno(), int(watch))
        while watches() == list(before):
            renamed(file)
            await look(looks)
        # Polls find it too, but only an event sets this.
        while not told.asked.is_set():
            renamed(file)
            await asyncio.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at inotify's descriptors")
async def test_watches_made_anew_leave_no_descriptor(tmp_path: Path) -> None:
    place, told = tmp_path / "conf", Told()
    place.mkdir()
    before = len(watches())
    async with aclosing(told.looks(place, poll=0.02)) as looks:
        for number in range(10):
            await look(looks)
            place.rename(tmp_path / f"old {number}")
            place.mkdir()
        async with asyncio.timeout(SOON):
            while len(watches()) > before + 1:
                await look(looks)
        assert len(told.states) > 5
    async with asyncio.timeout(SOON):
        while len(watches()) > before:
            await asyncio.sleep(0.01)


WITHOUT_INOTIFY = """
import asyncio, logging, sys
from pathlib import Path
from proxy.runtime.watcher import changes

async def main():
    logging.basicConfig(stream=sys.stdout)
    told = []
    looks = changes(Path(sys.argv[1]), asyncio.Event(), told.append, poll_seconds=0.01)
    for _ in range(3):
        await anext(looks)
    print(told)

asyncio.run(main())
"""
IN_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "sh", "-c")


def can_make_namespaces() -> bool:
    """Whether this machine lets us have a user namespace, with limits of its own."""
    write = "echo 0 >/proc/sys/user/max_inotify_instances"
    try:
        return subprocess.run([*IN_A_NAMESPACE, write], capture_output=True, timeout=30, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize("spent", ["instances", "watches"])
def test_when_nothing_is_left_of_inotify_it_polls_and_says_so(tmp_path: Path, spent: str) -> None:
    if not can_make_namespaces():
        pytest.skip("needs a user namespace to take inotify away")
    shell = f'echo 0 >/proc/sys/user/max_inotify_{spent} && exec "$@"'
    command = [*IN_A_NAMESPACE, shell, "sh", sys.executable, "-c", WITHOUT_INOTIFY, str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "its contents are compared every second" in done.stdout
    assert done.stdout.endswith("'polling']\n")
