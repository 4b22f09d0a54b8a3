"""Usage that the proxy asked for itself: counted, and never seen by the caller."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from proxy.exchange import Exchange, Usage
from proxy.outcome import OutcomeKind
from tests.upstream.peer import answering, until
from tests.upstream.rig import DONE, EVENTS_HEAD, LAST_CHUNK, ROLE, STREAM, USAGE, WORD, Rig, begins, chunk, rigged

SEEN = ROLE + WORD + DONE
SENT = ROLE + WORD + USAGE + DONE
COUNTED = Usage(3, 2, 0)
LENGTH_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n" % len(SENT)


def stream(*pieces: bytes, head: bytes = EVENTS_HEAD) -> bytes:
    return head + b"".join(map(chunk, pieces)) + LAST_CHUNK


async def hiding(rig: Rig, **changes: Any) -> tuple[OutcomeKind, Usage | None]:
    """Makes a call that hides usage; returns how it ended, and what was counted."""
    exchange = rig.exchange(STREAM, hides_usage=True, **changes)
    outcome = await rig.transport(exchange)
    assert exchange.attempt is not None
    assert exchange.attempt.usage == exchange.facts.usage
    return outcome.kind, exchange.facts.usage


@pytest.mark.parametrize("replaceable", [False, True], ids=["at once", "held"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_the_caller_sees_every_byte_but_the_usage_chunk(size: int, replaceable: bool) -> None:
    pieces = [SENT[at : at + size] for at in range(0, len(SENT), size)]
    async with rigged(answering(stream(*pieces))) as rig:
        assert await hiding(rig, replaceable=replaceable) == (OutcomeKind.OK, COUNTED)
        assert (rig.reply.body, rig.reply.end) == (SEEN, "finished")


async def test_a_length_that_is_not_the_caller_s_is_not_promised() -> None:
    async with rigged(answering(LENGTH_HEAD + b"\r\n" + SENT)) as rig:
        assert await hiding(rig) == (OutcomeKind.OK, COUNTED)
        assert (rig.reply.body, rig.reply.length) == (SEEN, None)


async def test_a_caller_that_asked_itself_sees_it() -> None:
    async with rigged(answering(LENGTH_HEAD + b"\r\n" + SENT)) as rig:
        _, attempt = await rig.call(STREAM)
        assert (rig.reply.body, rig.reply.length, attempt.usage) == (SENT, len(SENT), COUNTED)


async def test_what_could_have_been_usage_is_given_at_the_end() -> None:
    last = b'data: {"choices":[],"usage":null}'
    async with rigged(answering(stream(SENT + last))) as rig:
        await hiding(rig)
        assert (rig.reply.body, rig.reply.end) == (SEEN + last, "finished")


async def test_packed_events_pass_as_they_came() -> None:
    packed = gzip.compress(SENT)
    head = EVENTS_HEAD[:-2] + b"content-encoding: gzip\r\n\r\n"
    async with rigged(answering(stream(packed, head=head))) as rig:
        assert await hiding(rig) == (OutcomeKind.OK, COUNTED)
        assert rig.reply.body == packed


async def test_packed_events_keep_their_length() -> None:
    packed = gzip.compress(SENT)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n"
    async with rigged(answering(head + b"content-length: %d\r\n\r\n" % len(packed) + packed)) as rig:
        await hiding(rig)
        assert (rig.reply.body, rig.reply.length) == (packed, len(packed))


async def test_events_that_are_said_to_be_unpacked_are_looked_through() -> None:
    head = EVENTS_HEAD[:-2] + b"content-encoding: Identity\r\n\r\n"
    async with rigged(answering(stream(SENT, head=head))) as rig:
        assert await hiding(rig) == (OutcomeKind.OK, COUNTED)
        assert rig.reply.body == SEEN


@pytest.mark.parametrize("media", [b"Text/Event-Stream", b"TEXT/EVENT-STREAM;charset=UTF-8"])
@pytest.mark.parametrize("whole", [True, False])
async def test_media_types_are_read_without_regard_to_case(media: bytes, whole: bool) -> None:
    """RFC 9110 §8.3.1."""
    if whole:
        answer = LENGTH_HEAD.replace(b"text/event-stream", media) + b"\r\n" + SENT
    else:
        answer = stream(SENT, head=EVENTS_HEAD.replace(b"text/event-stream", media))
    async with rigged(answering(answer)) as rig:
        assert await hiding(rig) == (OutcomeKind.OK, COUNTED)
        assert rig.reply.body == SEEN


@pytest.mark.parametrize("head", [b"HTTP/1.1 404 No\r\ncontent-type: text/event-stream\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_other_answers_pass_as_they_came(head: bytes) -> None:
    async with rigged(answering(head + b"content-length: %d\r\n\r\n" % len(SENT) + SENT)) as rig:
        await hiding(rig)
        assert (rig.reply.body, rig.reply.length) == (SENT, len(SENT))


async def test_an_error_before_the_content_is_kept_without_it() -> None:
    error = b'data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n'
    async with rigged(answering(stream(ROLE, USAGE, error))) as rig:
        outcome = await rig.transport(rig.exchange(STREAM, hides_usage=True, replaceable=True))
        assert outcome.answer is not None
        assert outcome.answer.body == ROLE + error


async def test_a_break_after_it_is_told_where_it_was() -> None:
    async with rigged(begins(WORD, USAGE, breaks=True)) as rig:
        assert await hiding(rig) == (OutcomeKind.STREAM_BROKEN, COUNTED)
        assert rig.reply.body.startswith(WORD + b'data: {"error":')


async def test_a_break_in_what_could_be_usage_gives_what_came() -> None:
    half = USAGE[:40]
    async with rigged(begins(WORD, half, breaks=True)) as rig:
        await hiding(rig)
        assert (rig.reply.body, rig.reply.end) == (WORD + half, "aborted")


async def ended_from_outside(rig: Rig, seen: bytes) -> Exchange:
    """Cancels a call once its caller has seen this much."""
    exchange = rig.exchange(STREAM, hides_usage=True)
    calling = rig.start(exchange)
    await until(lambda: rig.reply.body == seen)
    for _ in range(20):
        await asyncio.sleep(0.002)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    return exchange


@pytest.mark.parametrize(("held", "takes"), [(b"", True), (USAGE[:40], False)])
async def test_who_ends_the_exchange_finds_nothing_held(held: bytes, takes: bool) -> None:
    async with rigged(begins(WORD, USAGE, *[held] * bool(held), breaks=False)) as rig:
        exchange = await ended_from_outside(rig, WORD)
        assert (rig.reply.body, exchange.takes_event, exchange.facts.usage) == (WORD + held, takes, COUNTED)
