"""Connections that are kept ready, where their provider does not want them, requests need their place, or all ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

import pytest

from proxy.outcome import OutcomeKind
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.warmth import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, TOGETHER
from tests.fakes import FakeClock, settle
from tests.ports import free_port
from tests.upstream.peer import Peer, PeerWire, provider, until
from tests.upstream.ready import Stuck, all_accepted, ended, failed, holding, look, serving, warm, warmed
from tests.upstream.rig import Rig


async def test_what_is_dialled_to_be_ready_gives_way_to_requests() -> None:
    stuck = Stuck()
    async with provider(serving) as peer:
        rig = Rig(peer)
        rig.pool.dialer = stuck.dialer(peer)
        warmth = warmed(rig.pool, rig.clock, want=3, most=3)
        rig.pool.keep_warm(rig.clock.now())
        await until(lambda: warmth.begun == 3)
        calls = [rig.start(rig.exchange()) for _ in range(3)]
        for outcome in await asyncio.gather(*calls):
            assert outcome.kind is OutcomeKind.OK
        assert stuck.seen <= 3
        assert warmth.begun == 0
        await rig.pool.close()
        await all_accepted(peer.port)


async def test_a_provider_that_is_not_there_is_asked_with_growing_pauses_and_one_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    rig = Rig(Peer(serving, scheme="http"))
    rig.pool.dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=port))
    warmth = warmed(rig.pool, rig.clock, want=1)
    caplog.set_level(logging.INFO, logger="sponson.upstream")
    await failed(rig, warmth, 1)
    pause = FIRST_PAUSE_SECONDS
    for number in range(2, 12):
        rig.clock.advance(pause - 0.01)
        await failed(rig, warmth, number - 1)
        rig.clock.advance(0.02)
        await failed(rig, warmth, number)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    assert pause == LONGEST_PAUSE_SECONDS
    (said,) = caplog.records
    assert f"127.0.0.1:{port} can be kept ready" in said.getMessage()
    assert (rig.pool.dials, rig.pool.busy, rig.pool.dialer.failed) == (0, 0, 11)
    server = await asyncio.start_server(holding, "127.0.0.1", port)
    rig.clock.advance(LONGEST_PAUSE_SECONDS)
    rig.pool.keep_warm(rig.clock.now())
    await until(lambda: rig.pool.idle == 1)
    assert "ready again" in caplog.records[-1].getMessage()
    assert len(caplog.records) == 2
    await ended(rig.pool, server)


async def test_a_dead_provider_is_asked_for_one_at_a_time() -> None:
    port = free_port()
    rig = Rig(Peer(serving, scheme="http"))
    rig.pool.dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=port))
    warmth = warmed(rig.pool, rig.clock, want=50)
    rig.pool.keep_warm(rig.clock.now())
    await until(lambda: warmth.failures == TOGETHER and not warmth._dialling)
    rig.clock.advance(FIRST_PAUSE_SECONDS + 0.01)
    await failed(rig, warmth, TOGETHER + 1)
    rig.clock.advance(FIRST_PAUSE_SECONDS + 0.01)
    await failed(rig, warmth, TOGETHER + 1)
    await rig.pool.close()


async def test_a_provider_that_ends_unused_connections_at_once_is_not_dialled_in_a_loop() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.send(b"")

    async with provider(script) as peer:
        rig = Rig(peer)
        warmth = warmed(rig.pool, rig.clock, want=1)
        pause = FIRST_PAUSE_SECONDS
        for number in range(1, 8):
            await look(rig, idle=1)
            await until(lambda: not rig.pool._idle[0].usable)
            await look(rig, idle=0)
            rig.clock.advance(pause - 0.01)
            await look(rig, idle=0)
            assert warmth.dials == number
            rig.clock.advance(0.02)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        await rig.pool.close()
        await all_accepted(peer.port)


async def test_where_nothing_may_rest_nothing_is_kept_ready() -> None:
    async with warm(want=2) as (rig, warmth):
        rig.pool.idle_seconds = 0.0
        rig.pool.keep_warm(rig.clock.now())
        await settle()
        assert (warmth.dials, rig.pool.dialer.opened) == (0, 0)


class Leaping(FakeClock):
    """A clock that is a minute later whenever somebody looks."""

    def now(self) -> float:
        self.advance(60.0)
        return super().now()


def has_opened(rig: Rig, number: int) -> bool:
    return rig.pool.dialer.opened >= number


async def test_what_ages_sooner_than_others_are_dialled_is_no_loop() -> None:
    async with provider(serving) as peer:
        rig = Rig(peer)
        warmth = warmed(rig.pool, Leaping(), want=2)
        for dials in (2, 4):
            rig.pool.keep_warm(1e6 * dials)
            await until(partial(has_opened, rig, dials))
            await settle()
            assert (warmth.dials, warmth.begun) == (dials, 0)
        await rig.pool.close()
        await all_accepted(peer.port)


@pytest.mark.parametrize("rounds", range(8))
async def test_a_close_at_any_moment_leaves_no_task_and_no_connection(rounds: int) -> None:
    async with warm(want=20) as (rig, warmth):
        before = asyncio.all_tasks()
        rig.pool.keep_warm(rig.clock.now())
        for _ in range(rounds):
            await asyncio.sleep(0)
        await rig.pool.close()
        rig.pool.keep_warm(rig.clock.now())
        await settle()
        assert (rig.pool.idle, rig.pool.dialer.open, warmth.begun) == (0, 0, 0)
        assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith("keep ")]


@pytest.mark.parametrize("rounds", range(6))
async def test_a_request_that_is_cancelled_while_others_give_way_leaves_nothing(rounds: int) -> None:
    stuck = Stuck()
    async with provider(serving) as peer:
        rig = Rig(peer)
        rig.pool.dialer = stuck.dialer(peer)
        warmth = warmed(rig.pool, rig.clock, want=1, most=1)
        rig.pool.keep_warm(rig.clock.now())
        await until(lambda: warmth.begun == 1)
        calling = rig.start(rig.exchange())
        for _ in range(rounds):
            await asyncio.sleep(0)
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling
        await rig.pool.close()
        await all_accepted(peer.port)
        await settle()
        assert (rig.pool.dialer.open, warmth.begun) == (0, 0)
