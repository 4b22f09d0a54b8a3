"""What servers say of how long they keep a connection."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.promises import EPOCH_SECONDS, Promises, seconds_in


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (b"timeout=5", 5.0),
        (b"timeout=5, max=100", 5.0),
        (b"max=100,timeout=72", 72.0),
        (b' Timeout = "15" ', 15.0),
        (b"timeout=0", 0.0),
        (b"max=100", None),
        (b"", None),
        (b"timeout", None),
        (b"timeout=", None),
        (b"timeout=-5", None),
        (b"timeout=5s", None),
        (b"timeout=1e3", None),
        (b"timeout=\xb2", None),
        (b"timeout=99999999999999999999", None),
        (b"xtimeout=5", None),
    ],
)
def test_the_seconds_of_a_promise_are_read_where_there_are_any(line: bytes, seconds: float | None) -> None:
    assert seconds_in(line) == seconds


@given(st.binary(max_size=60))
def test_no_field_raises_or_makes_a_time_below_zero(line: bytes) -> None:
    promises = Promises()
    promises.heard(line)
    assert promises.seconds >= 0
    promises.heard(b"timeout=" + line)
    assert promises.seconds >= 0


@pytest.mark.parametrize(("told", "kept"), [(5, 4.0), (60, 59.0), (2, 1.0), (1, 0.5), (0, 0.0)])
def test_a_connection_rests_for_less_than_its_server_says(told: int, kept: float) -> None:
    promises = Promises()
    assert promises.heard(b"timeout=%d" % told)
    assert promises.seconds == kept


def test_nothing_said_is_no_bound() -> None:
    promises = Promises()
    assert not promises.heard(b"max=5")
    assert promises.seconds == inf


def test_the_shortest_of_several_counts_in_whatever_order_they_come() -> None:
    promises = Promises()
    assert promises.heard(b"timeout=60")
    assert promises.heard(b"timeout=5")
    assert not promises.heard(b"timeout=60")
    assert promises.seconds == 4.0


def test_what_is_heard_no_more_is_forgotten_and_what_is_heard_again_stays() -> None:
    promises = Promises()
    promises.forget(1000.0)
    promises.heard(b"timeout=5")
    assert not promises.forget(1000.0 + EPOCH_SECONDS - 1.0)
    assert not promises.forget(1000.0 + EPOCH_SECONDS)
    assert promises.seconds == 4.0
    promises.heard(b"timeout=5")
    assert not promises.forget(1000.0 + 2 * EPOCH_SECONDS)
    assert promises.seconds == 4.0
    promises.heard(b"timeout=30")
    assert promises.forget(1000.0 + 3 * EPOCH_SECONDS)
    assert promises.seconds == 29.0
    assert promises.forget(1000.0 + 4 * EPOCH_SECONDS) is True
    assert promises.seconds == inf
