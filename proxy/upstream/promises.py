"""Promises: for how long a server says that it keeps a connection that rests (`Keep-Alive: timeout=5`).

Behind one address may stand servers that are not alike, and a connection cannot tell which of them it will meet: the
shortest time that was heard of late counts for all.
"""

from __future__ import annotations

from math import inf
from typing import Final

EPOCH_SECONDS: Final = 300.0
"""A promise is believed for as long as this after it was heard last, and at most for twice as long."""
MARGIN_SECONDS: Final = 1.0
"""A server counts from when it has sent its answer, and closes a while before the news of it is here."""
MARGIN_PART: Final = 0.5
"""Of a very short time, this is the margin."""


def seconds_in(line: bytes) -> float | None:
    """Returns the `timeout` of a Keep-Alive field in seconds, None where it has none that can be read."""
    for part in line.split(b","):
        name, _, value = part.partition(b"=")
        digits = value.strip().strip(b'"')
        if name.strip().lower() == b"timeout" and digits.isdigit() and len(digits) < 10:
            return float(digits)
    return None


class Promises:
    """What the servers at one address have said; `seconds` is for how long one of its connections may rest."""

    __slots__ = ("_before", "_latest", "_least", "_since", "seconds")

    def __init__(self) -> None:
        self._before = self._least = self.seconds = inf
        self._latest = b""
        self._since = 0.0

    def heard(self, line: bytes) -> bool:
        """Takes the Keep-Alive field of an answer; returns whether `seconds` has changed."""
        if line == self._latest:
            return False
        self._latest = line
        told = seconds_in(line)
        if told is None or told >= self._least:
            return False
        self._least = told
        return self._changed()

    def forget(self, now: float) -> bool:
        """Forgets what was not heard again for long enough; returns whether `seconds` has changed."""
        if now < self._since + EPOCH_SECONDS:
            return False
        self._since = now
        self._before, self._least, self._latest = self._least, inf, b""
        return self._changed()

    def _changed(self) -> bool:
        least, before = min(self._before, self._least), self.seconds
        self.seconds = least - min(MARGIN_SECONDS, least * MARGIN_PART) if least < inf else inf
        return self.seconds != before
