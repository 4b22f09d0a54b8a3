from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("5s", 5),
        ("10m", 600),
        ("1h", 3600),
        ("1m30s", 90),
        ("1.5s", 1.5),
        ("0s", 0),
        ("5ms", 0.005),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "fast", "5 s", "-5s", "5S", "30s1m", "1d", "1e3s", "\u0665s", "5s\n", "h", "1" * 99 + "s"],
)
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(("text", "count"), [("64KiB", 65536), ("1MiB", 1 << 20), ("2GiB", 2 << 30), ("17", 17)])
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "64KB", "1.5MiB", "-1", "MiB", "1 MiB", "1" * 99, "5\n"])
def test_what_is_no_size(text: str) -> None:
    assert parse_size(text) is None


@given(st.integers(min_value=0, max_value=10**8))
def test_a_duration_survives_writing_and_reading(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.integers(min_value=0, max_value=2**50))
def test_a_size_survives_writing_and_reading(count: int) -> None:
    assert parse_size(format_size(count)) == count
