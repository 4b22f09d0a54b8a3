"""Until an answer's first content: which limit holds, and what ends it."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from dataclasses import replace
from typing import Any

import pytest

from proxy.outcome import OutcomeKind
from tests.fakes import CHAT, LIMITS, Ask, settle
from tests.upstream.peer import PeerWire, until
from tests.upstream.rig import DONE, EVENTS_HEAD, JSON_HEAD, LAST_CHUNK, ROLE, STREAM, WORD, Rig, chunk, rigged
from tests.upstream.test_pieces import Stepwise

PING = b": ping\n\n"
FIRST = replace(LIMITS, first_byte=20.0, idle=60.0)
FINAL: dict[str, Any] = {"replaceable": False, "limits": FIRST}
CHUNKED = JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n"


async def begun(rig: Rig, steps: Stepwise, ask: Ask = STREAM) -> asyncio.Task[Any]:
    """An answer whose head was passed on; nobody could replace it."""
    calling = rig.start(rig.exchange(ask, **FINAL))
    steps.step()
    await until(lambda: rig.reply.started)
    await settle()
    return calling


async def test_the_first_byte_limit_goes_on_after_a_head_that_was_passed_on() -> None:
    steps = Stepwise(EVENTS_HEAD)
    async with rigged(steps) as rig:
        calling = await begun(rig, steps)
        rig.clock.advance(19.9)
        await settle()
        assert not calling.done()
        rig.clock.advance(0.2)
        outcome = await calling
        assert (outcome.kind, outcome.committed) == (OutcomeKind.FIRST_BYTE_TIMEOUT, True)
        assert (rig.reply.end, rig.progress.content) == ("aborted", [])
        assert b'"first_byte_timeout"' in rig.reply.body


@pytest.mark.parametrize("sign", [PING, ROLE, PING + ROLE], ids=["comments", "roles", "both"])
async def test_nothing_but_content_ends_the_wait_for_it(sign: bytes) -> None:
    steps = Stepwise(EVENTS_HEAD, *[chunk(sign)] * 4)
    async with rigged(steps) as rig:
        calling = await begun(rig, steps)
        for count in range(1, 5):
            rig.clock.advance(4.5)
            steps.step()
            await until(lambda count=count: calling.done() or rig.reply.body == sign * count)  # type: ignore[misc]
            assert not calling.done()
        rig.clock.advance(2.5)
        assert (await calling).kind is OutcomeKind.FIRST_BYTE_TIMEOUT


async def test_with_the_first_content_the_idle_limit_takes_over() -> None:
    steps = Stepwise(EVENTS_HEAD, chunk(ROLE + WORD), chunk(PING), chunk(DONE) + LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = await begun(rig, steps)
        rig.clock.advance(15.0)
        steps.step()
        await until(lambda: bool(rig.progress.content))
        for _ in range(2):
            rig.clock.advance(59.0)
            await settle()
            assert not calling.done()
            steps.step()
            await until(lambda size=rig.reply.body: rig.reply.body != size)  # type: ignore[misc]
        assert (await calling).kind is OutcomeKind.OK
        assert rig.progress.content == [1015.0]


async def test_the_deadline_does_not_bind_a_stream_that_waits_for_content_after_its_head() -> None:
    steps = Stepwise(EVENTS_HEAD, chunk(WORD) + LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM, **FINAL, deadline_at=rig.clock.now() + 5.0))
        steps.step()
        await until(lambda: rig.reply.started)
        rig.clock.advance(6.0)
        await settle()
        steps.step()
        assert (await calling).kind is OutcomeKind.OK


@pytest.mark.parametrize("head", [CHUNKED, EVENTS_HEAD], ids=["json", "events"])
async def test_an_answer_that_is_no_stream_may_take_longer_to_its_head_than_a_stream_to_its_content(
    head: bytes,
) -> None:
    body = WORD if head is EVENTS_HEAD else b'{"id":1}'
    steps = Stepwise(head, chunk(body) + LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(CHAT, **FINAL))
        await until(lambda: rig.clock.next_due is not None)
        rig.clock.advance(40.0)
        steps.step()
        await until(lambda: rig.reply.started)
        rig.clock.advance(30.0)
        await settle()
        steps.step()
        outcome = await calling
        assert (outcome.kind, rig.reply.body) == (OutcomeKind.OK, body)


def raw_deflate(parts: list[bytes]) -> list[bytes]:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return [packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) for part in parts]


def members(parts: list[bytes]) -> list[bytes]:
    return [gzip.compress(part) for part in parts]


def unpackable(parts: list[bytes]) -> list[bytes]:
    return [b"\xff\xfe" + part for part in parts]


CODED = {"raw deflate": (b"deflate", raw_deflate), "members": (b"gzip", members), "unpackable": (b"gzip", unpackable)}


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("replaceable", [True, False], ids=["held back", "at once"])
async def test_a_coded_stream_passes_untouched_counts_as_content_and_lives(name: str, replaceable: bool) -> None:
    coding, pack = CODED[name]
    pieces = pack([WORD] * 6)
    head = EVENTS_HEAD[:-2] + b"content-encoding: " + coding + b"\r\n\r\n"
    steps = Stepwise(head, *map(chunk, pieces), LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM, **{**FINAL, "replaceable": replaceable}))
        steps.step()
        for count in range(1, 7):
            steps.step()
            whole = b"".join(pieces[:count])
            await until(lambda whole=whole: calling.done() or rig.reply.body == whole)  # type: ignore[misc]
            assert rig.progress.content == [1000.0]
            rig.clock.advance(35.0)
            await settle()
        steps.step()
        outcome = await calling
        assert (outcome.kind, rig.reply.body, rig.reply.end) == (OutcomeKind.OK, b"".join(pieces), "finished")


async def test_a_coded_stream_without_content_waits_like_any_other() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        head = EVENTS_HEAD[:-2] + b"content-encoding: gzip\r\n\r\n"
        await wire.send(head + b"".join(chunk(gzip.compress(PING)) for _ in range(3)))
        await wire.gone()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange(STREAM, **FINAL))
        await until(lambda: len(rig.reply.body) == 3 * len(gzip.compress(PING)))
        rig.clock.advance(20.0)
        assert (await calling).kind is OutcomeKind.FIRST_BYTE_TIMEOUT


@pytest.mark.parametrize("replaceable", [False, True], ids=["at once", "held"])
async def test_half_an_event_after_the_first_content_is_no_sign_of_life(replaceable: bool) -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), chunk(WORD[:10]))
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM, limits=FIRST, replaceable=replaceable))
        steps.step()
        await until(lambda: rig.reply.body == WORD)
        rig.clock.advance(20.0)
        steps.step()
        await until(lambda: rig.reply.body == WORD + WORD[:10])
        rig.clock.advance(40.0)
        assert (await calling).kind is OutcomeKind.IDLE_TIMEOUT


async def test_comments_before_any_content_are_signs_of_life_where_no_stream_was_asked_for() -> None:
    steps = Stepwise(EVENTS_HEAD, *[chunk(PING)] * 3, chunk(WORD) + LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = await begun(rig, steps, CHAT)
        for count in range(1, 4):
            rig.clock.advance(50.0)
            steps.step()
            await until(lambda count=count: rig.reply.body == PING * count)  # type: ignore[misc]
        rig.clock.advance(50.0)
        steps.step()
        assert (await calling).kind is OutcomeKind.OK
