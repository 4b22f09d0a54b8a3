"""Single values of a fault script: each reader takes the text and raises ValueError saying what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from proxy.simulation.provider.faults import RetryForm

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def optional(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """Types a reader for a value that may be absent."""
    return read


def name(text: str) -> str | None:
    """Reads any text."""
    return text


def status(text: str) -> int:
    """Reads a final HTTP status."""
    if not text.isascii() or not text.isdigit() or not 200 <= int(text) <= 599:
        raise ValueError(f"{text!r} is not a status between 200 and 599")
    return int(text)


def count(least: int) -> Callable[[str], int]:
    """Returns a reader of whole numbers not below `least`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"{text!r} is not a whole number from {least}")
        return int(text)

    return read


def ratio(text: str) -> float:
    """Reads `0.1` or `10%`."""
    try:
        number = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError(f"{text!r} does not lie between 0 and 1 (or 0% and 100%)")
    return number


def one_of(choices: type[E]) -> Callable[[str], E]:
    """Returns a reader of the members of an enum."""

    def read(text: str) -> E:
        if text not in set(choices):
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return choices(text)

    return read


def forms(text: str) -> tuple[RetryForm, ...]:
    """Reads one or more forms joined by `+`."""
    return tuple(one_of(RetryForm)(part.strip()) for part in text.split("+"))
