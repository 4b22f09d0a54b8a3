from __future__ import annotations

from typing import cast

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.pool import LONGEST_USE, Pool
from proxy.upstream.wire import UpstreamConnection

ADDRESS = Address(scheme="http", host="a.test", port=80)


class FakeConnection:
    def __init__(self, *, uses: int = 1) -> None:
        self.usable = True
        self.uses = uses
        self.idle_since = 0.0
        self.killed = False

    def rest(self, now: float) -> None:
        self.idle_since = now

    def kill(self) -> None:
        self.killed = True
        self.usable = False


class FakeDialer:
    address = ADDRESS
    closed = False
    open = 0

    async def close(self) -> None:
        self.closed = True


def a_pool(idle_seconds: float = 25.0) -> Pool:
    return Pool(cast(Dialer, FakeDialer()), idle_seconds=idle_seconds)


def put(pool: Pool, now: float, *, uses: int = 1) -> FakeConnection:
    connection = FakeConnection(uses=uses)
    pool.put(cast(UpstreamConnection, connection), now)
    return connection


def taken(pool: Pool, now: float) -> FakeConnection | None:
    return cast("FakeConnection | None", pool.take(now))


def test_nothing_to_take_means_dial() -> None:
    assert a_pool().take(0.0) is None


def test_the_newest_is_used_first_so_that_the_rest_may_age() -> None:
    pool = a_pool()
    old, new = put(pool, 1.0), put(pool, 2.0)
    assert taken(pool, 3.0) is new
    assert taken(pool, 3.0) is old
    assert (taken(pool, 3.0), pool.reuses) == (None, 2)


def test_what_was_idle_too_long_is_closed_not_used() -> None:
    pool = a_pool(idle_seconds=25.0)
    connection = put(pool, 100.0)
    assert pool.take(125.0) is None
    assert connection.killed


def test_what_has_spoken_or_closed_while_idle_is_closed_and_the_next_is_taken() -> None:
    pool = a_pool()
    good, dirty, dirtier = put(pool, 1.0), put(pool, 2.0), put(pool, 3.0)
    dirty.usable = dirtier.usable = False
    assert taken(pool, 4.0) is good
    assert dirty.killed
    assert dirtier.killed
    assert pool.idle == 0


def test_what_is_not_usable_is_not_taken_though_it_was_just_put_back() -> None:
    pool = a_pool()
    connection = FakeConnection()
    connection.usable = False
    pool.put(cast(UpstreamConnection, connection), 1.0)
    assert pool.take(1.0) is None
    assert connection.killed


def test_nothing_is_kept_where_idling_is_off() -> None:
    pool = a_pool(idle_seconds=0.0)
    assert put(pool, 1.0).killed


def test_a_connection_does_not_live_for_ever() -> None:
    pool = a_pool()
    assert put(pool, 1.0, uses=LONGEST_USE).killed
    assert not put(pool, 1.0, uses=LONGEST_USE - 1).killed


def test_a_sweep_closes_the_aged_and_the_closed_and_leaves_the_rest() -> None:
    pool = a_pool(idle_seconds=25.0)
    aged, closed, fresh = put(pool, 100.0), put(pool, 110.0), put(pool, 120.0)
    closed.usable = False
    pool.sweep(125.0)
    assert (aged.killed, closed.killed, fresh.killed, pool.idle) == (True, True, False, 1)


async def test_closing_closes_the_idle_and_the_dialer() -> None:
    pool = a_pool()
    connections = [put(pool, 1.0), put(pool, 2.0)]
    await pool.close()
    assert all(connection.killed for connection in connections)
    assert cast(FakeDialer, pool.dialer).closed
    assert pool.idle == 0


def test_it_tells_what_it_holds() -> None:
    pool = a_pool()
    put(pool, 1.0)
    assert pool.address is ADDRESS
    assert "http://a.test:80 1 idle" in repr(pool)


def test_it_is_busy_while_more_connections_are_open_than_idle() -> None:
    pool = a_pool()
    dialer = cast(FakeDialer, pool.dialer)
    assert not pool.busy
    dialer.open = 1
    assert pool.busy
    connection = put(pool, 1.0)
    assert not pool.busy
    assert taken(pool, 2.0) is connection
    assert pool.busy
