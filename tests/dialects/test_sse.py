"""The grammar of event streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.sse import LARGEST_EVENT, Event, EventSplitter, plain_events


def split(*pieces: bytes) -> list[Event]:
    splitter = EventSplitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.finish()


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data:a\r\n\r\n", [(b"", b"a")]),
        (b"data: a\r\rdata:  b\r\r", [(b"", b"a"), (b"", b" b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\ndata: b\ndata\n\n", [(b"", b"a\nb\n")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [(b"x", b"a"), (b"", b"b")]),
        (b"event: x\n\ndata: b\n\n", [(b"", b"b")]),
        (b": c\nid: 1\nretry: 5\ndata: a:b\nunknown\n\n", [(b"", b"a:b")]),
        (b"data\n\n", [(b"", b"")]),
        (b"\n\n\n", []),
        (b"data: last", [(b"", b"last")]),
        (b"data: last\n", [(b"", b"last")]),
        (b"event: only", []),
        (b"Data: a\n\n", []),
        (b"", []),
    ],
)
def test_grammar(data: bytes, events: list[Event]) -> None:
    assert split(data) == events
    assert split(*(data[at : at + 1] for at in range(len(data)))) == events


def test_comments_are_counted() -> None:
    splitter = EventSplitter()
    splitter.feed(b": one\n\n:\r\ndata: x\r\n: thr")
    assert splitter.comments == 2
    splitter.feed(b"ee\n")
    assert splitter.comments == 3


def test_an_endless_event_is_not_kept() -> None:
    splitter = EventSplitter()
    line = b"data: " + b"x" * 65536 + b"\n"
    for _ in range(40):
        assert splitter.feed(line) == []
    assert len(b"".join(splitter._data)) <= LARGEST_EVENT
    assert splitter.feed(b"\ndata: next\n\n") == [(b"", None), (b"", b"next")]


def test_an_endless_line_is_not_kept() -> None:
    splitter = EventSplitter()
    splitter.feed(b": ")
    for _ in range(40):
        assert splitter.feed(b"x" * 65536) == []
    assert len(splitter._pending) <= LARGEST_EVENT + 1
    assert splitter.feed(b"\ndata: next\n\n") == [(b"", b"next")]


@pytest.mark.parametrize(
    ("piece", "count"),
    [
        (b"data: {}\n\n", 1),
        (b"data: {}\n\ndata: {}\n\n", 2),
        (b"event: x\ndata: {}\n\n", 1),
        (b"data: {}\n\n: c\n\n", 0),
        (b": c\n\ndata: {}\ndata: {}\n\n", 0),
        (b"data: {}\ndata: {}\n\n", 0),
        (b"data: {}\n\n\n\n", 0),
        (b"data: {}\r\n\r\n", 0),
        (b"data: {}\rdata: {}\n\n", 0),
        (b"data: {}\n", 0),
        (b"data: {}\nx", 0),
        (b"data: {}\n\ndata: [DONE]\n\n", 0),
        (b"data: [DONE]\n\n", 0),
        (b"event: x\nid: 1\n\n", 0),
        (b"event: x\ndata: {}\n\ndata: {}\n\n", 0),
        (b"", 0),
    ],
)
def test_plain_pieces(piece: bytes, count: int) -> None:
    assert plain_events(piece) == count


FRAGMENTS = st.sampled_from([b"data: {}", b"data: {}\n\n", b"data:", b"event: x", b": c", b"\n", b"\n\n", b"\r", b"x"])


@given(st.lists(FRAGMENTS, max_size=10).map(b"".join))
def test_plain_pieces_are_what_the_splitter_says(piece: bytes) -> None:
    count = plain_events(piece)
    if count:
        splitter = EventSplitter()
        assert len(splitter.feed(piece)) == count
        assert splitter.between_events
