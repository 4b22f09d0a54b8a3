"""Owns every spelling in which a provider's headers say how long to wait.

`retry-after-ms` and `retry-after` (RFC 9110 §10.2.3, decimals too); without them, the resets of limits that are used
up: `x-ratelimit-reset-*`, `ratelimit-reset`, `ratelimitbysize-reset` (Go durations, seconds, unix time),
`anthropic-ratelimit-*-reset` (RFC 3339) and the `ratelimit` of the IETF's drafts. A reset is mostly the time until a
bucket is full, not until its next token: a last resort, only on refusals. Junk is no answer: it never means zero, and
never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

LONGEST_SECONDS: Final = 86400.0
EARLIEST_UNIX_SECONDS: Final = 1e9
"""No wait is so long: a number from here on is a time."""

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
_EARLIEST_UNIX_MILLISECONDS: Final = 1e12
_LONGEST_TEXT: Final = 64

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME: Final = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES: Final = (
    re.compile(rf"[a-z]{{3}}, (?P<day>\d\d) (?P<month>[a-z]{{3}}) (?P<year>\d{{4}}) {_TIME} gmt", re.ASCII),
    re.compile(rf"[a-z]{{6,9}}, (?P<day>\d\d)-(?P<month>[a-z]{{3}})-(?P<year>\d\d) {_TIME} gmt", re.ASCII),
    re.compile(rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})", re.ASCII),
)

_RATE_LIMIT: Final = "ratelimit"
_RESET: Final = "reset"
_REMAINING: Final = "remaining"
_ANTHROPIC: Final = "anthropic-"
_NONE_LEFT: Final = re.compile(r"(?:^|[;,\s])r(?:emaining)?=0(?=[;,\s]|$)", re.ASCII)
_DRAFT_RESET: Final = re.compile(r"(?:^|[;,\s])(?:t|reset)=(\d{1,15})(?=[;,\s]|$)", re.ASCII)


def retry_after_seconds(
    fields: Mapping[str, str], *, wall_seconds: float, in_body: float | None = None, limited: bool = True
) -> float | None:
    """Returns the seconds to wait, from now, at most a day; None when the answer does not say.

    `fields` is case-insensitive (or in lower case), first values; `wall_seconds` is the unix time now. `in_body` is
    what the body asks for: headers made for this say more, resets less. `limited`: the answer refuses the call for a
    limit (429); in others it means nothing that a limit is used up.
    """
    waits = _told(fields, wall_seconds)
    if waits is None:
        waits = in_body
    if waits is None and limited:
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
        if _RATE_LIMIT not in name:
            continue
        text = _clean(fields[given])
        if name == _RATE_LIMIT:
            yield from _draft_resets(text)
        elif _RESET in name and _number(_clean(fields.get(name.replace(_RESET, _REMAINING)))) == 0:
            # A number under one of Anthropic's names would mean what nobody has said.
            waits = _until(text, wall_seconds) if name.startswith(_ANTHROPIC) else _reset(text, wall_seconds)
            if waits is not None:
                yield waits


def _draft_resets(text: str) -> Iterator[float]:
    """Reads `"default";r=0;t=30` and, as older drafts had it, `limit=9, remaining=0, reset=30`."""
    for item in text.split(",") if ";" in text else [text]:
        reset = _DRAFT_RESET.search(item)
        if reset is not None and _NONE_LEFT.search(item):
            yield float(reset[1])


def reset_moment(text: str) -> float | None:
    """Returns when a limit is reset: in seconds or, from `EARLIEST_UNIX_SECONDS` on, as unix time; None for junk."""
    number = _number(text)
    if number is not None:
        return number / 1000 if number >= _EARLIEST_UNIX_MILLISECONDS else number
    waits = _duration(text)
    if waits is not None:
        return min(waits, LONGEST_SECONDS)
    moment = _moment(text)
    return None if moment is None else max(moment, EARLIEST_UNIX_SECONDS)


def _reset(text: str, wall_seconds: float) -> float | None:
    moment = reset_moment(text)
    return moment if moment is None or moment < EARLIEST_UNIX_SECONDS else moment - wall_seconds


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
    moment = _moment(text)
    return None if moment is None else moment - wall_seconds


def _moment(text: str) -> float | None:
    """Reads RFC 3339 as unix time."""
    if "T" not in text.upper():
        return None
    try:
        moment = datetime.fromisoformat(text.upper())
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None
