"""How a right input becomes a nearly right one, and how it is cut into reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import strategies as st

FAR = 1 << 14


class Edit(NamedTuple):
    """One change: `length` bytes at `at` (both taken modulo what is there) become `piece`, so many times."""

    at: int
    length: int
    piece: bytes
    times: int


def applied(data: bytes, edits: Sequence[Edit]) -> bytes:
    """Returns the data with these changes, one after the other."""
    for at, length, piece, times in edits:
        start = at % (len(data) + 1)
        data = data[:start] + piece * times + data[start + length :]
    return data


def mutated(
    corpus: Sequence[bytes], tokens: Sequence[bytes], *, alphabet: str | None = None
) -> st.SearchStrategy[bytes]:
    """Draws one of the corpus with a few changes; `tokens` are what the target's grammar is made of.

    `alphabet`: the characters of pieces that are drawn freely; any bytes without it.
    """
    free = st.binary(max_size=6) if alphabet is None else st.text(alphabet, max_size=6).map(str.encode)
    pieces = st.one_of(st.sampled_from(tokens), st.sampled_from(tokens), free, st.sampled_from(corpus))
    lengths = st.sampled_from([0, 0, 1, 2, 5, 20, 200])
    edits = st.builds(Edit, st.integers(0, FAR), lengths, pieces, st.sampled_from([1, 1, 1, 2, 9]))
    return st.builds(applied, st.sampled_from(corpus), st.lists(edits, max_size=5))


CUTS = st.lists(st.integers(0, FAR), max_size=12)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Returns the data in pieces, cut at these places (modulo its length)."""
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(ends)]


def single(data: bytes) -> list[bytes]:
    """Returns the data byte for byte."""
    return [data[at : at + 1] for at in range(len(data))]
