"""Pools of removed providers: what is under way goes on to its end, and only then do their ten minutes begin."""

from __future__ import annotations

import asyncio

import pytest

from proxy.outcome import OutcomeKind
from proxy.runtime.kept_state import GRACE_SECONDS, KeptState
from tests.fakes import CHAT, Ask, settle
from tests.upstream.peer import PeerWire, until
from tests.upstream.rig import EVENTS_HEAD, JSON_HEAD, LAST_CHUNK, STREAM, WORD, Rig, chunk, rigged

POOL = ("pool", "http", "127.0.0.1")


def removed(rig: Rig) -> KeptState:
    """Kept state whose live policy does not know the rig's pool any more, as of now."""
    kept = KeptState()
    kept.begin()
    kept.get(POOL, lambda: rig.pool)
    kept.commit(rig.clock.now())
    kept.begin()
    kept.commit(rig.clock.now())
    return kept


@pytest.mark.parametrize("ask", [STREAM, CHAT], ids=["stream", "other"])
async def test_what_is_under_way_is_not_cut_by_the_grace_of_its_pool(ask: Ask) -> None:
    go_on = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(EVENTS_HEAD + chunk(WORD))
        await go_on.wait()
        await wire.send(chunk(WORD) + LAST_CHUNK)
        await wire.gone()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange(ask))
        await until(lambda: rig.reply.body == WORD)
        kept, now = removed(rig), rig.clock.now()
        assert kept.expire(now + GRACE_SECONDS + 1.0) == []
        assert kept.expire(now + 5 * GRACE_SECONDS) == []
        go_on.set()
        outcome = await calling
        assert (outcome.kind, rig.reply.body, rig.reply.end) == (OutcomeKind.OK, WORD * 2, "finished")
        ended = now + 5 * GRACE_SECONDS
        assert kept.expire(ended + GRACE_SECONDS - 1.0) == []
        assert kept.expire(ended + GRACE_SECONDS) == [rig.pool]


async def test_who_still_waits_for_a_head_keeps_the_pool_too() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.gone()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange())
        await until(lambda: rig.pool.dials == 1 and rig.peer.connections == 1)
        await settle()
        kept = removed(rig)
        assert kept.expire(rig.clock.now() + GRACE_SECONDS) == []
        calling.cancel()
        await asyncio.wait([calling])
        assert kept.expire(rig.clock.now() + 2 * GRACE_SECONDS) == [rig.pool]


async def test_idle_connections_keep_no_pool() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(JSON_HEAD + b"content-length: 2\r\n\r\n{}")
        await wire.gone()

    async with rigged(script) as rig:
        await rig.call()
        assert rig.pool.idle == 1
        assert removed(rig).expire(rig.clock.now() + GRACE_SECONDS) == [rig.pool]
