"""The grammar of event streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.sse import LARGEST_EVENT, LINE_COST, Event, EventSplitter, plain_events
from tests.dialects.event_streams import CUTS, STREAMS, cut, read_as_a_browser


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
    assert not splitter._data
    assert splitter.feed(b"\ndata: next\n\n") == [(b"", None), (b"", b"next")]


def test_an_endless_line_is_not_kept() -> None:
    splitter = EventSplitter()
    splitter.feed(b": ")
    for _ in range(40):
        assert splitter.feed(b"x" * 65536) == []
    assert len(splitter._pending) <= LARGEST_EVENT + LINE_COST
    assert splitter.feed(b"\ndata: next\n\n") == [(b"", b"next")]


@pytest.mark.parametrize("line", [b"data\n", b"data:\r", b"data: x\r\n"])
def test_an_event_of_endless_small_lines_is_not_kept(line: bytes) -> None:
    splitter = EventSplitter()
    for _ in range(20):
        assert splitter.feed(line * 4096) == []
        assert len(splitter._data) <= LARGEST_EVENT / LINE_COST
    assert splitter.feed(b"\n\ndata: next\n\n") == [(b"", None), (b"", b"next")]


@pytest.mark.parametrize("size", [LARGEST_EVENT - LINE_COST, LARGEST_EVENT - LINE_COST + 1, LARGEST_EVENT + 3])
@pytest.mark.parametrize("start", [b"data:", b"\xef\xbb\xbfdata: "])
@pytest.mark.parametrize("piece", [1 << 16, 700_000, 1 << 20])
def test_whether_an_event_is_too_large_does_not_depend_on_its_cuts(size: int, start: bytes, piece: int) -> None:
    stream = start + b"y" * size + b"\n\ndata: next\n\n"
    kept = b"y" * size if size + LINE_COST <= LARGEST_EVENT else None
    pieces = [stream[at : at + piece] for at in range(0, len(stream), piece)]
    assert split(*pieces) == split(stream) == [(b"", kept), (b"", b"next")]
    cut_off = stream[: len(start) + size]
    assert split(*(cut_off[at : at + piece] for at in range(0, len(cut_off), piece))) == [(b"", kept)]


def as_text(events: list[Event]) -> list[tuple[str, str]]:
    return [(name.decode("utf-8", "replace"), (data or b"").decode("utf-8", "replace")) for name, data in events]


@given(STREAMS, CUTS)
def test_events_and_comments_are_those_of_a_browser(stream: bytes, cuts: list[int]) -> None:
    reading = read_as_a_browser(stream, to_the_end=True)
    splitter = EventSplitter()
    events = [event for piece in cut(stream, cuts) for event in splitter.feed(piece)]
    whole = read_as_a_browser(stream, to_the_end=False)
    assert (as_text(events), splitter.comments) == ([event[:2] for event in whole.events], whole.comments)
    events += splitter.finish()
    assert (as_text(events), splitter.comments) == ([event[:2] for event in reading.events], reading.comments)


@given(STREAMS, CUTS)
def test_an_event_that_follows_between_events_is_read_as_it_is(stream: bytes, cuts: list[int]) -> None:
    """What the bytes before it have begun must not become part of it, whatever they are."""
    pieces = cut(stream, cuts)
    splitter = EventSplitter()
    for count, piece in enumerate(pieces, 1):
        splitter.feed(piece)
        if splitter.between_events:
            before = b"".join(pieces[:count])
            read = read_as_a_browser(before + b"data: ours\n\n", to_the_end=False).events
            assert [event[:2] for event in read] == [
                *(event[:2] for event in read_as_a_browser(before, to_the_end=False).events),
                ("", "ours"),
            ]


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
