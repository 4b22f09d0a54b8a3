"""Durations as people write them: `2`, `250ms`, `1.5s`, `6m0s`."""

from __future__ import annotations

import math
import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(text: str) -> float:
    """Returns seconds; a number without a unit counts seconds. ValueError when it is no duration."""
    if _PLAIN.fullmatch(text):
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: write 2, 250ms, 1.5s or 1m30s")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """Returns the text that `parse_duration` reads back as exactly this number."""
    digits = f"{seconds:.12f}".rstrip("0").rstrip(".")
    return f"{digits if float(digits) == seconds else format(seconds, 'f')}s"


def go_duration(seconds: float) -> str:
    """Returns OpenAI's way of writing a duration in its reset headers: `12ms`, `1.5s`, `6m0s`, `1h0m0s`."""
    millis = round(seconds * 1000)
    if millis < 1000:
        return f"{millis}ms"
    minutes, rest = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
