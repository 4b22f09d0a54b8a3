"""A cache in a real server: what it keeps, for whom, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from proxy.clock import SystemClock
from proxy.ports import Found
from proxy.store.cache import RedisCache
from proxy.store.server import Trouble
from proxy.store.writes import ENTRY_MAX, key_of
from tests.store.contract import CHECKS, HOUR, Check
from tests.store.driving import GENEROUS, find, found_again, keep, raw, settled, up
from tests.store.server import RedisServer


class Patient:
    """A store that asks again while lookups are given up: what a contract says of hits holds on a slow machine too."""

    def __init__(self, cache: RedisCache) -> None:
        self._cache = cache
        self.keep = cache.keep

    async def find(self, name: bytes, now: float) -> Found | None:
        while True:
            late = self._cache.statistics().late
            found = await self._cache.find(name, SystemClock().now())
            if found is not None or self._cache.statistics().late == late:
                return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_does_what_every_cache_does(check: Check, server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    await up(cache)
    await check(Patient(cache), lambda: settled(cache), SystemClock().now())


async def test_another_process_finds_what_one_has_kept(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"name", b"kept")
    await settled(cache)
    other = await up(RedisCache(server.url, clock=SystemClock()))
    assert await found_again(other, b"name") == b"kept"
    await other.close()


async def test_an_entry_goes_when_its_time_is_up(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"short", seconds=0.2)
    keep(cache, b"long")
    await settled(cache)
    client = raw(server)
    async with asyncio.timeout(GENEROUS):
        while await client.exists(key_of(b"short")):
            await asyncio.sleep(0.05)
    assert await find(cache, b"short") is None
    assert 0 < await client.pttl(key_of(b"long")) <= HOUR * 1000
    await client.aclose()


async def test_the_age_is_told_by_the_server(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"name", seconds=HOUR)
    await settled(cache)
    client = raw(server)
    await client.pexpire(key_of(b"name"), 600_000)
    await found_again(cache, b"name")
    found = None
    async with asyncio.timeout(GENEROUS):
        while found is None:
            found = await cache.find(b"name", SystemClock().now())
    assert HOUR - 600 <= found.age < HOUR - 600 + GENEROUS
    await client.aclose()


@pytest.mark.parametrize("what", ["garbage", "list", "no end", "too large"])
async def test_whatever_is_no_entry_is_a_miss(what: str, server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"name")
    await settled(cache)
    client, key = raw(server), key_of(b"name")
    match what:
        case "garbage":
            await client.set(key, b"what is this?", px=100_000)
        case "list":
            await client.delete(key)
            await client.rpush(key, b"an", b"element")
        case "no end":
            await client.persist(key)
        case _:
            await client.set(key, bytes(ENTRY_MAX + 100), px=100_000)
    assert await find(cache, b"name") is None
    keep(cache, b"name", b"new")
    await settled(cache)
    assert await found_again(cache, b"name") == b"new"
    await client.aclose()


async def test_an_answer_too_large_is_not_written(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"large", bytes(ENTRY_MAX + 1))
    keep(cache, b"whole", bytes(ENTRY_MAX))
    await settled(cache)
    client = raw(server)
    assert await client.dbsize() == 0
    assert cache.statistics().dropped == 2
    await client.aclose()


async def test_a_thousand_lookups_at_once_all_end(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    await up(cache)
    for number in range(100):
        keep(cache, b"%d" % number, b"%d" % number)
    await settled(cache)
    bodies = await asyncio.gather(*(find(cache, b"%d" % (number % 200)) for number in range(1000)))
    for number, body in enumerate(bodies):
        assert body in {None, b"%d" % (number % 200)}
        assert body is None or number % 200 < 100
    assert await found_again(cache, b"7") == b"7"


async def test_lookups_that_are_cancelled_disturb_no_other(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    await up(cache)
    keep(cache, b"name", b"kept")
    await settled(cache)
    for rounds in range(20):
        tasks = [asyncio.create_task(find(cache, b"name")) for _ in range(20)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {body for body in ended if not isinstance(body, BaseException)} <= {b"kept", None}
    assert await found_again(cache, b"name") == b"kept"
    assert Trouble.PROTOCOL not in cache.statistics().errors


async def test_closing_writes_what_waits(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    await up(cache)
    for number in range(300):
        keep(cache, b"%d" % number, bytes(10_000))
    await cache.close(seconds=GENEROUS)
    client = raw(server)
    assert await client.dbsize() == 300
    assert await find(cache, b"1") is None
    keep(cache, b"after")
    assert cache.statistics().pending == 0
    await client.aclose()
