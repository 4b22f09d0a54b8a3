"""Whatever happens to the server is a miss, costs next to nothing, and is told once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from proxy.clock import SystemClock
from proxy.store.cache import RedisCache
from proxy.store.server import Trouble
from tests.store.driving import GENEROUS, command, find, found_again, keep, raw, settled, until, up
from tests.store.server import RedisServer, executable


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


async def test_a_server_that_stalls_holds_a_few_lookups_and_no_other(server: RedisServer, cache: RedisCache) -> None:
    await server.start()
    keep(await up(cache), b"name", b"kept")
    await settled(cache)
    await found_again(cache, b"name")
    late = cache.statistics().late
    server.pause()
    assert await find(cache, b"name") is None
    for _ in range(1000):
        assert await find(cache, b"name") is None
    assert late < cache.statistics().late < late + 100
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
    await command(client, "ACL", "SETUSER", "sponson", "on", ">old", "~sponson:cache:*", "+@all")
    cache = await up(RedisCache(server.url, username="sponson", password="old", clock=SystemClock()))
    keep(cache, b"name", b"kept")
    await settled(cache)
    await command(client, "ACL", "SETUSER", "sponson", ">new", "<old")
    cache.reconfigure("new")
    await until(lambda: cache.statistics().up)
    assert await found_again(cache, b"name") == b"kept"
    assert cache.statistics().errors == {}
    await cache.close()
    await client.aclose()


async def test_connections_that_the_server_has_closed_are_noticed_before_they_are_used(
    server: RedisServer, cache: RedisCache
) -> None:
    await server.start()
    keep(await up(cache), b"name", b"kept")
    await settled(cache)
    client = raw(server)
    await command(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await client.ping()
    assert await found_again(cache, b"name") == b"kept"
    keep(cache, b"other", b"kept too")
    await settled(cache)
    assert await found_again(cache, b"other") == b"kept too"
    assert cache.statistics().errors == {}
    await client.aclose()


@pytest.mark.parametrize("how", ["memory", "readonly", "not allowed"])
async def test_a_server_that_refuses_writes_still_answers(
    how: str, server: RedisServer, cache: RedisCache, caplog: pytest.LogCaptureFixture
) -> None:
    await server.start()
    keep(await up(cache), b"name", b"kept")
    await settled(cache)
    client = raw(server)
    begin: tuple[str, ...]
    end: tuple[str, ...]
    match how:
        case "memory":
            begin, end = ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")
        case "readonly":
            begin, end = ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")
        case _:
            begin, end = ("ACL", "SETUSER", "default", "-set"), ("ACL", "SETUSER", "default", "+set")
    await command(client, *begin)
    keep(cache, b"lost")
    await settled(cache)
    keep(cache, b"lost too")
    await settled(cache)
    statistics = cache.statistics()
    assert statistics.up
    assert dict(statistics.errors) == {Trouble.REFUSED: 2}
    assert statistics.dropped == 2
    assert await found_again(cache, b"name") == b"kept"
    await command(client, *end)
    keep(cache, b"again", b"kept again")
    await settled(cache)
    assert await found_again(cache, b"again") == b"kept again"
    assert [record.message.rpartition("/0 ")[2] for record in caplog.records if record.name == "sponson.cache"] == [
        "refuses writes",
        "does again what it refused: writes",
    ]
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
