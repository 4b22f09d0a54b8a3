"""Streams as providers send them: what a scanner sees is the same however they are cut and spelled."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects.lookup import operation_of
from proxy.dialects.stream import StreamScanner
from tests.dialects.recorded import RECORDED
from tests.dialects.streams import STREAMS, Recorded

ALL = (*RECORDED, *STREAMS)
recorded = pytest.mark.parametrize("stream", RECORDED, ids=lambda stream: stream.name)
SIGNS = ("content", "done", "error", "usage", "events", "malformed", "comments", "signs", "between_events")


def scanner_of(stream: Recorded) -> StreamScanner:
    operation = operation_of(stream.path)
    assert operation is not None
    return operation.dialect.scanner(operation)


def seen(scanner: StreamScanner) -> dict[str, Any]:
    return {name: getattr(scanner, name) for name in SIGNS}


def scanned(stream: Recorded, *pieces: bytes, ended: bool = True) -> dict[str, Any]:
    scanner = scanner_of(stream)
    for piece in pieces:
        scanner.feed(piece)
    if ended:
        scanner.finish()
    return seen(scanner)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, *(place % (len(data) + 1) for place in places), len(data)})
    return [data[start:end] for start, end in pairwise(ends)]


@recorded
def test_whole(stream: Recorded) -> None:
    found = scanned(stream, stream.data)
    wanted = ("content", "done", "error", "usage", "events", "malformed")
    assert {name: found[name] for name in wanted} == {name: getattr(stream, name) for name in wanted}


@recorded
def test_every_cut_in_two(stream: Recorded) -> None:
    whole = scanned(stream, stream.data)
    for at in range(len(stream.data) + 1):
        assert scanned(stream, stream.data[:at], stream.data[at:]) == whole, at


@pytest.mark.parametrize("stream", ALL, ids=lambda stream: stream.name)
def test_what_is_seen_so_far_depends_on_the_bytes_so_far(stream: Recorded) -> None:
    byte_by_byte = scanner_of(stream)
    for at in range(len(stream.data)):
        byte_by_byte.feed(stream.data[at : at + 1])
        assert seen(byte_by_byte) == scanned(stream, stream.data[: at + 1], ended=False), at


@given(st.sampled_from(ALL), st.lists(st.integers(0, 1 << 16), max_size=40))
@settings(max_examples=300)
def test_any_cut(stream: Recorded, places: list[int]) -> None:
    assert scanned(stream, *cut(stream.data, places)) == scanned(stream, stream.data)


def over_several_lines(data: bytes) -> bytes:
    """Spells every document over several data lines."""

    def spelled(found: re.Match[bytes]) -> bytes:
        lines = orjson.dumps(orjson.loads(found[1]), option=orjson.OPT_INDENT_2).split(b"\n")
        return b"\n".join(b"data:" + line for line in lines)

    return re.sub(rb"data: (\{.*\})", spelled, data)


SPELLINGS: dict[str, Callable[[bytes], bytes]] = {
    "LF": lambda data: data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "no space": lambda data: data.replace(b"data: ", b"data:"),
    "BOM": lambda data: b"\xef\xbb\xbf" + data,
    "several lines": over_several_lines,
    "ids": lambda data: data.replace(b"data: {", b"id: 7\nretry: 100\ndata: {"),
    "comments": lambda data: data.replace(b"data: {", b": still here\ndata: {"),
    "blank lines": lambda data: data.replace(b"\n\n", b"\n\n\n\n"),
    "no last blank line": lambda data: data.rstrip(b"\n"),
    "bytes after the end": lambda data: data + b": bye\n\nid",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@recorded
def test_every_spelling(stream: Recorded, spelling: str) -> None:
    data = SPELLINGS[spelling](stream.data.replace(b"\r\n", b"\n"))
    alike = ("content", "done", "error", "usage", "events", "malformed")
    found = scanned(stream, data)
    assert {name: found[name] for name in alike} == {name: getattr(stream, name) for name in alike}
    assert scanned(stream, *(data[at : at + 1] for at in range(len(data)))) == found
    for at in range(0, len(data), 7):
        assert scanned(stream, data[:at], data[at:]) == found, at


@recorded
def test_the_first_content_is_seen_with_the_event_that_brings_it(stream: Recorded) -> None:
    scanner = scanner_of(stream)
    for number, event in enumerate(re.findall(rb"(?s).*?(?:\n\n|\r\n\r\n)", stream.data)):
        scanner.feed(event)
        if scanner.content:
            assert scanner.events - 1 == stream.preamble, number
            return
    pytest.fail("no content")
