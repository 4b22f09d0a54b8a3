"""A second reading of event streams, after the text of the standard (WHATWG HTML §9.2.6), and streams to read.

It takes a whole stream, character by character where the standard does, and shares nothing with the product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import strategies as st

LINE_END = re.compile(r"\r\n|\n|\r")


@dataclass(slots=True, kw_only=True)
class Reading:
    """What a browser makes of a stream: its events (name, data, last id), comments, and the time to reconnect."""

    events: list[tuple[str, str, str]] = field(default_factory=list)
    comments: int = 0
    retry: int | None = None


def read_as_a_browser(stream: bytes, *, to_the_end: bool) -> Reading:
    """Reads a whole stream; `to_the_end` dispatches also the event that its end leaves without a blank line."""
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, rest = LINE_END.split(text)
    if to_the_end:
        lines += [rest, ""]
    reading = Reading()
    data = name = last_id = ""
    for line in lines:
        if line == "":
            if data:
                reading.events.append((name, data.removesuffix("\n"), last_id))
            data = name = ""
            continue
        if line[0] == ":":
            reading.comments += 1
            continue
        key, colon, value = line.partition(":")
        value = value[1:] if colon and value[:1] == " " else value
        if key == "event":
            name = value
        elif key == "data":
            data += value + "\n"
        elif key == "id" and "\0" not in value:
            last_id = value
        elif key == "retry" and value.isascii() and value.isdigit():
            reading.retry = int(value)
    return reading


NAMES = st.sampled_from(["data", "data", "data", "event", "id", "retry", "Data", "datum", "dat a", " data", "дата", ""])
COLONS = st.sampled_from([":", ": ", ":  ", ":\t", "", " :", "::"])
VALUES = st.sampled_from(
    [
        "",
        " ",
        "[DONE]",
        "error",
        "12",
        "x\0y",
        "\ufeff",
        '{"choices":[{"delta":{"content":"Ünï 日本 👩‍👧"}}]}',
        "a:b: c",
        "\u2028\u2029\x0b\x0c\x1c\x85",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
FIELDS = st.builds("".join, st.tuples(NAMES, COLONS, VALUES))
LINES = st.one_of(FIELDS, FIELDS, st.just(""), st.just(""), st.text("data:\ufeff{} \0", max_size=9))
"""Lines of every kind; many events end."""

STREAMS = st.builds(
    lambda bom, lines, rest, spoil: spoiled(bom + "".join(line + end for line, end in lines) + rest, spoil),
    st.sampled_from(["", "", "\ufeff", "\ufeff\ufeff"]),
    st.lists(st.tuples(LINES, ENDS), max_size=25),
    st.one_of(st.just(""), FIELDS),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from([b"\xff", b"\xe6\x97", b"\x80"])), max_size=2),
)
"""Whole streams; some with bytes that are no UTF-8."""


def spoiled(text: str, spots: list[tuple[int, bytes]]) -> bytes:
    """Returns the text's bytes with others put into it, never into a line end or the beginning."""
    data = text.encode()
    for at, junk in spots:
        if 3 < at < len(data) and data[at - 1 : at + 1] != b"\r\n":
            data = data[:at] + junk + data[at:]
    return data


CUTS = st.lists(st.integers(0, 600), max_size=15)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Returns the stream in pieces; some may be empty."""
    places = [0, *sorted(min(at, len(stream)) for at in cuts), len(stream)]
    return [stream[begin:end] for begin, end in pairwise(places)]
