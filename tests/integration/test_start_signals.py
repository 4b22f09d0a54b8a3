"""Signals while the proxy starts: whenever one comes, it ends well, or goes on starting, and complains of nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import HOST
from tests.integration.harness import ProxyProcess
from tests.integration.watched import catches, checker_of, children_of, imports_still, soon, stopped
from tests.ports import free_port

POLICY: dict[str, Any] = {"version": 1, "providers": {"alpha": {"base_url": f"http://{HOST}:9/v1"}}}
AT_ONCE = ["--linger", "0s"]


@asynccontextmanager
async def starting(*flags: str) -> AsyncIterator[ProxyProcess]:
    """A proxy that has just come to run its own code, which is a few hundredths of a second after its start."""
    with ProxyProcess(POLICY, flags=[*AT_ONCE, *flags]).spawned() as proxy:
        await soon(lambda: catches(proxy.process.pid, signal.SIGTERM))
        yield proxy


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_it_imports_ends_it_with_0(number: signal.Signals) -> None:
    async with starting() as proxy:
        assert imports_still(proxy.process.pid)
        proxy.signal(number)
        assert await proxy.exited(within=10) == 0
        assert proxy.log() == ""


@pytest.mark.parametrize("moment", range(10))
async def test_a_signal_at_any_moment_of_the_start_ends_it_with_0(moment: int) -> None:
    async with starting() as proxy:
        await asyncio.sleep(moment * 0.035)
        proxy.signal(signal.SIGTERM)
        assert await proxy.exited(within=10) == 0
        assert all(line.startswith("{") and '"error"' not in line for line in proxy.log().splitlines())


@pytest.mark.parametrize("moment", range(4))
async def test_sighup_at_any_moment_of_the_start_does_not_end_it(moment: int) -> None:
    async with starting() as proxy:
        await asyncio.sleep(moment * 0.08)
        proxy.signal(signal.SIGHUP)
        await proxy.ready()


async def test_a_signal_while_the_policy_cannot_be_read_ends_it_with_0(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(str(POLICY))
    with held_up(policy) as asked:
        async with starting("--policy", str(policy)) as proxy:
            await soon(asked.is_set)
            proxy.signal(signal.SIGTERM)
            assert await proxy.exited(within=10) == 0
            assert proxy.log() == ""


@contextmanager
def held_up(file: Path) -> Iterator[asyncio.Event]:
    """Lets nobody open a file for seconds, as a network's file system may do; tells when somebody wants to."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGIO, asked.set)
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield asked
    finally:
        os.close(descriptor)
        loop.remove_signal_handler(signal.SIGIO)


def unshare() -> list[str]:
    """The command that makes a process the first of its own space; skips where that is not allowed."""
    for flags in ("-pf", "-rpf"):
        command = ["unshare", flags, "--kill-child"]
        with suppress(OSError, subprocess.SubprocessError):
            if subprocess.run([*command, "true"], capture_output=True, timeout=20).returncode == 0:
                return command
    pytest.skip("no process spaces of its own are allowed here (unshare -pf)")


@pytest.mark.parametrize("when", ["importing", "ready"])
async def test_sigterm_ends_it_with_0_as_pid_1_too(when: str, tmp_path: Path) -> None:
    policy, log = tmp_path / "policy.yaml", tmp_path / "log"
    policy.write_text(str(POLICY))
    addresses = ["--listen", f"{HOST}:{free_port()}", "--admin", f"{HOST}:{free_port()}"]
    command = [*unshare(), sys.executable, "-m", "proxy", "run", "--policy", str(policy), *AT_ONCE, *addresses]
    with log.open("wb") as written:
        space = subprocess.Popen(command, stdout=written, stderr=written, stdin=subprocess.DEVNULL)
    try:
        (first,) = await soon(lambda: children_of(space.pid))
        await soon(lambda: catches(first, signal.SIGTERM) and (when == "importing" or "ready on" in log.read_text()))
        assert imports_still(first) is (when == "importing")
        os.kill(first, signal.SIGTERM)
        assert await asyncio.to_thread(space.wait, 10) == 0
        assert ("ready on" in log.read_text()) is (when == "ready")
    finally:
        space.kill()
        space.wait()


async def test_a_child_that_hangs_does_not_hold_a_signal_up() -> None:
    async with starting() as proxy:
        with stopped(await soon(lambda: checker_of(proxy.process.pid))):
            await soon(lambda: not imports_still(proxy.process.pid))
            assert proxy.process.poll() is None
            proxy.signal(signal.SIGTERM)
            assert await proxy.exited(within=20) == 0
            assert "ready on" not in proxy.log()
