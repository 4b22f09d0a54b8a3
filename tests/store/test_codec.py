"""An answer as bytes: exact, and whatever is not such an entry is nothing."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from proxy.exchange import Usage
from proxy.ports import StoredAnswer
from proxy.store.codec import FACTS, HEAD, OVERHEAD, decode, encode
from tests.store.contract import answer

COUNTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=())) | st.text()
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, estimated=st.booleans())
ANSWERS = st.builds(
    StoredAnswer,
    status=st.integers(100, 599),
    phrase=st.binary(max_size=20),
    lines=st.binary(max_size=200),
    body=st.binary(max_size=500),
    length=st.none() | st.integers(0, 2**60),
    provider=TEXTS,
    model=TEXTS,
    tier=st.integers(0, 100),
    usage=st.none() | USAGES,
)
SECONDS = st.floats(0, 1e9)


def sealed(name: bytes, payload: bytes) -> bytes:
    """Returns an entry with a good checksum, whatever is in it."""
    return HEAD.pack(b"spn1", zlib.crc32(payload, zlib.crc32(name))) + payload


@given(name=st.binary(max_size=40), kept=ANSWERS, seconds=SECONDS)
def test_an_answer_comes_back_as_it_was(name: bytes, kept: StoredAnswer, seconds: float) -> None:
    entry = encode(name, kept, seconds)
    assert entry is not None
    assert decode(name, entry) == (kept, seconds)


@given(entry=st.binary(max_size=300))
def test_any_bytes_are_nothing(entry: bytes) -> None:
    assert decode(b"name", entry) is None


@given(kept=ANSWERS, where=st.integers(0), bits=st.integers(1, 255))
def test_an_entry_with_a_changed_byte_is_nothing(kept: StoredAnswer, where: int, bits: int) -> None:
    entry = bytearray(encode(b"name", kept, 1.0) or b"")
    entry[where % len(entry)] ^= bits
    assert decode(b"name", bytes(entry)) is None


@given(kept=ANSWERS, cut=st.integers(0), more=st.binary(min_size=1, max_size=5))
def test_an_entry_of_another_size_is_nothing(kept: StoredAnswer, cut: int, more: bytes) -> None:
    entry = encode(b"name", kept, 1.0) or b""
    assert decode(b"name", entry[: cut % len(entry)]) is None
    assert decode(b"name", entry + more) is None


@given(payload=st.binary(min_size=FACTS.size, max_size=300))
def test_a_sealed_entry_is_an_answer_or_nothing(payload: bytes) -> None:
    read = decode(b"name", sealed(b"name", payload))
    assert read is None or isinstance(read[0], StoredAnswer)


def test_text_that_is_none_is_nothing() -> None:
    entry = encode(b"name", answer(b""), 1.0) or b""
    assert decode(b"name", sealed(b"name", entry[HEAD.size :])) is not None
    broken = entry[HEAD.size :].replace(b"alpha", b"\xff\xfe\xfd\xfc\xfb")
    assert decode(b"name", sealed(b"name", broken)) is None


def test_an_entry_of_another_name_is_nothing() -> None:
    entry = encode(b"one", answer(), 1.0) or b""
    assert decode(b"two", entry) is None


def test_an_entry_of_another_version_is_nothing() -> None:
    entry = encode(b"name", answer(), 1.0) or b""
    assert decode(b"name", b"spn2" + entry[4:]) is None


def test_numbers_beyond_the_format_are_not_kept() -> None:
    assert encode(b"name", answer(usage=Usage(2**63)), 1.0) is None


def test_an_entry_is_little_more_than_its_answer() -> None:
    entry = encode(b"name", answer(bytes(1000)), 1.0) or b""
    assert OVERHEAD + 1000 <= len(entry) < 1200
