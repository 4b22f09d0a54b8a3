"""Answers on their way: piece by piece, byte for byte, bounded in time, with a visible end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.exchange import CancelCause, Usage
from proxy.outcome import OutcomeKind
from tests.fakes import CHAT, LIMITS, Ask, settle
from tests.upstream.peer import PeerWire, until
from tests.upstream.rig import DONE, EVENTS_HEAD, JSON_HEAD, LAST_CHUNK, ROLE, STREAM, USAGE, WORD, chunk, rigged

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
CJK = 'data: {"choices":[{"delta":{"content":"日本語 🦊"}}]}\n\n'.encode()


class Stepwise:
    """Sends each part when the test says so."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts
        self._steps = asyncio.Semaphore(0)

    async def __call__(self, wire: PeerWire) -> None:
        await wire.request()
        for part in self._parts:
            await self._steps.acquire()
            await wire.send(part)
        await wire.gone()

    def step(self) -> None:
        self._steps.release()


@pytest.mark.parametrize(
    "media", ["text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream", "application/json"]
)
async def test_every_piece_is_passed_on_when_it_comes_whatever_its_media_type(media: str) -> None:
    pieces = [WORD, b"\x00\x01\n", b"x"]
    steps = Stepwise(CHUNKED % media.encode() + chunk(pieces[0]), *map(chunk, pieces[1:]), LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange())
        for count in range(1, len(pieces) + 1):
            steps.step()
            await until(lambda count=count: rig.reply.body == b"".join(pieces[:count]))  # type: ignore[misc]
            assert not rig.reply.end
        steps.step()
        assert (await calling).kind is OutcomeKind.OK
        assert (rig.reply.end, rig.reply.length, rig.pool.idle) == ("finished", None, 1)


async def test_a_stream_that_is_cut_at_every_byte_arrives_byte_for_byte() -> None:
    body = ROLE + CJK + USAGE + DONE

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(EVENTS_HEAD)
        for index in range(len(body)):
            await wire.send_bytewise(chunk(body[index : index + 1]))
        await wire.send(LAST_CHUNK)
        await wire.gone()

    async with rigged(script) as rig:
        exchange = rig.exchange(STREAM, replaceable=True)
        outcome = await rig.transport(exchange)
        assert (outcome.kind, rig.reply.body) == (OutcomeKind.OK, body)
        assert exchange.attempt is not None
        assert exchange.attempt.usage == exchange.facts.usage == Usage(3, 2, 0)
        assert exchange.attempt.answer_bytes == len(body)


async def test_the_first_content_is_told_once_and_a_preamble_is_none() -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(ROLE), chunk(b": ping\n\n"), chunk(WORD), chunk(WORD), LAST_CHUNK)
    async with rigged(steps) as rig:
        exchange = rig.exchange(STREAM)
        calling = rig.start(exchange)
        for _ in range(2):
            steps.step()
        await until(lambda: len(rig.reply.pieces) == 2)
        assert rig.progress.content == []
        rig.clock.advance(1.0)
        for _ in range(3):
            steps.step()
        await calling
        assert rig.progress.content == [1001.0]
        assert exchange.attempt is not None
        assert exchange.attempt.first_content_at == 1001.0


@pytest.mark.parametrize("ask", [CHAT, STREAM], ids=["json", "events"])
async def test_silence_between_pieces_is_bounded_and_every_piece_begins_it_anew(ask: Ask) -> None:
    head, piece = (EVENTS_HEAD, WORD) if ask.stream else (JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n", b"xx")
    steps = Stepwise(head + chunk(piece), chunk(piece), chunk(piece))
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(ask))
        for count in range(1, 4):
            steps.step()
            await until(lambda count=count: rig.reply.body == piece * count)  # type: ignore[misc]
            rig.clock.advance(LIMITS.idle - 0.1)
            await settle()
            assert not calling.done()
        rig.clock.advance(0.1)
        outcome = await calling
        assert (outcome.kind, outcome.committed, rig.pool.idle) == (OutcomeKind.IDLE_TIMEOUT, True, 0)
        assert rig.reply.end == "aborted"


@pytest.mark.parametrize("ask", [CHAT, STREAM], ids=["json", "events"])
async def test_the_deadline_binds_bodies_but_no_streams(ask: Ask) -> None:
    head, piece = (EVENTS_HEAD, WORD) if ask.stream else (JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n", b"xx")
    steps = Stepwise(head + chunk(piece), LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(ask, deadline_at=rig.clock.now() + 20.0))
        steps.step()
        await until(lambda: rig.reply.body == piece)
        rig.clock.advance(21.0)
        await settle()
        steps.step()
        outcome = await calling
        assert outcome.kind is (OutcomeKind.OK if ask.stream else OutcomeKind.TOTAL_TIMEOUT)


@pytest.mark.parametrize("media", [b"application/x-ndjson", b"Application/JSONL; charset=utf-8", b"application/json"])
@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
async def test_the_deadline_binds_no_stream_of_another_media_type(media: bytes, asked: bool) -> None:
    """What was asked for as a stream is one, and so is what says so; each may last as long as any other."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % media
    steps = Stepwise(head + chunk(b"{}\n"), LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(Ask(stream=asked), deadline_at=rig.clock.now() + 20.0))
        steps.step()
        await until(lambda: rig.reply.body == b"{}\n")
        rig.clock.advance(21.0)
        await settle()
        steps.step()
        is_stream = asked or media != b"application/json"
        assert (await calling).kind is (OutcomeKind.OK if is_stream else OutcomeKind.TOTAL_TIMEOUT)


async def test_the_longest_stream_is_bounded() -> None:
    limits = replace(LIMITS, stream=50.0)
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), chunk(WORD), chunk(WORD))
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM, limits=limits))
        for count in range(1, 4):
            steps.step()
            await until(lambda count=count: rig.reply.body == WORD * count)  # type: ignore[misc]
            rig.clock.advance(16.0)
            await settle()
            assert not calling.done()
        rig.clock.advance(2.0)
        assert (await calling).kind is OutcomeKind.STREAM_TIMEOUT


async def test_a_slow_reader_holds_the_provider_back_until_it_has_caught_up() -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), chunk(WORD), LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM))
        steps.step()
        await until(lambda: rig.reply.body == WORD)
        rig.reply.paused = True
        steps.step()
        await until(lambda: rig.reply.body == WORD * 2)
        steps.step()
        await settle()
        assert not calling.done()
        rig.clock.advance(LIMITS.idle - 1.0)
        rig.reply.resume()
        assert (await calling).kind is OutcomeKind.OK


async def test_a_reader_that_has_stopped_frees_the_attempt_after_the_idle_limit() -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), chunk(WORD))
    async with rigged(steps) as rig:
        exchange = rig.exchange(STREAM)
        calling = rig.start(exchange)
        steps.step()
        await until(lambda: rig.reply.body == WORD)
        rig.reply.paused = True
        steps.step()
        await until(lambda: rig.reply.body == WORD * 2)
        await settle()
        rig.clock.advance(LIMITS.idle)
        assert (rig.reply.end, exchange.cancel_cause) == ("aborted", CancelCause.STALLED)
        rig.reply.resume(gone=True)
        outcome = await calling
        assert (outcome.kind, outcome.committed, rig.pool.idle) == (OutcomeKind.CLIENT_LEFT, True, 0)


async def test_a_reader_that_has_gone_ends_the_attempt() -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), chunk(WORD))
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM))
        steps.step()
        await until(lambda: rig.reply.body == WORD)
        rig.reply.paused = True
        steps.step()
        await until(lambda: rig.reply.body == WORD * 2)
        rig.reply.resume(gone=True)
        outcome = await calling
        assert (outcome.kind, outcome.committed, rig.pool.idle) == (OutcomeKind.CLIENT_LEFT, True, 0)


async def test_a_drip_that_never_completes_an_event_is_no_sign_of_life() -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), chunk(WORD[:10]), chunk(WORD[10:20]))
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM))
        steps.step()
        await until(lambda: rig.reply.body == WORD)
        for end in (10, 20):
            steps.step()
            await until(lambda end=end: rig.reply.body == WORD + WORD[:end])  # type: ignore[misc]
            rig.clock.advance(LIMITS.idle / 2)
        outcome = await calling
        assert (outcome.kind, outcome.committed) == (OutcomeKind.IDLE_TIMEOUT, True)


@pytest.mark.parametrize("sign", [b": ping\n\n", b"event: ping\ndata: {}\n\n", DONE])
async def test_comments_and_events_of_any_kind_are_signs_of_life(sign: bytes) -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD), *[chunk(sign)] * 4, LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM))
        steps.step()
        await until(lambda: rig.reply.body == WORD)
        for count in range(1, 5):
            rig.clock.advance(LIMITS.idle / 2)
            steps.step()
            await until(lambda count=count: rig.reply.body == WORD + sign * count)  # type: ignore[misc]
        steps.step()
        assert (await calling).kind is OutcomeKind.OK


@pytest.mark.parametrize("coding", [b"deflate", b"gzip"])
async def test_a_coded_stream_that_cannot_be_unpacked_lives_by_its_pieces(coding: bytes) -> None:
    head = EVENTS_HEAD[:-2] + b"content-encoding: " + coding + b"\r\n\r\n"
    steps = Stepwise(head + chunk(b"\xffjunk"), *[chunk(b"more")] * 4, LAST_CHUNK)
    async with rigged(steps) as rig:
        calling = rig.start(rig.exchange(STREAM))
        steps.step()
        await until(lambda: rig.reply.body == b"\xffjunk")
        for count in range(1, 5):
            rig.clock.advance(LIMITS.idle / 2)
            await settle()
            steps.step()
            await until(lambda count=count: calling.done() or rig.reply.body == b"\xffjunk" + b"more" * count)  # type: ignore[misc]
        steps.step()
        assert (await calling).kind is OutcomeKind.OK


@pytest.mark.parametrize(("last", "whole"), [(b"", False), (DONE, True)])
async def test_who_leaves_is_charged_for_what_came_and_may_have_had_it_all(last: bytes, whole: bool) -> None:
    steps = Stepwise(EVENTS_HEAD + chunk(WORD + USAGE + last))
    async with rigged(steps) as rig:
        exchange = rig.exchange(STREAM)
        calling = rig.start(exchange)
        steps.step()
        await until(lambda: rig.reply.body == WORD + USAGE + last)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert exchange.attempt is not None
        assert exchange.attempt.usage == exchange.facts.usage == Usage(3, 2, 0)
        assert exchange.answered is whole
