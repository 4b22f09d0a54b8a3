"""MergedAnswer: gathered within bounds, and every byte given back."""

from __future__ import annotations

from proxy.decisions.answers import Answers
from proxy.stages.merged_answer import MOST_BYTES, MergedAnswer


async def test_it_gathers_what_is_written() -> None:
    ledger = Answers()
    answer = MergedAnswer(ledger)
    answer.start(200, b"OK", b"a: b\r\n", length=4)
    answer.write(b"ab")
    assert not answer.whole
    answer.write(b"cd")
    await answer.drain()
    answer.finish()
    assert (answer.whole, answer.body, answer.status, answer.lines) == (True, b"abcd", 200, b"a: b\r\n")
    assert ledger.held == 4
    assert not answer.paused
    assert not answer.open_ended
    answer.settle()
    answer.settle()
    assert ledger.held == 0


def test_one_that_came_at_once_is_whole() -> None:
    answer = MergedAnswer(Answers())
    answer.start(200, b"OK", b"", length=2, body=b"{}")
    assert answer.whole
    assert answer.body == b"{}"


def test_one_that_was_cut_is_not() -> None:
    answer = MergedAnswer(Answers())
    answer.start(200, b"OK", b"", length=2)
    answer.write(b"{")
    answer.abort()
    answer.finish()
    assert not answer.whole


def test_one_that_is_too_large_is_let_go() -> None:
    ledger = Answers(most_bytes=1 << 40)
    answer = MergedAnswer(ledger)
    answer.start(200, b"OK", b"", length=None)
    piece = b"x" * (MOST_BYTES // 2)
    for _ in range(3):
        answer.write(piece)
    answer.finish()
    assert answer.lost
    assert not answer.whole
    assert not answer.body
    answer.settle()
    assert ledger.held == 0


def test_one_that_has_no_room_is_let_go() -> None:
    ledger = Answers(most_bytes=10)
    answer = MergedAnswer(ledger)
    assert answer.reserve(8)
    assert not answer.reserve(8)
    answer.start(200, b"OK", b"", length=4, body=b"abcd")
    assert answer.lost
    answer.settle()
    assert ledger.held == 0
