"""Apportioning: what one call has used, shared out among those whose inputs it carried.

Whole numbers by largest remainder: the parts add up to the whole, exactly. A total that is the sum of its fellows is
that in every part, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.exchange import Usage

_TOTAL: Final = "total_tokens"
_GIVEN: Final = frozenset({"prompt_tokens", "input_tokens"})
_MADE: Final = frozenset({"completion_tokens", "output_tokens"})


def shares(whole: int, weights: Sequence[int]) -> list[int]:
    """Returns a whole number in parts by weight; of equal remainders the first gets more. No weight: equal ones."""
    if not any(weights):
        weights = [1] * len(weights)
    total = sum(weights)
    parts = [whole * weight // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(whole * weights[i] % total), i))
    for i in by_remainder[: whole - sum(parts)]:
        parts[i] += 1
    return parts


def apportioned(usage: Any, *, given: Sequence[int], made: Sequence[int]) -> list[Any]:
    """Returns a usage object in parts: what was read by the weights `given`, what was written by those of `made`.

    Whatever in it is no number is the same in every part.
    """
    if type(usage) is not dict:
        return _numbers(usage, given)
    parts: list[dict[str, Any]] = [{} for _ in given]
    for name, value in usage.items():
        weights = made if _is_made(name) else given
        whole = apportioned(value, given=weights, made=weights) if type(value) is dict else _numbers(value, weights)
        for part, own in zip(parts, whole, strict=True):
            part[name] = own
    if _adds_up(usage):
        for part in parts:
            part[_TOTAL] = _sum(part)
    return parts


def shared_out(usage: Usage | None, *, given: Sequence[int], made: Sequence[int]) -> list[Usage | None]:
    """Returns what was measured in parts, by the same rule."""
    if usage is None:
        return [None] * len(given)
    inputs, cached = shares(usage.input, given), shares(usage.cached_input, given)
    outputs = shares(usage.output, made)
    return [
        Usage(*amounts, estimated=usage.estimated)
        for amounts in zip(inputs, outputs, map(min, cached, inputs), strict=True)
    ]


def _numbers(value: Any, weights: Sequence[int]) -> list[Any]:
    if type(value) is int and value >= 0:
        return list(shares(value, weights))
    if type(value) is float:
        total = sum(weights) or len(weights)
        return [value * (weight if any(weights) else 1) / total for weight in weights]
    return [value] * len(weights)


def _is_made(name: str) -> bool:
    return name.startswith(("completion_", "output_"))


def _adds_up(usage: dict[str, Any]) -> bool:
    parts = [name for name in usage if name in _GIVEN or name in _MADE]
    whole = all(type(usage[name]) is int and usage[name] >= 0 for name in (*parts, _TOTAL) if name in usage)
    return bool(parts) and whole and type(usage.get(_TOTAL)) is int and usage[_TOTAL] == _sum(usage)


def _sum(usage: dict[str, Any]) -> int:
    return sum(value for name, value in usage.items() if name in _GIVEN or name in _MADE)
