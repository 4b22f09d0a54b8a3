from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.decisions.retry import RetrySettings
from proxy.policy.schema.base import Section, absent, default_of, option, required, section
from proxy.policy.schema.types import Maybe, Text


class Inner(Section):
    """An inner section."""

    size: int = option(3, "size")


class Outer(Section):
    """A section."""

    name: Text = required("name")
    other: Maybe[Text] = absent("other")
    inner: Inner = section(Inner, "inner")


def test_fields_and_their_defaults() -> None:
    outer = Outer.model_validate({"name": "x"})
    assert (outer.name, outer.other, outer.inner.size) == ("x", None, 3)


@pytest.mark.parametrize(
    "value",
    [{}, {"name": "x", "more": 1}, {"name": "x", "other": None}, {"name": "x", "inner": {"size": "3"}}],
)
def test_sections_are_strict(value: object) -> None:
    with pytest.raises(ValidationError):
        Outer.model_validate(value)


def test_a_default_is_written_once() -> None:
    assert default_of(RetrySettings, "attempts") == RetrySettings().attempts
