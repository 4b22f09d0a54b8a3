"""What tests do with a cache and its server: all waits are for an event, with a generous limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.asyncio import Redis

from proxy.clock import SystemClock
from proxy.ports import CacheStore
from proxy.store.cache import RedisCache
from tests.store.contract import HOUR, answer
from tests.store.server import RedisServer

GENEROUS = 30.0


async def until(condition: Callable[[], bool]) -> None:
    """Returns when something has become so; fails when it does not for long."""
    async with asyncio.timeout(GENEROUS):
        while not condition():
            await asyncio.sleep(0.01)


async def up(cache: RedisCache) -> RedisCache:
    """Returns the cache once it has its session."""
    await find(cache, b"first")
    await until(lambda: cache.statistics().up)
    return cache


async def settled(cache: RedisCache) -> None:
    """Returns when nothing waits to be written."""
    await until(lambda: cache.statistics().pending == 0)


async def find(cache: CacheStore, name: bytes) -> bytes | None:
    """Looks a body up; a lookup that does not end fails."""
    async with asyncio.timeout(GENEROUS):
        found = await cache.find(name, SystemClock().now())
    return None if found is None else found.answer.body


async def found_again(cache: RedisCache, name: bytes) -> bytes:
    """Returns a body that must be there; a slow machine's lookups may be given up."""
    async with asyncio.timeout(GENEROUS):
        while (body := await find(cache, name)) is None:
            await asyncio.sleep(0.01)
        return body


def keep(cache: RedisCache, name: bytes, body: bytes = b"{}", *, seconds: float = HOUR) -> None:
    """Keeps an answer."""
    cache.keep(name, answer(body), owner="tenant", seconds=seconds, now=SystemClock().now())


def raw(server: RedisServer) -> Redis:
    """Returns a client of the server's, to look and meddle."""
    return Redis(port=server.port, protocol=2, single_connection_client=True)


async def command(client: Redis, *words: str) -> None:
    """Tells the server something that the library has no typed word for."""
    await client.execute_command(*words)  # type: ignore[no-untyped-call]
