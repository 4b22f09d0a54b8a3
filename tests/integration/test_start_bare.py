"""Starting in bare surroundings: whatever is missing or down around it, the proxy is ready, answers and ends well."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import HOST
from tests.integration.harness import Lab, ProxyProcess
from tests.integration.messages import CHAT, DONE, event, says, streams

POLICY: dict[str, Any] = {"version": 1, "providers": {"alpha": {}}}
BROKEN_PIPE = "import os, sys; r, w = os.pipe(); os.dup2(w, 2); os.close(r); os.execvp(sys.argv[1], sys.argv[1:])"


def shell(words: str) -> list[str]:
    """A command that runs another one after, or with, these words of the shell."""
    return ["sh", "-c", words, "sh"]


SURROUNDINGS: dict[str, Sequence[str]] = {
    "no stdin": shell('exec "$@" <&-'),
    "no stdout": shell('exec "$@" >&-'),
    "no stderr": shell('exec "$@" 2>&-'),
    "no stream at all": shell('exec "$@" <&- >&- 2>&-'),
    "a log that is full": shell('exec "$@" 2>/dev/full'),
    "a log that nobody reads": [sys.executable, "-c", BROKEN_PIPE],
    "no home": ["env", "-u", "HOME"],
    "no place for temporary files": ["env", "TMPDIR=/nowhere"],
    "few files, and more for who asks": shell('ulimit -S -n 24 && exec "$@"'),
    "few files": shell('ulimit -n 64 && exec "$@"'),
    "a read-only file system": [
        *("unshare", "-rm"),
        *shell('mount -o remount,bind,ro / && ! touch /read-write 2>/dev/null && exec "$@"'),
    ],
}
WITHOUT_IPV6 = [
    *("unshare", "-rn"),
    *shell('ip link set lo up && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"'),
]


def allowed(prefix: Sequence[str]) -> Sequence[str]:
    """Returns the prefix; skips where this machine does not allow such surroundings."""
    if subprocess.run([*prefix, "true"], capture_output=True, timeout=20).returncode:
        pytest.skip("this machine does not allow such surroundings")
    return prefix


@pytest.mark.parametrize("name", SURROUNDINGS)
async def test_it_starts_answers_and_ends_well_with(name: str) -> None:
    async with Lab(POLICY, prefix=allowed(SURROUNDINGS[name])) as lab:
        lab["alpha"].script = says("hi")
        for probe in ("/livez", "/readyz", "/startupz"):
            assert (await lab.proxy.get(probe)).status == 200
        assert (await lab.call("/alpha/v1/chat/completions", CHAT)).status == 200
        assert (await lab.proxy.get("/metrics")).status == 200


async def test_it_listens_where_there_is_no_ipv6() -> None:
    proxy = ProxyProcess(
        {"version": 1, "providers": {"alpha": {"base_url": f"http://{HOST}:9/v1"}}}, prefix=allowed(WITHOUT_IPV6)
    )
    with proxy.spawned():
        async with asyncio.timeout(20):
            while "ready on" not in proxy.log():
                assert proxy.process.poll() is None, proxy.log()
                await asyncio.sleep(0.02)
        proxy.signal(signal.SIGTERM)
        assert await proxy.exited(within=10) == 0


async def test_it_starts_while_no_name_can_be_resolved() -> None:
    policy = {"version": 1, "providers": {"alpha": {"base_url": "http://nobody.invalid/v1"}}}
    env = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://nobody.invalid:4318"}
    async with Lab(policy, env=env) as lab:
        assert (await lab.proxy.get("/readyz")).status == 200
        answer = await lab.call("/alpha/v1/chat/completions", CHAT)
        assert (answer.status, answer.reason) == (502, "upstream_unreachable")
        assert (await lab.proxy.get("/readyz")).status == 200


async def test_more_callers_than_files_are_turned_away_and_the_others_served() -> None:
    async with Lab(POLICY, prefix=SURROUNDINGS["few files"]) as lab:
        lab["alpha"].script = says("hi")
        async with AsyncExitStack() as stack:
            for _ in range(80):
                await stack.enter_async_context(lab.wire())
        async with asyncio.timeout(10):
            while not await answers(lab):
                await asyncio.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("exporter", ["none", "otlp"])
async def test_a_small_container_is_large_enough(exporter: str) -> None:
    env = {"OTEL_TRACES_EXPORTER": exporter, "OTEL_METRICS_EXPORTER": exporter}
    async with Lab(POLICY, env={**env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}) as lab:
        pid = lab.proxy.process.pid
        assert kibibytes(pid, "VmRSS") < 80 << 10
        body = {**CHAT, "padding": "x" * 20_000}
        for script in (says("hi"), streams(*[event("word")] * 100, DONE)):
            lab["alpha"].script = script
            for _ in range(6):
                calls = [lab.call("/alpha/v1/chat/completions", body) for _ in range(40)]
                assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
        assert kibibytes(pid, "VmHWM") < 128 << 10


def kibibytes(pid: int, what: str) -> int:
    """What the kernel says that a process has, or once had, in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


async def answers(lab: Lab) -> bool:
    """Whether a call is answered well."""
    try:
        return (await lab.call("/alpha/v1/chat/completions", CHAT, within=2.0)).status == 200
    except OSError:
        return False
