"""Passing on or holding back: what could still be replaced, what is committed, and breaks that can be seen."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest

from proxy.exchange import Usage
from proxy.outcome import OutcomeKind
from tests.fakes import CHAT, Ask
from tests.upstream.peer import PeerWire, Script, answering
from tests.upstream.rig import (
    DONE,
    EVENTS_HEAD,
    JSON_HEAD,
    LAST_CHUNK,
    OVERLOADED,
    ROLE,
    STREAM,
    USAGE,
    WORD,
    chunk,
    rigged,
    with_length,
)

GOOD = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}'
BAD = b'{"error":{"message":"busy","type":"overloaded_error"}}'
CHUNKED = JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n"
REPLACEABLE: dict[str, Any] = {"replaceable": True}
FINAL: dict[str, Any] = {"replaceable": False}


def dying(last: bytes, *, reset: bool = False) -> Script:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(last)
        await wire.seen()
        if reset:
            wire.reset()

    return script


@pytest.mark.parametrize("answer", [with_length(JSON_HEAD, GOOD), CHUNKED + chunk(GOOD) + LAST_CHUNK])
@pytest.mark.parametrize("changes", [REPLACEABLE, FINAL])
async def test_an_answer_that_has_come_whole_is_one_write_with_its_length(
    answer: bytes, changes: dict[str, Any]
) -> None:
    async with rigged(answering(answer)) as rig:
        outcome, attempt = await rig.call(**changes)
        assert (outcome.kind, outcome.status, outcome.committed) == (OutcomeKind.OK, 200, True)
        assert (rig.reply.pieces, rig.reply.length, rig.reply.end) == ([GOOD], len(GOOD), "finished")
        assert rig.reply.headers == [(b"content-type", b"application/json")]
        assert (attempt.usage, attempt.answer_bytes) == (Usage(3, 2, 0), len(GOOD))
        assert len(rig.progress.content) == 1


async def test_an_answer_that_dribbles_in_is_not_held_for_long() -> None:
    gate = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(CHUNKED + chunk(GOOD[:20]))
        await gate.wait()
        await wire.send(chunk(GOOD[20:]) + LAST_CHUNK)
        await wire.gone()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange(**REPLACEABLE))
        async with asyncio.timeout(10.0):
            while not rig.reply.body:
                await asyncio.sleep(0.001)
        assert rig.reply.body == GOOD[:20]
        gate.set()
        outcome = await calling
        assert (outcome.kind, outcome.committed, rig.reply.body) == (OutcomeKind.OK, True, GOOD)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("changes", [REPLACEABLE, FINAL])
async def test_an_error_inside_a_good_status_is_held_back_as_it_came(packed: bool, changes: dict[str, Any]) -> None:
    body = gzip.compress(BAD) if packed else BAD
    head = JSON_HEAD + b"content-encoding: gzip\r\n" * packed
    async with rigged(answering(with_length(head, body))) as rig:
        outcome, _ = await rig.call(**changes)
        assert (outcome.kind, outcome.status) == (OutcomeKind.ERROR_IN_ANSWER, 529)
        assert (outcome.committed, rig.reply.started, rig.pool.idle) == (False, False, 1)
        assert outcome.answer is not None
        assert (outcome.answer.status, outcome.answer.body) == (200, body)


async def test_a_rate_limit_inside_a_good_status_is_one() -> None:
    body = b'{"error":{"message":"slow down","code":429}}'
    async with rigged(answering(with_length(JSON_HEAD, body))) as rig:
        outcome, _ = await rig.call()
        assert (outcome.kind, outcome.status) == (OutcomeKind.RATE_LIMITED, 429)


async def test_a_stream_s_preamble_is_held_and_then_passed_on_byte_for_byte() -> None:
    body = [ROLE, b": PROCESSING\n\n", WORD, USAGE, DONE]
    async with rigged(answering(EVENTS_HEAD + b"".join(map(chunk, body)) + LAST_CHUNK)) as rig:
        outcome, attempt = await rig.call(STREAM, **REPLACEABLE)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.OK, True)
        assert (rig.reply.body, rig.reply.end) == (b"".join(body), "finished")
        assert attempt.usage == Usage(3, 2, 0)


@pytest.mark.parametrize("before", [b"", ROLE, ROLE + b": ping\n\n"])
async def test_an_error_event_before_the_content_can_be_replaced(before: bytes) -> None:
    answer = EVENTS_HEAD + (chunk(before) if before else b"") + chunk(OVERLOADED) + LAST_CHUNK
    async with rigged(answering(answer)) as rig:
        outcome, _ = await rig.call(STREAM, **REPLACEABLE)
        assert (outcome.kind, outcome.status, outcome.committed) == (OutcomeKind.ERROR_IN_ANSWER, 529, False)
        assert not rig.reply.started
        assert outcome.answer is not None
        assert (outcome.answer.body, outcome.answer.events) == (before + OVERLOADED, True)


@pytest.mark.parametrize(("before", "changes"), [(ROLE, FINAL), (WORD, REPLACEABLE), (WORD, FINAL)])
async def test_an_error_event_that_cannot_be_replaced_is_passed_on_and_is_a_failure(
    before: bytes, changes: dict[str, Any]
) -> None:
    async with rigged(answering(EVENTS_HEAD + chunk(before) + chunk(OVERLOADED) + LAST_CHUNK)) as rig:
        outcome, _ = await rig.call(STREAM, **changes)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.ERROR_IN_ANSWER, True)
        assert (rig.reply.body, rig.reply.end) == (before + OVERLOADED, "finished")


async def test_a_preamble_is_not_held_for_longer_than_two_seconds() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(EVENTS_HEAD + chunk(ROLE))
        await wire.gone()

    async with rigged(script) as rig:
        calling = rig.start(rig.exchange(STREAM, **REPLACEABLE))
        async with asyncio.timeout(10.0):
            while not rig.reply.body:
                await asyncio.sleep(0.01)
        assert (rig.reply.body, rig.reply.end) == (ROLE, "")
        calling.cancel()


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
async def test_a_stream_that_breaks_ends_with_an_error_event_and_an_abort(reset: bool) -> None:
    async with rigged(dying(EVENTS_HEAD + chunk(WORD), reset=reset)) as rig:
        outcome, _ = await rig.call(STREAM, **FINAL)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.STREAM_BROKEN, True)
        assert rig.reply.end == "aborted"
        assert rig.reply.body.startswith(WORD + b"data: ")
        assert b'"code":"upstream_unreachable"' in rig.reply.body
        assert b"[DONE]" not in rig.reply.body


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
async def test_a_stream_that_breaks_before_its_content_can_be_replaced(reset: bool) -> None:
    async with rigged(dying(EVENTS_HEAD + chunk(ROLE), reset=reset)) as rig:
        outcome, _ = await rig.call(STREAM, **REPLACEABLE)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.STREAM_BROKEN, False)
        assert not rig.reply.started


async def test_a_body_that_breaks_is_aborted_without_words_of_our_own() -> None:
    async with rigged(dying(JSON_HEAD + b"content-length: 1000\r\n\r\n" + GOOD)) as rig:
        outcome, _ = await rig.call(**FINAL)
        assert (outcome.kind, outcome.status, outcome.committed) == (OutcomeKind.STREAM_BROKEN, 200, True)
        assert (rig.reply.body, rig.reply.length, rig.reply.end) == (GOOD, 1000, "aborted")


async def test_a_reset_after_a_body_without_a_length_is_a_break() -> None:
    async with rigged(dying(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + WORD, reset=True)) as rig:
        outcome, _ = await rig.call(STREAM, **FINAL)
        assert (outcome.kind, rig.reply.end) == (OutcomeKind.STREAM_BROKEN, "aborted")


async def test_a_coded_stream_is_passed_on_as_it_came() -> None:
    packed = gzip.compress(ROLE + WORD + USAGE + DONE)
    head = EVENTS_HEAD[:-2] + b"content-encoding: gzip\r\n\r\n"
    async with rigged(answering(head + chunk(packed[:30]) + chunk(packed[30:]) + LAST_CHUNK)) as rig:
        outcome, attempt = await rig.call(STREAM, **REPLACEABLE)
        assert (outcome.kind, rig.reply.body, attempt.usage) == (OutcomeKind.OK, packed, Usage(3, 2, 0))


async def test_nothing_of_our_own_is_written_into_a_coded_stream_that_breaks() -> None:
    packed = gzip.compress(WORD)
    head = EVENTS_HEAD[:-2] + b"content-encoding: gzip\r\n\r\n"
    async with rigged(dying(head + chunk(packed))) as rig:
        await rig.call(STREAM, **FINAL)
        assert (rig.reply.body, rig.reply.end) == (packed, "aborted")


@pytest.mark.parametrize("status", [429, 401, 500, 503, 529])
async def test_a_failing_answer_is_held_back_whole(status: int) -> None:
    head = b"HTTP/1.1 %d Oh\r\ncontent-type: application/json\r\nretry-after: 7\r\nx-up: 1\r\n" % status
    async with rigged(answering(with_length(head, BAD))) as rig:
        outcome, attempt = await rig.call()
        assert (outcome.status, outcome.committed, outcome.retry_after) == (status, False, 7.0)
        assert outcome.answer is not None
        assert (outcome.answer.status, outcome.answer.phrase, outcome.answer.body) == (status, b"Oh", BAD)
        assert b"x-up: 1\r\n" in outcome.answer.lines
        assert (rig.reply.started, rig.pool.idle, attempt.status) == (False, 1, status)


async def test_a_failing_answer_that_is_too_large_to_keep_is_passed_on_or_kept_without_its_body() -> None:
    body = b"x" * 200_000
    answer = with_length(b"HTTP/1.1 500 Oh\r\ncontent-type: text/html\r\nx-up: 1\r\n", body)
    async with rigged(answering(answer)) as rig:
        outcome, _ = await rig.call(**FINAL)
        assert (outcome.kind, outcome.committed) == (OutcomeKind.UPSTREAM_ERROR, True)
        assert (rig.reply.status, rig.reply.body, rig.reply.end) == (500, body, "finished")
    async with rigged(answering(answer)) as rig:
        outcome, _ = await rig.call(**REPLACEABLE)
        assert (outcome.kind, outcome.committed, rig.reply.started) == (OutcomeKind.UPSTREAM_ERROR, False, False)
        assert outcome.answer is not None
        assert (outcome.answer.body, outcome.answer.lines) == (b"", b"x-up: 1\r\n")


@pytest.mark.parametrize(
    ("ask", "head", "length"),
    [
        (Ask(method="HEAD", body=b""), b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", 5000),
        (CHAT, b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", None),
        (CHAT, b"HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\n\r\n", 77),
    ],
)
async def test_an_answer_that_has_no_body_keeps_its_length(ask: Ask, head: bytes, length: int | None) -> None:
    async with rigged(answering(head)) as rig:
        outcome, _ = await rig.call(ask)
        assert (outcome.kind, rig.reply.length, rig.reply.body) == (OutcomeKind.OK, length, b"")
        assert (rig.reply.end, rig.pool.idle) == ("finished", 1)


async def test_a_caller_s_error_is_passed_on_at_once() -> None:
    body = b'{"error":{"message":"no such model"}}'
    async with rigged(answering(with_length(b"HTTP/1.1 404 Not Found\r\n", body))) as rig:
        outcome, _ = await rig.call(**REPLACEABLE)
        assert (outcome.kind, outcome.committed, rig.reply.body) == (OutcomeKind.CALLER_ERROR, True, body)


async def test_an_error_that_the_provider_wants_to_be_retried_is_held_back() -> None:
    head = b"HTTP/1.1 409 Conflict\r\nx-should-retry: true\r\n"
    async with rigged(answering(with_length(head, BAD))) as rig:
        outcome, _ = await rig.call()
        assert (outcome.kind, outcome.should_retry, outcome.committed) == (OutcomeKind.CALLER_ERROR, True, False)
        assert outcome.answer is not None
