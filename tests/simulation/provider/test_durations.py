from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider.durations import format_duration, go_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2),
        ("0", 0),
        ("0.5", 0.5),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("1m30s", 90),
        ("6m0s", 360),
        ("1h", 3600),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1s", "1 s", "s", "1d", "1s2", "1e3", "inf", "٣s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(0, 10**9).map(lambda millis: millis / 1000))
def test_a_written_duration_is_read_back_exactly(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12ms"), (1, "1s"), (1.5, "1.5s"), (360, "6m0s"), (90.5, "1m30.5s"), (3600, "1h0m0s")],
)
def test_reset_headers_use_the_go_form(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
