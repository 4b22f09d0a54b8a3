"""Only the policy's limits end an answer, however long it takes; and by themselves they end every phase."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from proxy.decisions.deadline import TimeoutSettings
from proxy.outcome import OutcomeKind
from tests.fakes import CHAT, LIMITS
from tests.upstream.peer import PeerWire, until
from tests.upstream.rig import EVENTS_HEAD, JSON_HEAD, LAST_CHUNK, STREAM, WORD, chunk, rigged, with_length

LIBRARY_SECONDS = 300.0
"""After which aiohttp's own client ends everything."""


async def test_a_stream_that_says_something_now_and_then_outlives_every_hidden_limit() -> None:
    words: asyncio.Queue[bytes] = asyncio.Queue()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(EVENTS_HEAD)
        while word := await words.get():
            await wire.send(chunk(word))
        await wire.send(LAST_CHUNK)
        await wire.gone()

    async with rigged(script) as rig:
        running, said = rig.start(rig.exchange(STREAM)), b""
        for _ in range(int(4 * LIBRARY_SECONDS / (LIMITS.idle - 1))):
            words.put_nowait(WORD)
            said += WORD
            await until(lambda: rig.reply.body == said)  # noqa: B023 - awaited in its own round
            rig.clock.advance(LIMITS.idle - 1)
        words.put_nowait(b"")
        outcome = await running
        assert (outcome.kind, rig.reply.end, rig.reply.body) == (OutcomeKind.OK, "finished", said)
        assert rig.pool.idle == 1


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_first_byte_that_the_policy_waits_for_may_be_late(streamed: bool) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        asked.set()
        await go_on.wait()
        await wire.send(EVENTS_HEAD + chunk(WORD) + LAST_CHUNK if streamed else with_length(JSON_HEAD, b"{}"))
        await wire.gone()

    late = 2 * LIBRARY_SECONDS
    limits = dataclasses.replace(LIMITS, first_byte=late + 1, answer=late + 1)
    async with rigged(script) as rig:
        running = rig.start(rig.exchange(STREAM if streamed else CHAT, limits=limits))
        await asked.wait()
        rig.clock.advance(late)
        go_on.set()
        assert (await running).kind is OutcomeKind.OK


@pytest.mark.parametrize("phase", ["connect", "first_byte", "answer", "idle", "stream"])
def test_every_phase_ends_by_itself_where_the_policy_says_nothing(phase: str) -> None:
    assert 0 < getattr(TimeoutSettings(), phase) <= 3600.0
