"""WebSockets and the life of the process: policies that change, the drain at the end, many at once, what is written."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import says
from tests.integration.quotas import goes_live
from tests.integration.talks import End, Talks, opened, talking
from tests.websocket.encoding import PING, TEXT, encoded

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"talk": {"breaker": "off", "connections": {"max": 300}}, "other": {"breaker": "off"}},
    "routes": [route("talk", "talk"), route("other", "other")],
}
CROWD = 200


async def passes(client: End, provider: End) -> None:
    """Checks that messages pass."""
    await client.say(b"marco")
    await provider.hears(b"marco")
    await provider.say(b"polo")
    await client.hears(b"polo")


@pytest.mark.parametrize("gone", [True, False])
async def test_an_open_one_goes_on_under_the_policy_that_it_began_with(gone: bool) -> None:
    async with Lab(POLICY) as lab, talking(lab) as (client, provider):
        alone = {"providers": {"other": lab.policy["providers"]["other"]}, "routes": [route("other", "other")]}
        stricter = {"routes": [route("talk", "talk", body={"max": "1KiB", "replay": "1KiB"})]}
        for turn in range(2):
            await goes_live(lab, {**lab.policy, **(alone if gone else stricter)})
            await client.send(TEXT, b"z" * 5000)
            await provider.hears(b"z" * 5000)
            await passes(client, provider)
            if turn == 0:
                await goes_live(lab, lab.policy)
        if gone:
            lab["other"].script = says("hi")
            assert (await lab.chat("other")).status == 200
        await client.close(1000)
        await provider.told()
        await provider.close(1000)
        assert await client.told() == (1000, b"")
        provider.leave()


async def test_a_shutdown_waits_for_those_that_are_open() -> None:
    async with Lab(POLICY, flags=["--drain", "60s"]) as lab, talking(lab) as (client, provider):
        lab.proxy.signal(signal.SIGTERM)
        await lab.proxy.until(lambda status: status["phase"] == "draining")
        await passes(client, provider)
        await client.close(1000)
        await provider.told()
        await provider.close(1000)
        assert await client.told() == (1000, b"")
        provider.leave()
        assert await lab.proxy.exited(within=10) == 0


@pytest.mark.parametrize("middle", ["", "client", "provider"])
async def test_at_the_end_of_the_drain_both_sides_are_told(middle: str) -> None:
    async with Lab(POLICY, flags=["--drain", "1s"]) as lab, talking(lab) as (client, provider):
        await passes(client, provider)
        if middle == "client":
            await client.write(client.encoded(TEXT, b"unfinished")[:9])
            await provider.has(9)
        if middle == "provider":
            await provider.write(encoded(TEXT, b"unfinished")[:5])
            await client.has(5)
        lab.proxy.signal(signal.SIGTERM)
        if middle == "provider":
            assert await client.over() == encoded(TEXT, b"unfinished")[:5]
        else:
            assert await client.told() == (1001, b"this instance shuts down")
            assert await client.over() == b""
        if middle == "client":
            assert await provider.over() == client.encoded(TEXT, b"unfinished")[:9]
        else:
            assert await provider.told() == (1001, b"")
            assert await provider.over() == b""
        assert await lab.proxy.exited(within=10) == 0
        (line,) = lab.proxy.request_lines()
        assert (line["outcome"], line["status"]) == ("drained", 101)


async def test_who_takes_nothing_does_not_hold_up_the_end() -> None:
    async with Lab(POLICY, flags=["--drain", "1s"]) as lab, talking(lab) as (client, provider):
        client.pause()
        provider.pause()
        sending = asyncio.gather(client.send(TEXT, bytes(12 << 20)), provider.send(TEXT, bytes(12 << 20)))
        await asyncio.sleep(0.3)
        lab.proxy.signal(signal.SIGTERM)
        assert await lab.proxy.exited(within=10) == 0
        sending.cancel()


def footprint(lab: Lab) -> int:
    """How many files the proxy has open."""
    return len(os.listdir(f"/proc/{lab.proxy.process.pid}/fd"))


async def test_many_at_once_pass_and_leave_nothing() -> None:
    async with Lab(POLICY) as lab:
        lab["talk"].script = says("warm")
        await lab.chat("talk")
        await lab.idle()
        before = footprint(lab)
        talks = Talks(lab["talk"])
        async with AsyncExitStack() as stack:
            pairs = []
            for _ in range(CROWD):
                client = await stack.enter_async_context(opened(lab))
                pairs.append((client, await talks.next()))
            assert (await lab.proxy.status())["in_flight"] == CROWD
            await asyncio.gather(*(passes(client, provider) for client, provider in pairs))
            for number, (client, provider) in enumerate(pairs):
                way = number % 4
                if way == 0:
                    client.leave()
                elif way == 1:
                    provider.reset()
                elif way == 2:
                    await client.close(1000)
                    await provider.told()
                    await provider.close(1000)
                    provider.leave()
            for number, (client, provider) in enumerate(pairs):
                if number % 4 == 3:
                    await passes(client, provider)
        await lab.idle()
        async with asyncio.timeout(20):
            while footprint(lab) > before:
                await asyncio.sleep(0.05)
        status = await lab.proxy.status()
        assert (status["permits_out"], status["holders"], status["clients"]["connected"]) == (0, [], 0)


async def test_what_is_said_is_in_no_log_and_on_no_page() -> None:
    async with Lab(POLICY) as lab:
        offer = [("sec-websocket-protocol", "realtime, openai-insecure-api-key.sk-m4rk3d")]
        async with talking(lab, headers=offer) as (client, provider):
            await client.say(b"m4rk3d words")
            await provider.hears(b"m4rk3d words")
            await provider.send(PING, b"m4rk3d ping")
            await client.frame()
            pages = [(await lab.proxy.get(page)).body for page in ("/status", "/metrics", "/policy")]
            await provider.close(4000, "m4rk3d reason")
            await client.told()
            provider.leave()
            await client.over()
        await lab.idle()
        async with asyncio.timeout(5):
            while not lab.proxy.request_lines():
                await asyncio.sleep(0.01)
        (line,) = lab.proxy.request_lines()
        assert (line["route"], line["method"], line["status"], line["outcome"]) == ("talk", "GET", 101, "ok")
        assert b"m4rk3d" not in Path(lab.proxy.log_path).read_bytes() + b"".join(pages)
