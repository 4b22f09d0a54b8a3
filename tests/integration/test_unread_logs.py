"""Nobody reads what the proxy logs: calls, probes and its end go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from tests.integration.caller import HOST, PATIENCE, Wire, request_bytes
from tests.integration.harness import ProxyProcess
from tests.integration.messages import CHAT, says
from tests.integration.scripted import ScriptedProvider

CALLS = 4000
"""Their lines are more than a pipe holds, and than may wait."""


@contextmanager
def unread(proxy: ProxyProcess) -> Iterator[int]:
    """Makes the log a pipe, and yields its reading end."""
    os.mkfifo(proxy.log_path)
    reader = os.open(proxy.log_path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield reader
    finally:
        os.close(reader)


@asynccontextmanager
async def logging_to_a_pipe() -> AsyncIterator[tuple[ProxyProcess, int]]:
    """A proxy whose log nobody reads yet."""
    async with ScriptedProvider() as provider:
        provider.script = says("hi")
        alpha = {"base_url": f"http://{HOST}:{provider.port}/v1"}
        proxy = ProxyProcess({"version": 1, "providers": {"alpha": alpha}}, flags=["--linger", "0s"])
        with unread(proxy) as reader:
            async with proxy:
                yield proxy, reader


async def make_calls(proxy: ProxyProcess, count: int) -> str:
    """Makes calls, and returns the id of the last one."""
    last = ""
    async with Wire(proxy.port) as wire:
        for _ in range(count):
            await wire.send(request_bytes("POST", "/v1/chat/completions", body=CHAT))
            answer = await wire.answer()
            assert answer.status == 200
            last = answer.header("x-sponson-request-id") or ""
    return last


def read(reader: int) -> bytes:
    """All that stands in the pipe now."""
    pieces = []
    try:
        while piece := os.read(reader, 1 << 20):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


async def test_a_log_that_nobody_reads_holds_up_no_call_no_probe_and_no_end() -> None:
    async with logging_to_a_pipe() as (proxy, _):
        await make_calls(proxy, CALLS)
        assert (await proxy.get("/livez")).status == 200
        proxy.signal(signal.SIGTERM)
        assert await proxy.exited(within=10) == 0


@pytest.mark.parametrize("calls", [500, CALLS])
async def test_who_reads_again_finds_whole_lines_and_is_told_of_those_that_are_missing(calls: int) -> None:
    async with logging_to_a_pipe() as (proxy, reader):
        await make_calls(proxy, calls)
        text, last = b"", ""
        for _ in range(40):
            text += read(reader)
            last = await make_calls(proxy, 1)
        # A call's line is written after its last byte.
        async with asyncio.timeout(PATIENCE):
            while last.encode() not in text or not text.endswith(b"\n"):
                text += read(reader)
                await asyncio.sleep(0.005)
    lines = [json.loads(line) for line in text.splitlines()]
    requests = [line for line in lines if "request_id" in line]
    missing = [line for line in lines if "are missing here" in line["msg"]]
    assert bool(missing) is (len(requests) < calls + 40) is (calls == CALLS)


async def test_a_log_whose_reader_has_gone_holds_up_nothing_either() -> None:
    async with logging_to_a_pipe() as (proxy, reader):
        os.dup2(other := os.open(os.devnull, os.O_RDONLY), reader)
        os.close(other)
        await make_calls(proxy, 300)
        proxy.signal(signal.SIGTERM)
        assert await proxy.exited(within=10) == 0
