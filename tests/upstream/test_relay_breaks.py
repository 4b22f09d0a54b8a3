"""Breaks in the middle: what of ours can follow them, and what was told until then."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from proxy.exchange import Usage
from proxy.outcome import OutcomeKind
from tests.fakes import Ask
from tests.upstream.peer import until
from tests.upstream.rig import EVENTS_HEAD, JSON_HEAD, OVERLOADED, STREAM, USAGE, WORD, begins, rigged

HALF = b'data: {"choices":[{"del'
RESPONSES = Ask(target="/v1/responses", stream=True)
DELTA = b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n'


@pytest.mark.parametrize("cut", [HALF, b'data: {"choices":[]}\n', b"event: x\n", b"\xef\xbb"])
async def test_half_an_event_is_not_completed_by_ours(cut: bytes) -> None:
    async with rigged(begins(WORD, cut)) as rig:
        outcome, _ = await rig.call(STREAM)
        assert (outcome.kind, rig.reply.body, rig.reply.end) == (OutcomeKind.STREAM_BROKEN, WORD + cut, "aborted")


@pytest.mark.parametrize("before", [WORD, WORD + b": ping\n", WORD.replace(b"\n", b"\r\n"), WORD + b"id: 7\n"])
async def test_between_events_the_break_is_told(before: bytes) -> None:
    async with rigged(begins(before)) as rig:
        await rig.call(STREAM)
        assert rig.reply.body.startswith(before + b'data: {"error":')
        assert rig.reply.body.endswith(b"}\n\n")


@pytest.mark.parametrize(
    ("target", "last"),
    [
        ("/v1/chat/completions", b"data: [DONE]\n\n"),
        ("/v1/chat/completions", OVERLOADED),
        ("/v1/responses", b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n'),
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
    ],
    ids=["chat", "error", "responses", "messages"],
)
async def test_nothing_of_ours_follows_a_stream_s_own_end(target: str, last: bytes) -> None:
    """Its reader has all of it, or was told why not; the framing alone shows that it has no end."""
    async with rigged(begins(last)) as rig:
        outcome, _ = await rig.call(Ask(target=target, stream=True))
        assert (outcome.kind, rig.reply.body, rig.reply.end) == (OutcomeKind.STREAM_BROKEN, last, "aborted")


async def test_a_break_is_told_in_the_shape_of_its_operation() -> None:
    async with rigged(begins(DELTA)) as rig:
        await rig.call(RESPONSES)
        name, _, data = rig.reply.body.removeprefix(DELTA).partition(b"\ndata: ")
        assert (name, orjson.loads(data)["type"]) == (b"event: error", "error")


@pytest.mark.parametrize("target", ["/v1/unknown", "/v1/chat/completions"])
async def test_a_stream_that_is_none_of_ours_to_read_is_only_aborted(target: str) -> None:
    head = EVENTS_HEAD if target == "/v1/unknown" else JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n"
    async with rigged(begins(WORD, head=head)) as rig:
        await rig.call(Ask(target=target, stream=True))
        assert (rig.reply.body, rig.reply.end) == (WORD, "aborted")


async def test_what_came_before_a_break_is_counted_in_bytes() -> None:
    async with rigged(begins(WORD, WORD)) as rig:
        exchange = rig.exchange(STREAM)
        assert (await rig.start(exchange)).kind is OutcomeKind.STREAM_BROKEN
        assert exchange.attempt is not None
        assert exchange.attempt.answer_bytes == 2 * len(WORD)


async def test_what_was_told_before_a_break_counts() -> None:
    async with rigged(begins(WORD, USAGE)) as rig:
        exchange = rig.exchange(STREAM)
        assert (await rig.start(exchange)).kind is OutcomeKind.STREAM_BROKEN
        assert exchange.facts.usage == Usage(3, 2, 0)
        assert exchange.attempt is not None
        assert exchange.attempt.usage == Usage(3, 2, 0)


@pytest.mark.parametrize(("pieces", "takes"), [((WORD,), True), ((WORD, HALF), False), ((WORD, HALF, WORD[23:]), True)])
async def test_who_ends_an_exchange_learns_whether_an_event_can_follow(pieces: tuple[bytes, ...], takes: bool) -> None:
    async with rigged(begins(*pieces, breaks=False)) as rig:
        exchange = rig.exchange(STREAM)
        calling = rig.start(exchange)
        await until(lambda: rig.reply.body == b"".join(pieces))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert exchange.takes_event is takes


async def test_no_event_can_follow_an_answer_that_is_no_stream() -> None:
    async with rigged(
        begins(b'{"choices":[', head=JSON_HEAD + b"transfer-encoding: chunked\r\n\r\n", breaks=False)
    ) as rig:
        exchange = rig.exchange(STREAM)
        calling = rig.start(exchange)
        await until(lambda: bool(rig.reply.body))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert not exchange.takes_event


async def test_what_was_told_before_the_reader_stopped_to_read_counts() -> None:
    async with rigged(begins(WORD, USAGE, breaks=False)) as rig:
        exchange = rig.exchange(STREAM)
        rig.reply.paused = True
        calling = rig.start(exchange)
        await until(lambda: rig.reply.started)
        rig.reply.resume()
        await until(lambda: rig.reply.body == WORD)
        rig.reply.paused = True
        await until(lambda: rig.reply.body == WORD + USAGE)
        rig.reply.resume(gone=True)
        assert (await calling).kind is OutcomeKind.CLIENT_LEFT
        assert exchange.facts.usage == Usage(3, 2, 0)
