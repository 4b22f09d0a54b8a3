"""Owns every spelling in which a provider's headers say how long to wait.

`retry-after-ms` and `retry-after` (RFC 9110 §10.2.3, decimals too); without them, the resets of limits that
are used up: `x-ratelimit-reset-*` (Go durations, seconds, unix time) and `anthropic-ratelimit-*-reset` (RFC
3339). OpenAI's reset is the time until a bucket is full, not until its next token: a last resort, only on
refusals. Junk is no answer: it never means zero, and never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

LONGEST_SECONDS: Final = 86400.0

_NUMBER: Final = re.compile(r"\d+(?:\.\d*)?", re.ASCII)
_PART: Final = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h|d)", re.ASCII)
_UNIT_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_EARLIEST_UNIX_SECONDS: Final = 1e9
_EARLIEST_UNIX_MILLISECONDS: Final = 1e12
_LONGEST_TEXT: Final = 64

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME: Final = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES: Final = (
    re.compile(rf"[a-z]{{3}}, (?P<day>\d\d) (?P<month>[a-z]{{3}}) (?P<year>\d{{4}}) {_TIME} gmt", re.ASCII),
    re.compile(rf"[a-z]{{6,9}}, (?P<day>\d\d)-(?P<month>[a-z]{{3}})-(?P<year>\d\d) {_TIME} gmt", re.ASCII),
    re.compile(rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})", re.ASCII),
)

_RESET: Final = "x-ratelimit-reset"
_REMAINING: Final = "x-ratelimit-remaining"
_ANTHROPIC: Final = "anthropic-ratelimit-"


def retry_after_seconds(fields: Mapping[str, str], *, wall_seconds: float) -> float | None:
    """Returns the seconds to wait, from now, at most a day; None when the headers do not say.

    `fields` is case-insensitive (or in lower case), first values; `wall_seconds` is the unix time now.
    """
    waits = _told(fields, wall_seconds)
    if waits is None:
        waits = max(_resets(fields, wall_seconds), default=None)
    return None if waits is None else min(max(waits, 0.0), LONGEST_SECONDS)


def _told(fields: Mapping[str, str], wall_seconds: float) -> float | None:
    milliseconds = _number(_clean(fields.get("retry-after-ms")))
    if milliseconds is not None:
        return milliseconds / 1000
    text = _clean(fields.get("retry-after"))
    for seconds in (_number(text), _duration(text)):
        if seconds is not None:
            return seconds
    moment = _http_date(text, wall_seconds)
    return None if moment is None else moment - wall_seconds


def _resets(fields: Mapping[str, str], wall_seconds: float) -> Iterator[float]:
    """Yields the wait for each limit of which nothing remains."""
    for given in fields:
        name = given.lower()
        if name.startswith(_RESET):
            remaining, waits = (
                _REMAINING + name.removeprefix(_RESET),
                _reset(_clean(fields[given]), wall_seconds),
            )
        elif name.startswith(_ANTHROPIC) and name.endswith("-reset"):
            remaining, waits = (
                name.removesuffix("reset") + "remaining",
                _until(_clean(fields[given]), wall_seconds),
            )
        else:
            continue
        if waits is not None and _number(_clean(fields.get(remaining))) == 0:
            yield waits


def _reset(text: str, wall_seconds: float) -> float | None:
    number = _number(text)
    if number is None:
        waits = _duration(text)
        return _until(text, wall_seconds) if waits is None else waits
    if number >= _EARLIEST_UNIX_MILLISECONDS:
        return number / 1000 - wall_seconds
    return number - wall_seconds if number >= _EARLIEST_UNIX_SECONDS else number


def _clean(text: str | None) -> str:
    """Returns the text without outer white space; "" for one that is too long to mean anything."""
    stripped = (text or "").strip(" \t")
    return stripped if len(stripped) <= _LONGEST_TEXT else ""


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _duration(text: str) -> float | None:
    """Reads Go's durations: `6m0s`, `20ms`, `1h2m3.5s`."""
    total, end = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != end:
            return None
        total, end = total + float(part[1]) * _UNIT_SECONDS[part[2]], part.end()
    return total if end and end == len(text) else None


def _http_date(text: str, wall_seconds: float) -> float | None:
    """Reads the three forms of RFC 9110 §5.6.7 as unix time."""
    lower = text.lower()
    found = next(filter(None, (form.fullmatch(lower) for form in _DATES)), None)
    if found is None or found["month"] not in _MONTHS:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:
        year = _full_year(year, wall_seconds)
    second = min(int(found["second"]), 59) if found["second"] == "60" else int(found["second"])
    month, day = _MONTHS.index(found["month"]) + 1, int(found["day"])
    try:
        return datetime(year, month, day, int(found["hour"]), int(found["minute"]), second, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _full_year(two_digits: int, wall_seconds: float) -> int:
    """Returns the year meant: one that seems over 50 years ahead is the last one with these digits."""
    now = datetime.fromtimestamp(wall_seconds, UTC).year
    year = now - now % 100 + two_digits
    return year - 100 if year > now + 50 else year


def _until(text: str, wall_seconds: float) -> float | None:
    """Reads RFC 3339 as seconds from now."""
    if "T" not in text.upper():
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return None if moment.tzinfo is None else moment.timestamp() - wall_seconds
    except (ValueError, OverflowError):
        return None
