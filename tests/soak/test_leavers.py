"""A thousand callers who leave, in every phase of their call, and then nobody has been there."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.harness import ProxyProcess
from tests.soak.bench import INSIDE, at_work
from tests.soak.footprint import Footprint, Spy, footprint
from tests.soak.judge import judge_rest
from tests.soak.promises import Book
from tests.soak.rough import Rough
from tests.soak.visits import Visit, leaves

LEAVERS, AT_ONCE, BEFORE = 1000, 40, 200
PHASES = {"left in its head", "left in its body", "left in its wait", "left in its stream"}


async def leave(port: int, count: int, draw: random.Random) -> Counter[str]:
    room, came = asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(visit: Visit) -> None:
        async with room:
            came[await leaves(visit)] += 1

    visits = [Visit(port=port, draw=random.Random(draw.random())) for _ in range(count)]
    await asyncio.gather(*map(one, visits))
    return came


async def rest(proxy: ProxyProcess, spy: Spy, provider: int) -> Footprint:
    async def look(*, deep: bool = False) -> Footprint:
        return await footprint(proxy.process.pid, spy, port=proxy.port, servers=(provider,), deep=deep)

    await proxy.until(lambda status: not at_work(status), within=60.0)
    async with asyncio.timeout(60.0):
        while (now := await look()).downstream or now.upstream:
            await asyncio.sleep(0.02)
    return await look(deep=True)


@pytest.mark.timeout(180)
async def test_after_a_thousand_leavers_everything_is_as_before(tmp_path: Path) -> None:
    rough, draw, book = Rough(random.Random(1)), random.Random(2), Book(lambda: 0.0)
    async with rough.provider:
        provider = {
            "base_url": f"http://127.0.0.1:{rough.provider.port}/v1",
            "connections": {"idle": "1s"},
            "breaker": "off",
            "queue": {"max": 1000},
        }
        policy = {"version": 1, "providers": {"rough": provider}}
        spy = Spy(tmp_path / "spy")
        async with ProxyProcess(policy, flags=("--linger", "0s"), prefix=(*INSIDE, str(tmp_path / "spy"))) as proxy:
            await leave(proxy.port, BEFORE, draw)
            before = await rest(proxy, spy, rough.provider.port)
            came = await leave(proxy.port, LEAVERS, draw)
            after = await rest(proxy, spy, rough.provider.port)
            await spy.close()
            log = proxy.log()
    judge_rest(book, before, after)
    assert book.examples == {}
    assert (set(came), sum(came.values())) == (PHASES, LEAVERS)
    assert after.collected - before.collected < LEAVERS / 10
    assert (after.tasks, after.descriptors) == (before.tasks, before.descriptors)
    assert (proxy.process.returncode, "Traceback" in log) == (0, False)
