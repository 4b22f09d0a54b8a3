"""A cache in a real server: what it keeps, and that whatever happens to the server is a miss and nothing more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from proxy.clock import SystemClock
from proxy.ports import CacheStore
from proxy.store.cache import RedisCache
from proxy.store.server import Trouble
from proxy.store.writes import ENTRY_MAX, key_of
from tests.store.contract import CHECKS, HOUR, Check, answer
from tests.store.server import RedisServer, executable

GENEROUS = 30.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(executable(), tmp_path)
    yield server
    server.kill()


@pytest.fixture
async def cache(server: RedisServer) -> AsyncIterator[RedisCache]:
    cache = RedisCache(server.url, clock=SystemClock())
    yield cache
    await cache.close()


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


class Patient:
    """A store that asks again while lookups are given up: what a contract says of hits holds on a slow machine too."""

    def __init__(self, cache: RedisCache) -> None:
        self._cache = cache
        self.keep = cache.keep

    async def find(self, name: bytes, now: float) -> object:
        while True:
            late = self._cache.statistics().late
            found = await self._cache.find(name, SystemClock().now())
            if found is not None or self._cache.statistics().late == late:
                return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_does_what_every_cache_does(check: Check, server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    await up(cache)
    await check(Patient(cache), lambda: settled(cache), SystemClock().now())  # type: ignore[arg-type]


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
            await client.rpush(key, b"an", b"element")  # type: ignore[misc]
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


async def test_a_server_that_is_down_at_the_start_is_a_miss_until_it_comes(
    server: RedisServer, cache: RedisCache, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        assert await find(cache, b"name") is None
    keep(cache, b"name", b"kept")
    assert await find(cache, b"name") is None
    await until(lambda: cache.statistics().errors.get(Trouble.CONNECTION, 0) > 1)
    await server.start()
    await until(lambda: cache.statistics().up)
    assert await found_again(cache, b"name") == b"kept"
    told = [record.message for record in caplog.records if record.name == "sponson.cache"]
    assert [f"cache {server.url} is out (connection): requests go without it"] == told[:1]
    assert len(told) == 2
    assert " is back after " in told[1]


async def test_a_server_that_dies_is_a_miss_and_its_return_is_noticed(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"name")
    await settled(cache)
    server.kill()
    assert await find(cache, b"name") is None
    await find(cache, b"other")
    await until(lambda: not cache.statistics().up)
    keep(cache, b"later", b"kept meanwhile")
    await server.start()
    await until(lambda: cache.statistics().up)
    assert await find(cache, b"name") is None
    assert await found_again(cache, b"later") == b"kept meanwhile"


async def test_a_server_that_stalls_holds_one_lookup_and_no_other(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"name", b"kept")
    await settled(cache)
    await found_again(cache, b"name")
    late = cache.statistics().late
    server.pause()
    assert await find(cache, b"name") is None
    for _ in range(1000):
        assert await find(cache, b"name") is None
    assert cache.statistics().late == late + 1
    await until(lambda: not cache.statistics().up)
    assert set(cache.statistics().errors) == {Trouble.TIMEOUT}
    server.resume()
    await until(lambda: cache.statistics().up)
    assert await found_again(cache, b"name") == b"kept"


async def test_a_wrong_password_is_a_miss_until_the_right_one_comes(
    server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(executable(), tmp_path, "--requirepass", "right-secret")
    await server.start()
    cache = RedisCache(server.url, password="wrong-secret", clock=SystemClock())
    assert await find(cache, b"name") is None
    await until(lambda: cache.statistics().errors.get(Trouble.PASSWORD, 0) > 0)
    cache.reconfigure("right-secret")
    await until(lambda: cache.statistics().up)
    keep(cache, b"name", b"kept")
    assert await found_again(cache, b"name") == b"kept"
    assert "secret" not in caplog.text + repr(cache) + repr(cache._server) + repr(cache._task)
    await cache.close()
    server.kill()


async def test_a_user_of_its_own_and_a_changed_password(server: RedisServer) -> None:
    await server.start()
    client = raw(server)
    await client.execute_command("ACL", "SETUSER", "sponson", "on", ">old", "~sponson:cache:*", "+@all")
    cache = await up(RedisCache(server.url, username="sponson", password="old", clock=SystemClock()))
    keep(cache, b"name", b"kept")
    await settled(cache)
    await client.execute_command("ACL", "SETUSER", "sponson", ">new", "<old")
    cache.reconfigure("new")
    await until(lambda: cache.statistics().up)
    assert await found_again(cache, b"name") == b"kept"
    assert cache.statistics().errors == {}
    await cache.close()
    await client.aclose()


@pytest.mark.parametrize("how", ["memory", "readonly", "not allowed"])
async def test_a_server_that_refuses_writes_still_answers(
    how: str, server: RedisServer, cache: RedisCache, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start()
    keep(await up(cache), b"name", b"kept")
    await settled(cache)
    client = raw(server)
    match how:
        case "memory":
            begin, end = ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")
        case "readonly":
            begin, end = ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")
        case _:
            begin, end = ("ACL", "SETUSER", "default", "-set"), ("ACL", "SETUSER", "default", "+set")
    await client.execute_command(*begin)
    keep(cache, b"lost")
    await settled(cache)
    keep(cache, b"lost too")
    await settled(cache)
    statistics = cache.statistics()
    assert statistics.up
    assert dict(statistics.errors) == {Trouble.REFUSED: 2}
    assert statistics.dropped == 2
    assert await found_again(cache, b"name") == b"kept"
    await client.execute_command(*end)
    keep(cache, b"again", b"kept again")
    await settled(cache)
    assert await found_again(cache, b"again") == b"kept again"
    assert [record.message.rpartition("/0 ")[2] for record in caplog.records if record.name == "sponson.cache"] == [
        "refuses writes",
        "does again what it refused: writes",
    ]
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
    assert cache.statistics().up
    assert cache.statistics().errors == {}
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
    assert cache.statistics().up
    assert cache.statistics().errors == {}


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


@pytest.mark.parametrize("stalled", [False, True])
async def test_closing_ends_whatever_the_server_does(stalled: bool, server: RedisServer, cache: RedisCache) -> None:
    if stalled:
        await server.start()
        await up(cache)
        server.pause()
    keep(cache, b"name")
    async with asyncio.timeout(GENEROUS):
        await cache.close(seconds=0.1)
        while cache._task is not None and not cache._task.done():
            await asyncio.sleep(0.01)
    assert cache.statistics().pending == 0
    assert not cache.statistics().up


async def test_a_server_that_speaks_something_else_is_a_miss(caplog: pytest.LogCaptureFixture) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    cache = RedisCache(f"redis://127.0.0.1:{port}", clock=SystemClock())
    assert await find(cache, b"name") is None
    await until(lambda: sum(cache.statistics().errors.values()) > 1)
    assert await find(cache, b"name") is None
    await cache.close()
    other.close()
    await other.wait_closed()
    assert sum("is out" in record.message for record in caplog.records) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
