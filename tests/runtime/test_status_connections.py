"""What is shown of connections: the reuse ratio, dials by result, and how idle ones ended."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from proxy.runtime.status_connections import connection_counters, connection_gauges, connection_status
from proxy.upstream.pool import Pool
from tests.fakes import FakeClock
from tests.ports import free_port
from tests.runtime.shop import Shop
from tests.upstream.peer import until
from tests.upstream.ready import rests


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    yield shop
    await shop.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def policy(port: int, *, warm: int = 0, name: str = "alpha") -> str:
    """One provider at this port, and another at an address at which there is nobody."""
    return (
        "version: 1\nproviders:\n"
        f"  {name}: {{base_url: 'http://127.0.0.1:{port}/v1', connections: {{warm: {warm}}}}}\n"
        "  beta: {base_url: 'http://127.0.0.1:9/v1'}\n"
    )


def alpha(shop: Shop) -> dict[str, object]:
    (row,) = [row for row in connection_status(shop.kept) if row["provider"] == "alpha"]
    return row


def counted(shop: Shop, name: str) -> dict[str, float]:
    readings = [reading for reading in connection_counters(shop.kept) if reading.name == name]
    return {r.labels[-1][1]: r.value for r in readings if r.labels[0] == ("provider", "alpha")}


def pool_of(shop: Shop) -> Pool:
    return shop.core(Pool, "pool", "alpha")


async def test_an_address_that_has_served_nobody_has_no_ratio(shop: Shop) -> None:
    shop.live(policy(9))
    assert alpha(shop) == {
        "provider": "alpha",
        "address": "http://127.0.0.1:9",
        "in_use": 0,
        "idle": 0,
        "warm": 0,
        "idle_seconds": 25.0,
        "dials": 0,
        "reuses": 0,
        "reuse_ratio": None,
        "warm_dials": 0,
        "failed_dials": 0,
        "ended": {"aged": 0, "retired": 0, "peer": 0, "moved": 0, "vanished": 0},
    }


async def test_the_ratio_is_that_of_requests(shop: Shop, listener: socket.socket) -> None:
    shop.live(policy(listener.getsockname()[1]))
    pool = pool_of(shop)
    pool.dials += 1
    connection = await pool.dialer.dial(5.0)
    for _ in range(3):
        pool.put(connection, shop.clock.now())
        assert pool.take(shop.clock.now()) is connection
    assert (alpha(shop)["reuse_ratio"], alpha(shop)["in_use"]) == (0.75, 1)
    assert counted(shop, "sponson.connection.requests") == {"true": 3, "false": 1}
    assert counted(shop, "sponson.connection.dials") == {"ok": 1, "failed": 0}
    pool.put(connection, shop.clock.now())
    shop.clock.advance(26.0)
    pool.sweep(shop.clock.now())
    assert counted(shop, "sponson.connection.ended") == {
        "aged": 1, "retired": 0, "peer": 0, "moved": 0, "vanished": 0,
    }  # fmt: skip


async def warmed(shop: Shop, number: int) -> None:
    pool_of(shop).keep_warm(shop.clock.now())
    await until(lambda: rests(pool_of(shop), number))


async def test_connections_that_are_kept_ready_are_no_requests(shop: Shop, listener: socket.socket) -> None:
    shop.live(policy(listener.getsockname()[1], warm=2))
    await warmed(shop, 2)
    shown = alpha(shop)
    assert (shown["warm"], shown["idle"], shown["warm_dials"], shown["reuse_ratio"]) == (2, 2, 2, None)
    readings = {(r.name, dict(r.labels)["provider"]): r.value for r in connection_gauges(shop.kept)}
    assert readings["sponson.attempts.active", "alpha"] == 0
    assert readings["sponson.connections", "alpha"] == 2


async def test_dials_that_fail_are_told_apart(shop: Shop) -> None:
    shop.live(policy(free_port(), warm=1))
    pool = pool_of(shop)
    pool.keep_warm(shop.clock.now())
    await until(lambda: pool.dialer.failed == 1)
    assert counted(shop, "sponson.connection.dials") == {"ok": 0, "failed": 1}
    assert alpha(shop)["failed_dials"] == 1


async def test_a_reload_changes_how_many_are_kept_ready(shop: Shop, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    shop.live(policy(port))
    pool = pool_of(shop)
    pool.keep_warm(shop.clock.now())
    assert (pool.warmth, pool.dialer.before) == (None, None)
    shop.live(policy(port, warm=3))
    await warmed(shop, 3)
    shop.live(policy(port, warm=1))
    assert pool_of(shop) is pool
    age(shop.clock, pool, 24.0)
    await until(lambda: rests(pool, 4))
    age(shop.clock, pool, 2.0)
    assert pool.idle == 1
    shop.live(policy(port))
    age(shop.clock, pool, 30.0)
    assert (pool.idle, pool.busy) == (0, 0)


def age(clock: FakeClock, pool: Pool, seconds: float) -> None:
    clock.advance(seconds)
    pool.sweep(clock.now())
    pool.keep_warm(clock.now())


async def test_an_assembly_that_does_not_go_live_warms_nothing(shop: Shop, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    shop.live(policy(port))
    shop.assemble(policy(port, warm=5))
    assert pool_of(shop).warmth is None


async def test_counters_have_one_reading_a_label_and_none_of_a_provider_that_is_gone(shop: Shop) -> None:
    shop.live(policy(9, name="gone"))
    shop.live(policy(9))
    labels = [(reading.name, reading.labels) for reading in connection_counters(shop.kept)]
    assert len(labels) == len(set(labels)) == 2 * 9
    assert {dict(each)["provider"] for _, each in labels} == {"alpha", "beta"}
