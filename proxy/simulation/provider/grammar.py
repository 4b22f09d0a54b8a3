"""Fault scripts, read strictly: `status=503,from=10s,to=20s`, the same as JSON, and the request header.

One fault is a list of `key` or `key=value` parts. Exactly one part names the kind; the others belong to
that kind or select requests. `_` and `-` are the same in keys. FaultError names the part that is wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from proxy.simulation.provider.durations import parse_duration
from proxy.simulation.provider.faults import CutBy, Fault, FaultKind, Place, RetryForm, RetryHint, Selector
from proxy.simulation.provider.values import count, forms, name, one_of, optional, ratio, status

T = TypeVar("T")
HEADER = "x-sim-fault"

_OPTIONS: dict[FaultKind, frozenset[str]] = {
    FaultKind.STATUS: frozenset({"code", "retry-after", "form"}),
    FaultKind.CUT: frozenset({"by"}),
    FaultKind.ERROR_IN_200: frozenset({"code"}),
}
_SELECTORS = frozenset({"from", "to", "provider", "model", "key", "first", "every", "rate"})
_REFUSE_SELECTORS = frozenset({"from", "to", "provider"})
_KINDS = frozenset(kind.value for kind in FaultKind)
_KNOWN = sorted(_KINDS | _SELECTORS | frozenset().union(*_OPTIONS.values()))
_BARE = frozenset({FaultKind.RESET, FaultKind.SILENCE, FaultKind.REFUSE, FaultKind.LOST})


class FaultError(ValueError):
    """A fault script that cannot be understood; the message says which part, and the cure."""


def parse_fault(text: str) -> Fault:
    """Reads one fault, its parts separated by commas."""
    return _build(_split(text, ","), selectors=True)


def parse_header(text: str) -> Fault:
    """Reads the `x-sim-fault` header: parts separated by semicolons, no selectors, for this request alone."""
    return _build(_split(text, ";"), selectors=False)


def parse_json(value: object) -> tuple[Fault, ...]:
    """Reads a JSON list whose items are texts as on the command line, or objects with the same keys."""
    if not isinstance(value, list):
        raise FaultError("the faults must be a JSON list")
    faults = []
    for index, item in enumerate(value):
        try:
            faults.append(_json_item(item))
        except FaultError as error:
            raise FaultError(f"fault {index}: {error}") from None
    return tuple(faults)


def _json_item(item: Any) -> Fault:
    if isinstance(item, str):
        return parse_fault(item)
    if not isinstance(item, dict):
        raise FaultError("is neither a text nor an object")
    return _build({_canonical(key): _json_value(key, value) for key, value in item.items()}, selectors=True)


def _json_value(key: str, value: object) -> str | None:
    if value is True:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return format(value, "f") if isinstance(value, float) else str(value)
    raise FaultError(f"`{key}` must be a text, a number or true")


def _canonical(key: str) -> str:
    return key.strip().replace("_", "-")


def _split(text: str, separator: str) -> dict[str, str | None]:
    parts: dict[str, str | None] = {}
    for part in text.split(separator):
        left, equals, value = part.partition("=")
        key = _canonical(left)
        if not key:
            raise FaultError(f"an empty part in {text!r}")
        if key in parts:
            raise FaultError(f"`{key}` is given twice")
        parts[key] = value.strip() if equals else None
    return parts


def _build(parts: dict[str, str | None], *, selectors: bool) -> Fault:
    kind = _kind(parts)
    _check_keys(parts, kind, selectors=selectors)
    reader = _Reader(parts)
    retry = _retry(reader)
    fault = Fault(
        kind=kind,
        status=reader.get("status", status, 0) if kind is FaultKind.STATUS else 0,
        code=reader.get("code", name, None),
        retry=retry,
        delay_seconds=_delay(reader, kind),
        events=reader.get("cut", count(0), 0) if parts.get("cut") is not None else 0,
        by=reader.get("by", one_of(CutBy), CutBy.CLOSE),
        place=_place(reader, parts),
        select=_selector(reader),
    )
    if kind in _BARE and parts[kind] is not None:
        raise FaultError(f"`{kind}` takes no value")
    return fault


def _kind(parts: dict[str, str | None]) -> FaultKind:
    for key in parts:
        if key not in _KNOWN:
            close = difflib.get_close_matches(key, _KNOWN, n=1)
            hint = f" (did you mean `{close[0]}`?)" if close else f"; known are {', '.join(_KNOWN)}"
            raise FaultError(f"unknown key `{key}`{hint}")
    kinds = [key for key in parts if key in _KINDS]
    if len(kinds) != 1:
        found = f"{' and '.join(kinds)} are two faults: give each its own" if kinds else "no fault is named"
        raise FaultError(f"{found} (one of {', '.join(FaultKind)})")
    return FaultKind(kinds[0])


def _check_keys(parts: dict[str, str | None], kind: FaultKind, *, selectors: bool) -> None:
    if not selectors and kind is FaultKind.REFUSE:
        raise FaultError("`refuse` cannot be asked for by a request: it has arrived already")
    for key in parts:
        if key in _SELECTORS and not selectors:
            raise FaultError(f"`{key}` selects requests: it has no meaning in the {HEADER} header")
        if key in _SELECTORS and kind is FaultKind.REFUSE and key not in _REFUSE_SELECTORS:
            raise FaultError(f"`refuse` meets connections, not requests: `{key}` cannot select them")
        if key not in _SELECTORS and key not in _KINDS and key not in _OPTIONS.get(kind, ()):
            raise FaultError(f"`{key}` does not belong to `{kind}`")


class _Reader:
    """Takes values out of the parts and names the key in what is wrong with them."""

    __slots__ = ("_parts",)

    def __init__(self, parts: dict[str, str | None]) -> None:
        self._parts = parts

    def get(self, key: str, read: Callable[[str], T], default: T) -> T:
        if key not in self._parts:
            return default
        value = self._parts[key]
        if not value:
            raise FaultError(f"`{key}` needs a value")
        try:
            return read(value)
        except ValueError as error:
            raise FaultError(f"`{key}`: {error}") from None


def _delay(reader: _Reader, kind: FaultKind) -> float:
    return reader.get(kind, parse_duration, 0.0) if kind in (FaultKind.SLOW, FaultKind.DRIP) else 0.0


def _place(reader: _Reader, parts: dict[str, str | None]) -> Place:
    if parts.get("error-in-200") is None:
        return Place.BEFORE
    return reader.get("error-in-200", one_of(Place), Place.BEFORE)


def _retry(reader: _Reader) -> RetryHint | None:
    seconds: float | None = reader.get("retry-after", optional(parse_duration), None)
    written: tuple[RetryForm, ...] = reader.get("form", forms, ())
    if seconds is None:
        if written:
            raise FaultError("`form` says how `retry-after` is written: give both")
        return None
    default = RetryForm.SECONDS if seconds == int(seconds) else RetryForm.FRACTION
    return RetryHint(seconds=seconds, forms=written or (default,))


def _selector(reader: _Reader) -> Selector:
    begin = reader.get("from", parse_duration, 0.0)
    end = reader.get("to", optional(parse_duration), None)
    if end is not None and end <= begin:
        raise FaultError("`to` must be later than `from`")
    return Selector(
        from_seconds=begin,
        to_seconds=end,
        provider=reader.get("provider", name, None),
        model=reader.get("model", name, None),
        key=reader.get("key", name, None),
        first=reader.get("first", optional(count(1)), None),
        every=reader.get("every", optional(count(1)), None),
        rate=reader.get("rate", optional(ratio), None),
    )
