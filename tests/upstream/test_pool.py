from __future__ import annotations

import itertools
from typing import cast

import pytest

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.moves import GRACE_SECONDS
from proxy.upstream.pool import EARLIEST, LEAD_SECONDS, LONGEST_LIFE_SECONDS, LONGEST_USE, Ending, Pool
from proxy.upstream.promises import EPOCH_SECONDS
from proxy.upstream.wire import UpstreamConnection

ADDRESS = Address(scheme="http", host="a.test", port=80)


class FakeConnection:
    def __init__(self, *, uses: int = 1, remote: str = "192.0.2.1") -> None:
        self.remote = remote
        self.retire_at = float("inf")
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
    hosts: frozenset[str] = frozenset()
    looked_at = 0.0

    def end_vanished(self, now: float) -> None:
        self.looked_at = now

    async def close(self) -> None:
        self.closed = True


def a_pool(idle_seconds: float = 25.0) -> Pool:
    return Pool(cast(Dialer, FakeDialer()), idle_seconds=idle_seconds)


def put(pool: Pool, now: float, *, uses: int = 1, remote: str = "192.0.2.1") -> FakeConnection:
    connection = FakeConnection(uses=uses, remote=remote)
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
    aged, closed, fresh, newest = (put(pool, now) for now in (100.0, 110.0, 120.0, 121.0))
    closed.usable = newest.usable = False
    pool.sweep(125.0)
    assert (aged.killed, closed.killed, fresh.killed, newest.killed, pool.idle) == (True, True, False, True, 1)


def opened(pool: Pool, now: float) -> FakeConnection:
    connection = FakeConnection()
    pool.dials += 1
    pool.opened(cast(UpstreamConnection, connection), now)
    return connection


def test_connections_that_were_opened_together_do_not_retire_together() -> None:
    pool = a_pool()
    ends = sorted(opened(pool, 1000.0).retire_at - 1000.0 for _ in range(50))
    assert ends[0] >= EARLIEST * LONGEST_LIFE_SECONDS
    assert ends[-1] <= LONGEST_LIFE_SECONDS
    gaps = [after - before for before, after in itertools.pairwise(ends)]
    assert min(gaps) > 0
    assert max(gaps) < 0.1 * (1 - EARLIEST) * LONGEST_LIFE_SECONDS


@pytest.mark.parametrize("swept", [False, True])
def test_a_connection_that_is_old_enough_takes_no_more_requests(swept: bool) -> None:
    pool = a_pool(idle_seconds=1000.0)
    connection = opened(pool, 0.0)
    end = connection.retire_at
    pool.put(cast(UpstreamConnection, connection), end - 2.0)
    assert taken(pool, end - 1.0) is connection
    pool.put(cast(UpstreamConnection, connection), end - 1.0)
    if swept:
        pool.sweep(end)
        assert connection.killed
    assert taken(pool, end) is None
    assert connection.killed


def test_what_leads_where_its_name_left_is_closed_after_the_grace_and_the_rest_stays() -> None:
    pool = a_pool(idle_seconds=1000.0)
    left, stays = put(pool, 0.0, remote="192.0.2.1"), put(pool, 0.0, remote="192.0.2.2")
    cast(FakeDialer, pool.dialer).hosts = frozenset({"192.0.2.2", "192.0.2.3"})
    pool.sweep(10.0)
    assert not left.killed
    pool.sweep(10.0 + GRACE_SECONDS)
    assert (left.killed, stays.killed, pool.idle) == (True, False, 1)


def test_a_vanished_peer_costs_its_other_connections_but_those_that_it_served_since() -> None:
    pool = a_pool()
    before, other, after = put(pool, 10.0), put(pool, 10.0, remote="192.0.2.9"), put(pool, 12.0)
    pool.distrust(cast(UpstreamConnection, FakeConnection()), since=11.0)
    assert (before.killed, other.killed, after.killed, pool.idle) == (True, False, False, 2)


def test_a_sweep_looks_for_peers_that_have_vanished() -> None:
    pool = a_pool()
    pool.sweep(7.0)
    assert cast(FakeDialer, pool.dialer).looked_at == 7.0


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


def test_what_ends_while_idle_is_counted_by_its_reason() -> None:
    pool = a_pool(idle_seconds=25.0)
    cast(FakeDialer, pool.dialer).hosts = frozenset({"192.0.2.1"})
    moved, vanished = put(pool, 100.0, remote="192.0.2.7"), put(pool, 100.0, remote="192.0.2.8")
    pool.distrust(cast(UpstreamConnection, FakeConnection(remote="192.0.2.8")), since=101.0)
    assert pool.ended == {Ending.VANISHED: 1}
    assert vanished.killed
    for now in (101.0, 101.0 + 24.0):
        pool.sweep(now)
    assert pool.ended == {Ending.VANISHED: 1, Ending.AGED: 1}
    moved = put(pool, 126.0, remote="192.0.2.7")
    for now in (126.0, 126.0 + GRACE_SECONDS - 6.0):
        pool.sweep(now)
        moved.idle_since = now
    pool.sweep(126.0 + GRACE_SECONDS)
    assert pool.ended[Ending.MOVED] == 1
    closed, old = put(pool, 160.0), put(pool, 160.0)
    closed.usable, old.retire_at = False, 161.0
    pool.sweep(162.0)
    assert (pool.ended[Ending.PEER], pool.ended[Ending.RETIRED]) == (1, 1)
    closed, old, aged = put(pool, 170.0), put(pool, 170.0), put(pool, 140.0)
    closed.usable, old.retire_at = False, 171.0
    assert pool.take(172.0) is None
    assert (pool.ended[Ending.PEER], pool.ended[Ending.RETIRED], pool.ended[Ending.AGED]) == (2, 2, 2)
    assert aged.killed


def test_no_connection_is_kept_for_longer_than_its_server_says() -> None:
    pool = a_pool(idle_seconds=25.0)
    before = put(pool, 100.0)
    pool.told(b"timeout=5, max=200")
    assert (pool.idle_seconds, pool.rests) == (25.0, 4.0)
    assert pool.take(104.0) is None
    assert before.killed
    kept = put(pool, 110.0)
    assert taken(pool, 113.9) is kept
    aged = put(pool, 120.0)
    pool.sweep(124.0)
    assert aged.killed


def test_the_policy_bounds_what_a_server_says_and_a_reload_keeps_it_in_mind() -> None:
    pool = a_pool(idle_seconds=25.0)
    pool.told(b"timeout=75")
    assert pool.rests == 25.0
    pool.idle_seconds = 90.0
    assert pool.rests == 74.0
    pool.idle_seconds = 2.0
    assert pool.rests == 2.0


def test_nothing_is_kept_where_a_server_keeps_nothing() -> None:
    pool = a_pool()
    pool.told(b"timeout=0")
    assert put(pool, 1.0).killed


def test_what_a_server_says_no_more_is_forgotten() -> None:
    pool = a_pool(idle_seconds=25.0)
    pool.sweep(1000.0)
    pool.told(b"timeout=5")
    pool.sweep(1000.0 + EPOCH_SECONDS)
    assert pool.rests == 4.0
    pool.sweep(1000.0 + 2 * EPOCH_SECONDS)
    assert pool.rests == 25.0


@pytest.mark.parametrize(("idle_seconds", "lead"), [(25.0, LEAD_SECONDS), (5.0, 1.0)])
def test_those_are_ready_that_will_serve_for_a_while_still(idle_seconds: float, lead: float) -> None:
    pool = a_pool(idle_seconds=idle_seconds)
    ready, old, closed = put(pool, 100.0), put(pool, 100.0), put(pool, 100.0)
    closed.usable = False
    old.retire_at = 102.0 + lead
    assert pool.ready(101.9) == 2
    assert pool.ready(102.0) == 1
    assert pool.ready(100.0 + idle_seconds - lead - 0.1) == 1
    assert pool.ready(100.0 + idle_seconds - lead) == 0
    assert not ready.killed
