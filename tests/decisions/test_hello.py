"""The name in a TLS client's first bytes: of real hellos, in any pieces and records; garbage has none."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.hello import LARGEST_HELLO, MORE, NAMELESS, Hello, read_hello


def hello(name: str | None) -> bytes:
    """What this Python's TLS says first."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


def in_records(data: bytes, size: int) -> bytes:
    """The same hello, over records of so many bytes."""
    message = data[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)


REAL = hello("Api.Alpha.Example")


def test_a_name_is_read() -> None:
    assert read_hello(REAL) == Hello(name="api.alpha.example")


def test_no_name_is_asked_for() -> None:
    assert read_hello(hello(None)) == NAMELESS


def test_every_piece_but_the_whole_asks_for_more() -> None:
    assert all(read_hello(REAL[:size]) == MORE for size in range(len(REAL)))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_hello_over_several_records(size: int) -> None:
    data = in_records(REAL, size)
    assert read_hello(data) == Hello(name="api.alpha.example")
    assert all(read_hello(data[:most]) == MORE for most in range(0, len(data), 13))


def test_what_follows_makes_no_difference() -> None:
    assert read_hello(REAL + b"\x17\x03\x03\x00\x01x") == Hello(name="api.alpha.example")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0", b"\x15\x03\x01\x00\x02\x01\x00", b"\x16\x02"])
def test_what_is_no_hello_has_no_name(data: bytes) -> None:
    assert read_hello(data) == NAMELESS


def test_nobody_waits_for_ever() -> None:
    endless = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(LARGEST_HELLO)
    assert read_hello(endless[:1000]) == MORE
    assert read_hello(endless) == NAMELESS


@given(st.binary(max_size=600))
def test_any_bytes_are_read(data: bytes) -> None:
    read_hello(b"\x16\x03\x01" + data)
    read_hello(in_records(b"\x16\x03\x01\x00\x00\x01" + len(data).to_bytes(3, "big") + data, 50))


@given(st.integers(0, len(REAL) - 1), st.integers(0, 255))
def test_one_wrong_byte_breaks_nothing(at: int, byte: int) -> None:
    read_hello(REAL[:at] + bytes([byte]) + REAL[at + 1 :])
