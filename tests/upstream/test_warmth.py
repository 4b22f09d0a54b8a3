"""Connections that are kept ready."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme

from proxy.outcome import OutcomeKind
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.lookup import Lookup
from proxy.upstream.pool import Ending, Pool
from proxy.upstream.warmth import TOGETHER
from tests.fakes import FakeClock, settle
from tests.upstream.peer import PATIENCE_SECONDS, PeerWire, provider, until
from tests.upstream.ready import all_accepted, ended, holding, look, serving, warm, warmed
from tests.upstream.rig import Rig


async def test_connections_are_ready_before_the_first_request_and_serve_it() -> None:
    async with warm(want=2) as (rig, warmth):
        await look(rig, idle=2)
        outcome, attempt = await rig.call(repeatable=False)
        assert (outcome.kind, attempt.reused) == (OutcomeKind.OK, True)
        assert (rig.pool.dials, rig.pool.reuses, warmth.dials) == (0, 1, 2)
        assert rig.peer.connections == 2


async def test_more_than_are_dialled_at_a_time_come_too_without_another_look() -> None:
    async with warm(want=3 * TOGETHER + 1) as (rig, _):
        await look(rig, idle=3 * TOGETHER + 1)
        await look(rig, idle=3 * TOGETHER + 1)
        assert rig.pool.dialer.opened == 3 * TOGETHER + 1


async def test_what_will_age_soon_is_replaced_before_it_ends() -> None:
    async with warm(want=2) as (rig, warmth):
        await look(rig, idle=2)
        rig.clock.advance(22.0)
        await look(rig, idle=2)
        assert warmth.dials == 2
        rig.clock.advance(1.5)
        await look(rig, idle=4)
        rig.clock.advance(1.5)
        await look(rig, idle=2)
        assert (warmth.dials, rig.pool.ended[Ending.AGED]) == (4, 2)


async def test_what_its_peer_ended_is_replaced_and_no_request_meets_it() -> None:
    ends = [asyncio.Event() for _ in range(2)]

    async def script(wire: PeerWire) -> None:
        number = peer.connections - 1
        if number < len(ends):
            await ends[number].wait()
        else:
            await serving(wire)

    async with provider(script) as peer:
        rig = Rig(peer)
        warmth = warmed(rig.pool, rig.clock, want=2)
        await look(rig, idle=2)
        rig.clock.advance(10.0)
        for end in ends:
            end.set()
        await until(lambda: not any(each.usable for each in rig.pool._idle))
        await look(rig, idle=2)
        outcome, attempt = await rig.call(repeatable=False)
        assert (outcome.kind, attempt.reused, warmth.dials) == (OutcomeKind.OK, True, 4)
        assert rig.pool.ended[Ending.PEER] == 2
        await rig.pool.close()
        await all_accepted(peer.port)


async def test_those_in_use_count_so_that_no_address_has_more_than_it_may() -> None:
    async with warm(want=2, most=3) as (rig, warmth):
        used = [await rig.pool.dialer.dial(PATIENCE_SECONDS) for _ in range(2)]
        rig.pool.keep_warm(rig.clock.now())
        await until(lambda: rig.pool.idle == 1)
        rig.pool.keep_warm(rig.clock.now())
        await settle()
        assert (rig.pool.dialer.open, warmth.dials) == (3, 1)
        used.pop().kill()
        rig.pool.keep_warm(rig.clock.now())
        await until(lambda: rig.pool.idle == 2)
        assert rig.pool.dialer.open == 3
        used.pop().kill()


async def test_no_more_are_kept_ready_than_the_address_may_have() -> None:
    async with warm(want=9, most=4) as (rig, warmth):
        await look(rig, idle=4)
        rig.pool.keep_warm(rig.clock.now())
        await settle()
        assert (warmth.want, warmth.dials, rig.pool.dialer.open) == (4, 4, 4)


async def test_what_is_wanted_no_more_ages_out() -> None:
    async with warm(want=3) as (rig, warmth):
        await look(rig, idle=3)
        warmth.reconfigure(want=1, most=100, seconds=5.0)
        await look(rig, idle=3)
        rig.clock.advance(23.5)
        await look(rig, idle=4)
        rig.clock.advance(2.0)
        await look(rig, idle=1)
        warmth.reconfigure(want=0, most=100, seconds=5.0)
        rig.clock.advance(25.0)
        await look(rig, idle=0)
        assert warmth.dials == 4


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_handshake_is_part_of_being_ready(trusted: bool) -> None:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    if trusted:
        authority.configure_trust(client)
    async with provider(serving, tls=server) as peer:
        rig = Rig(peer)
        rig.pool.dialer = Dialer(peer.address, tls=client)
        warmth = warmed(rig.pool, rig.clock, want=2)
        rig.pool.keep_warm(rig.clock.now())
        if trusted:
            await until(lambda: rig.pool.idle == 2)
            outcome, attempt = await rig.call(repeatable=False)
            assert (outcome.kind, attempt.reused, peer.connections) == (OutcomeKind.OK, True, 2)
        else:
            await until(lambda: warmth.failures == 2)
            assert rig.pool.idle == 0
        await rig.pool.close()


async def test_connections_are_spread_over_all_that_a_name_has() -> None:
    def ask(host: str, port: int, **rest: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{end}", port)) for end in (1, 2, 3)]

    server = await asyncio.start_server(holding, "0.0.0.0", 0)
    address = Address(scheme="http", host="several.test", port=server.sockets[0].getsockname()[1])
    pool = Pool(Dialer(address, lookup=Lookup(ask)), idle_seconds=25.0)
    clock = FakeClock()
    warmed(pool, clock, want=6)
    pool.keep_warm(clock.now())
    await until(lambda: pool.idle == 6)
    assert sorted(each.remote for each in pool._idle) == [f"127.0.0.{end}" for end in (1, 1, 2, 2, 3, 3)]
    await ended(pool, server)
