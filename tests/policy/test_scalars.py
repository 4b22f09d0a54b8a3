from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.scalars import looks_like_number, resolve


@pytest.mark.parametrize(
    "word", ["off", "on", "yes", "no", "y", "2024-06-01", "010", "08", "1:30", "1_000", "1.2.3", "0b1", "+-1"]
)
def test_words_of_other_yaml_versions_stay_words(word: str) -> None:
    assert resolve(word) == word


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1e1", 10.0),
        ("10", 10),
        ("-3", -3),
        ("0", 0),
        ("0x10", 16),
        ("0o17", 15),
        (".5", 0.5),
    ],
)
def test_numbers(text: str, value: float) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


def test_nulls_and_booleans() -> None:
    assert [resolve(text) for text in ("", "~", "null")] == [None] * 3
    assert resolve("true") is True
    assert resolve("False") is False


def test_infinite_numbers_are_numbers_that_types_refuse() -> None:
    assert resolve("-.inf") == -math.inf
    assert math.isnan(float(str(resolve(".nan"))))
    assert resolve("9" * 5000) == math.inf


@pytest.mark.parametrize("text", ["010", "1:30", "1_000", "08"])
def test_what_looks_like_a_number(text: str) -> None:
    assert looks_like_number(text)


@pytest.mark.parametrize("text", ["10", "off", "10s", "", "1e3"])
def test_what_does_not_look_like_a_number(text: str) -> None:
    assert not looks_like_number(text)


@given(st.integers(min_value=-(10**60), max_value=10**60))
def test_integers_are_exact(number: int) -> None:
    assert resolve(str(number)) == number


@given(st.text())
def test_any_text_has_a_value(text: str) -> None:
    value = resolve(text)
    assert value is None or isinstance(value, str | int | float)
    assert not isinstance(value, str) or value == text
