"""Durations and sizes as operators write them: `250ms`, `1m30s`, `64KiB`."""

from __future__ import annotations

import re

LONGEST_SECONDS = 366 * 24 * 3600.0
LARGEST_BYTES = 2**50

DURATION_PATTERN = (
    r"^(?=[0-9])(?:[0-9]+(?:\.[0-9]+)?h)?(?:[0-9]+(?:\.[0-9]+)?m)?"
    r"(?:[0-9]+(?:\.[0-9]+)?s)?(?:[0-9]+(?:\.[0-9]+)?ms)?$"
)
SIZE_PATTERN = r"^[0-9]+(?:KiB|MiB|GiB)?$"

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DURATION = re.compile(DURATION_PATTERN)
_PART = re.compile(r"([0-9.]+)(ms|[hms])")
_SIZE = re.compile(r"^([0-9]+)(KiB|MiB|GiB)?$")


def parse_duration(text: str) -> float | None:
    """Returns seconds, None for anything that is no duration."""
    if len(text) > 64 or "\n" in text or not _DURATION.match(text):
        return None
    return round(sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)), 9)


def format_duration(seconds: float) -> str:
    """Returns the shortest exact form with one unit."""
    for unit in ("h", "m", "s"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    return f"{round(seconds * 1000, 6):.12g}ms" if seconds else "0s"


def parse_size(text: str) -> int | None:
    """Returns bytes, None for anything that is no size."""
    if len(text) > 64 or "\n" in text or not (match := _SIZE.match(text)):
        return None
    return int(match[1]) * _BYTES[match[2] or ""]


def format_size(count: int) -> str:
    """Returns the shortest exact form."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return str(count)
