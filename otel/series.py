"""Series: what is counted under one set of labels, and all of an instrument together.

Owns the counts: plain numbers in slotted objects that a writer keeps and increments. A series has one writing thread
(the event loop's, or an exporter's); others may read at any time, because a family's list of series only ever grows.
A reader may meet a histogram whose sum is one value behind its buckets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from otel import attributes as a

OTHER: Final = "other"


class Number:
    """A counter or gauge of one set of labels."""

    __slots__ = ("labels", "value")

    def __init__(self, labels: tuple[str, ...], value: float = 0) -> None:
        self.labels = labels
        self.value = value


class Distribution:
    """A histogram of one set of labels; `counts` has one place more than there are bounds."""

    __slots__ = ("bounds", "counts", "labels", "sum")

    def __init__(self, bounds: tuple[float, ...], labels: tuple[str, ...]) -> None:
        self.bounds = bounds
        self.labels = labels
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def record(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


Series = TypeVar("Series", Number, Distribution)


class Family(Generic[Series]):
    """All series of one instrument: at most `max_series`, and one labelled `other` for what did not fit.

    `width`: how many labels each has.
    """

    __slots__ = ("_by_labels", "_make", "_max_series", "_width", "series")

    def __init__(self, width: int, make: Callable[[tuple[str, ...]], Series], max_series: int) -> None:
        self._width = width
        self.series: list[Series] = []
        self._make: Callable[[tuple[str, ...]], Series] = make
        self._max_series = max_series
        self._by_labels: dict[tuple[str, ...], Series] = {}

    def __repr__(self) -> str:
        return f"<Family of {len(self.series)} series>"

    def at(self, *values: str) -> Series:
        """Returns the series of these label values, in the order of the table; keep it, and count in it."""
        series = self._by_labels.get(values)
        if series is None:
            if len(self.series) >= self._max_series:
                values = (OTHER,) * self._width
            series = self._by_labels.get(values)
        if series is None:
            series = self._by_labels[values] = self._make(tuple(map(a.clean, values)))
            self.series.append(series)
        return series
