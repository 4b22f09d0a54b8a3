"""A real proxy whose policy checkers are killed, and one whose policy is mounted so that it cannot change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.runtime.compiler import TRIES
from tests.integration.harness import ProxyProcess
from tests.integration.test_start_signals import held_up
from tests.runtime.desk import text
from tests.runtime.test_watcher_again import IN_A_NAMESPACE, can_make_namespaces

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 40.0
AT_ONCE = ("--linger", "0s")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks for children in /proc")


def children(pid: int) -> Iterator[int]:
    """The processes that a process has started."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            yield from map(int, (task / "children").read_text().split())
        except OSError:
            continue


async def killed_until_live(proxy: ProxyProcess, most: int) -> tuple[int, Any]:
    """Kills the children of a proxy, so many at most, until a second policy is live; returns how many died."""
    dead: set[int] = set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (shown := (await proxy.get("/policy")).json())["revision"] < 2:
            for child in {*children(proxy.process.pid)} - dead:
                if len(dead) < most:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                        dead.add(child)
            await asyncio.sleep(0.005)
    return len(dead), shown


@LINUX
@pytest.mark.parametrize("most", [1, 1000], ids=["once", "for good"])
async def test_a_policy_comes_though_its_checkers_are_killed(most: int) -> None:
    async with ProxyProcess(text(1), flags=AT_ONCE) as proxy:
        proxy.rewrite(text(2))
        dead, shown = await killed_until_live(proxy, most)
        assert (shown["revision"], shown["problems"], shown["hash"]) == (2, [], shown["hash_seen"])
        assert 1 <= dead <= TRIES
        assert ("it is checked in this one" in proxy.log()) is (dead == TRIES)
        proxy.rewrite(text(3))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await proxy.get("/policy")).json()["revision"] < 3:
                await asyncio.sleep(0.02)


async def test_without_inotify_every_policy_comes_all_the_same() -> None:
    if not can_make_namespaces():
        pytest.skip("needs a user namespace to take inotify away")
    prefix = [*IN_A_NAMESPACE, 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"', "sh"]
    async with ProxyProcess(text(1), flags=AT_ONCE, prefix=prefix) as proxy:
        for revision in (2, 3):
            proxy.rewrite(text(revision))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (shown := (await proxy.get("/policy")).json())["revision"] < revision:
                    await asyncio.sleep(0.02)
            assert (shown["problems"], shown["watching"]) == ([], "polling")
        assert "its contents are compared every second" in proxy.log()


async def test_a_policy_whose_file_system_does_not_answer_is_told_of_and_comes_when_it_does() -> None:
    async with ProxyProcess(text(1), flags=AT_ONCE) as proxy:
        with held_up(proxy.policy_path):
            shown = await shows(proxy, lambda shown: shown["problems"])
            assert shown["problems"] == [f"{proxy.policy_path}: {CANNOT}"]
            assert (shown["revision"], shown["rejected"]) == (1, 1)
            assert (await proxy.get("/readyz")).status == 200
        assert (await shows(proxy, lambda shown: not shown["problems"]))["revision"] == 1
        proxy.rewrite(text(2))
        assert (await shows(proxy, lambda shown: shown["revision"] == 2))["problems"] == []


CANNOT = "the policy, or a secret of it, cannot be read: no answer yet"


async def shows(proxy: ProxyProcess, holds: Callable[[Any], object]) -> Any:
    """Waits until `/policy` shows something; returns it."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(shown := (await proxy.get("/policy")).json()):
            await asyncio.sleep(0.02)
    return shown


START = """
import asyncio, logging, sys
from pathlib import Path
from tests.runtime.desk import Desk

async def main():
    await Desk(Path(sys.argv[1])).keeper.first()

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
asyncio.run(main())
"""


@pytest.mark.parametrize("inside", ["", "policy.yaml"])
def test_a_policy_that_is_mounted_by_itself_is_warned_of_at_start(tmp_path: Path, inside: str) -> None:
    if not can_make_namespaces():
        pytest.skip("needs a user namespace to mount something")
    place = tmp_path / "conf"
    place.mkdir()
    (tmp_path / "version 1.yaml").write_text(text(1))
    (place / "policy.yaml").touch()
    shell = 'mount --bind "$0" "$1" && shift && exec "$@"'
    mounted = [str(tmp_path / "version 1.yaml"), str(place / "policy.yaml")]
    start = [sys.executable, "-c", START, str(place / inside)]
    command = [*IN_A_NAMESPACE[:-2], "--mount", *IN_A_NAMESPACE[-2:], shell, *mounted, *start]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (warning,) = done.stdout.splitlines()
    assert warning.startswith(f"WARNING {place / 'policy.yaml'} is mounted by itself (a subPath)")
