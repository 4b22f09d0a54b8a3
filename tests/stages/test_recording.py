"""Recording: whoever reads gets every byte, in order; what is too large paces its writer, and is joined no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.answers import Answers
from proxy.dialects.lookup import operation_of
from proxy.stages.recording import LARGEST_KEPT, MOST_BEHIND, PIECE_BYTES, Reader, Recording
from tests.fakes import make_exchange, settle

EVENTS = b"content-type: text/event-stream\r\n"
TOO_LARGE = b"x" * (LARGEST_KEPT + 1)


def a_recording(ledger: Answers | None = None) -> Recording:
    recording = Recording(ledger or Answers(), operation_of("/v1/chat/completions"))
    recording.start(200, b"OK", b"x-up: 1\r\n", length=None)
    return recording


def rest(reader: Reader) -> bytes:
    found = b""
    while (piece := reader.next()) is not None:
        found += piece
    return found


pieces = st.lists(st.binary(max_size=5), max_size=8)


@given(pieces, pieces, st.integers(min_value=0, max_value=8))
def test_every_reader_gets_every_byte_whenever_it_comes(before: list[bytes], after: list[bytes], taken: int) -> None:
    recording = a_recording()
    early = recording.enter(make_exchange())
    for piece in before:
        recording.write(piece)
    had = b"".join(early.next() or b"" for _ in range(taken))
    late = recording.enter(make_exchange())
    for piece in after:
        recording.write(piece)
    recording.finish()
    assert had + rest(early) == rest(late) == recording.body == b"".join([*before, *after])
    assert early.behind == late.behind == 0
    assert recording.whole


def test_an_answer_in_one_piece_is_whole_at_once() -> None:
    recording = Recording(Answers())
    recording.start(200, b"OK", b"", length=2, body=b"hi")
    assert (recording.whole, recording.body, recording.open_ended) == (True, b"hi", False)


def test_what_is_recorded_is_counted_until_it_has_ended() -> None:
    ledger = Answers()
    recording = a_recording(ledger)
    recording.write(b"12345")
    assert ledger.held == 5 + PIECE_BYTES
    recording.finish()
    recording.settle()
    recording.settle()
    assert ledger.held == 0
    assert recording.whole


@pytest.mark.parametrize("room", [LARGEST_KEPT * 2, 1000])
def test_one_that_is_too_large_is_kept_only_for_those_who_read_it(room: int) -> None:
    ledger = Answers(most_bytes=room)
    recording = a_recording(ledger)
    reader = recording.enter(make_exchange())
    recording.write(b"begin")
    recording.write(TOO_LARGE)
    assert (recording.kept, recording.whole, ledger.held) == (False, False, 0)
    assert rest(reader) == b"begin" + TOO_LARGE
    assert recording.body == b""
    recording.write(b"more")
    recording.finish()
    assert rest(reader) == b"more"
    assert not recording.whole


async def test_the_slowest_reader_of_a_large_one_paces_its_writer() -> None:
    recording = a_recording()
    slow, fast = recording.enter(make_exchange()), recording.enter(make_exchange())
    recording.write(b"x" * LARGEST_KEPT)
    assert recording.paused, "it is too large by now, with what a piece takes"
    rest(fast)
    assert recording.paused
    writer = asyncio.ensure_future(recording.drain())
    await settle()
    assert not writer.done()
    rest(slow)
    await settle()
    assert writer.done()
    recording.write(b"x" * MOST_BEHIND)
    assert not recording.paused
    recording.write(b"x")
    assert recording.paused


async def test_a_slow_reader_that_goes_holds_nobody_up() -> None:
    recording = a_recording()
    slow, fast = recording.enter(make_exchange()), recording.enter(make_exchange())
    recording.write(TOO_LARGE)
    rest(fast)
    writer = asyncio.ensure_future(recording.drain())
    await settle()
    recording.leave(slow)
    await settle()
    assert writer.done()
    assert recording.body == b""


def test_a_small_one_never_waits_for_its_readers() -> None:
    recording = a_recording()
    recording.enter(make_exchange())
    recording.write(b"x" * (LARGEST_KEPT // 2))
    assert not recording.paused


async def test_readers_are_told_of_pieces_and_of_the_end() -> None:
    recording = a_recording()
    reader = recording.enter(make_exchange())
    happenings: tuple[Callable[[], None], ...] = (lambda: recording.write(b"x"), recording.finish, reader.wake)
    for happen in happenings:
        waiting = asyncio.ensure_future(reader.news())
        await settle()
        assert not waiting.done()
        happen()
        await settle()
        assert waiting.done()


def test_an_answer_ends_once() -> None:
    recording = a_recording()
    recording.abort()
    recording.finish()
    assert (recording.aborted, recording.finished) == (True, False)
    recording = a_recording()
    recording.finish()
    recording.abort()
    assert (recording.aborted, recording.finished) == (False, True)


@pytest.mark.parametrize(
    ("lines", "read"),
    [
        (EVENTS, True),
        (b"Content-Type: text/event-stream; charset=utf-8\r\n", True),
        (b"Content-Type: Text/Event-Stream\r\n", True),
        (EVENTS + b"content-encoding: gzip\r\n", False),
        (b"content-type: application/json\r\n", False),
        (b"", False),
    ],
)
def test_a_plain_stream_of_a_known_dialect_is_followed(lines: bytes, read: bool) -> None:
    recording = Recording(Answers(), operation_of("/v1/chat/completions"))
    recording.start(200, b"OK", lines, length=None)
    assert (recording.scanner is not None) is read
    recording.write(b"data: {}\n\n")
    assert recording.scanner is None or recording.scanner.between_events
    recording.write(b"data: [DONE]\n\n")
    # Nothing of ours follows the stream's own end.
    assert recording.scanner is None or (recording.scanner.done, recording.scanner.between_events) == (True, False)
