from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from proxy.policy.schema import types
from proxy.policy.units import DURATION_PATTERN, SIZE_PATTERN, parse_duration, parse_size


def refused(kind: Any, value: object) -> str:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(value)
    (error,) = caught.value.errors()
    return error["msg"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (types.Count, [0, 5, 1e3]),
        (types.PositiveCount, [1, 2.0]),
        (types.Number, [0, 0.5, 10**15]),
        (types.Weight, [0.1, 3]),
        (types.Ratio, [0, 1, 0.5]),
        (types.Status, [200, 599]),
        (types.ProviderName, ["a", "alpha-2", "v1x"]),
        (types.Label, ["a", "A1.b_c-d"]),
        (types.Variable, ["_A1"]),
        (types.HeaderName, ["x-a", "X_Y"]),
        (types.Url, ["http://x", "https://[::1]:5/v1/", "http://[fe80::1%eth0]/", "http://API_2.x-y.example.:8/"]),
        (types.Text, ["é x"]),
        (types.Json, [None, {"a": [1, 1.5, "x", True]}, 2**64 - 1]),
    ],
)
def test_what_fits(kind: Any, values: list[object]) -> None:
    for value in values:
        assert TypeAdapter(kind).validate_python(value) == value


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (types.Count, [-1, 0.5, True, "5", None, float("nan"), 10**16]),
        (types.PositiveCount, [0]),
        (types.Number, [-0.1, float("inf"), float("nan"), False, "1", 10**400]),
        (types.Weight, [0, -1]),
        (types.Ratio, [-0.1, 1.1, "0.5"]),
        (types.Status, [199, 600, 200.5]),
        (types.ProviderName, ["", "v1", "sponson", "A", "a.b", "a\n", "a" * 64, 5]),
        (types.Label, ["", "-a", "a b", "a" * 64]),
        (types.Variable, ["1A", "A-B", "A=B"]),
        (types.HeaderName, ["", "a b", "a:", "é"]),
        (
            types.Url,
            [
                "x",
                "ftp://x",
                "http://",
                "http://x:99999",
                "http://x/?a",
                "http://u:p@x",
                "http://a b",
                "http://é",
                "http://{x.example",
                "http://x%41",
                "http://x..example",
                f"http://{'a' * 64}.example",
                "http://[::g]",
                "http://[::1%|]",
            ],
        ),
        (types.Text, ["", " ", "a\nb", "\x00", 5]),
        (types.HeaderText, ["é", " a", "a\tb", ""]),
        (types.Json, [float("inf"), {"a": [float("nan")]}, 2**64]),
        (types.Duration, ["5", 5, "-1s", "9000h", None]),
        (types.PositiveDuration, ["0s"]),
        (types.Size, ["5KB", -1, 1.5, True, "9999999999GiB", None]),
        (types.Version, [2, "1", True, None]),
    ],
)
def test_what_does_not_fit_says_what_would(kind: Any, values: list[object]) -> None:
    for value in values:
        assert refused(kind, value).startswith("expected "), value


def test_durations_and_sizes_are_numbers_that_print_as_written() -> None:
    duration = types.Duration.read("1m30s")
    size = types.Size.read("64KiB")
    assert (duration, str(duration), size, str(size)) == (90.0, "90s", 65536, "64KiB")


@pytest.mark.parametrize("text", ["5s", "1m30s", "", "5", "s", "1h1h", "1.5s", "30s1m", "250ms"])
def test_the_pattern_for_editors_is_the_rule(text: str) -> None:
    assert bool(re.search(DURATION_PATTERN, text)) is (parse_duration(text) is not None)
    assert bool(re.search(SIZE_PATTERN, text)) is (parse_size(text) is not None)
