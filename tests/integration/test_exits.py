"""Ends that must not be lost, hang or cut: while it imports, as PID 1, while it flushes, with a child that hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import HOST, request_bytes
from tests.integration.harness import Lab, ProxyProcess, free_port
from tests.integration.messages import CHAT, says

POLICY: dict[str, Any] = {"version": 1, "providers": {"alpha": {"base_url": f"http://{HOST}:9/v1"}}}
AT_ONCE = ["--linger", "0s"]
CHECKER = b"proxy.policy.compile"


async def soon(holds: Callable[[], Any]) -> Any:
    """Waits until something is there; returns it. Looks often: what it waits for may be brief."""
    async with asyncio.timeout(20):
        while not (found := holds()):
            await asyncio.sleep(0.001)
    return found


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, by whichever of its threads."""
    found: list[int] = []
    for told in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, told.read_text().split())
    return found


def checker_of(pid: int) -> int | None:
    """The process that checks a policy for this proxy."""
    for child in children_of(pid):
        with suppress(OSError):
            if CHECKER in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    return None


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


def imports_still(pid: int) -> bool:
    """Whether a process has not loaded its event loop yet."""
    return "uvloop" not in Path(f"/proc/{pid}/maps").read_text()


@asynccontextmanager
async def spawned(*, env: dict[str, str] | None = None, flags: list[str] = AT_ONCE) -> AsyncIterator[ProxyProcess]:
    """A proxy that is not waited for."""
    process = ProxyProcess(POLICY, flags=flags, env=env)
    try:
        process.spawn()
        yield process
    finally:
        process.kill()
        process._folder.cleanup()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process of ours that hangs; it is ended afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_sigterm_while_it_imports_ends_it_with_0() -> None:
    async with spawned() as proxy:
        await soon(lambda: catches(proxy.process.pid, signal.SIGTERM))
        assert imports_still(proxy.process.pid)
        proxy.signal(signal.SIGTERM)
        assert await proxy.exited(within=5) == 0
        assert proxy.log() == ""


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
        assert await asyncio.to_thread(space.wait, 5) == 0
        assert ("ready on" in log.read_text()) is (when == "ready")
    finally:
        space.kill()
        space.wait()


async def test_second_sigterm_during_the_flush_ends_it_at_once() -> None:
    with socket.create_server((HOST, 0)) as collector:
        collector.setblocking(False)
        env = {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{collector.getsockname()[1]}",
        }
        async with spawned(env=env) as proxy:
            await proxy.ready()
            proxy.signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                connection, _ = await asyncio.get_running_loop().sock_accept(collector)
            with connection:
                await asyncio.sleep(0.1)
                assert proxy.process.poll() is None
                proxy.signal(signal.SIGTERM)
                began = time.monotonic()
                assert await proxy.exited(within=5) == 128 + signal.SIGTERM
                assert time.monotonic() - began < 1


async def test_child_that_hangs_at_the_start_does_not_hold_a_signal_up() -> None:
    async with spawned() as proxy:
        with stopped(await soon(lambda: checker_of(proxy.process.pid))):
            await asyncio.sleep(1.0)
            assert proxy.process.poll() is None
            proxy.signal(signal.SIGTERM)
            began = time.monotonic()
            assert await proxy.exited(within=5) == 0
            assert time.monotonic() - began < 3
            assert "ready on" not in proxy.log()


async def test_child_that_hangs_at_a_reload_holds_neither_calls_nor_the_end_up() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        lab["alpha"].script = says("hi")
        lab.proxy.rewrite({**lab.policy, "limits": {"concurrency": 5}})
        with stopped(await soon(lambda: checker_of(lab.proxy.process.pid))):
            assert (await lab.call("/alpha/v1/chat/completions", CHAT)).status == 200
            lab.proxy.signal(signal.SIGTERM)
            began = time.monotonic()
            assert await lab.proxy.exited(within=8) == 0
            assert time.monotonic() - began < 4


async def test_child_that_was_killed_costs_no_good_policy() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        lab.proxy.rewrite({**lab.policy, "limits": {"concurrency": 5}})
        os.kill(await soon(lambda: checker_of(lab.proxy.process.pid)), signal.SIGKILL)
        async with asyncio.timeout(10):
            while (await lab.proxy.get("/policy")).json()["revision"] != 2:
                await asyncio.sleep(0.05)
        assert "sponson check" in lab.proxy.log()


async def test_without_a_linger_a_request_whose_body_still_comes_is_answered() -> None:
    body = b'{"model": "m", "messages": []}'
    whole = request_bytes("POST", "/alpha/v1/chat/completions", headers=[("content-type", "text/json")], body=body)
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab, lab.wire() as wire:
        lab["alpha"].script = says("hi")
        await wire.send(whole[:-10])
        await lab.proxy.until(lambda status: status["in_flight"] == 1)
        lab.proxy.signal(signal.SIGTERM)
        await lab.proxy.until(lambda status: status["phase"] == "draining")
        await asyncio.sleep(0.3)
        await wire.send(whole[-10:])
        answer = await wire.answer()
        assert (answer.status, answer.complete, answer.header("connection")) == (200, True, "close")
        assert await lab.proxy.exited(within=5) == 0
