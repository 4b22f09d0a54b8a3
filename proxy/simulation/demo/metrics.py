"""The proxy's `/metrics`: the Prometheus text format, read and summed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_LINE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Series:
    """One line: a name, its labels without the prefix `sponson_`, and the value."""

    name: str
    labels: dict[str, str]
    value: float


class Metrics:
    """What one reading of `/metrics` said; names without the prefix `sponson_`."""

    def __init__(self, text: str) -> None:
        self._series = [_series(match) for line in text.splitlines() if (match := _LINE.fullmatch(line))]

    def total(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric over all series with these labels."""
        return sum(series.value for series in self._matching(name, labels))

    def by(self, name: str, label: str, **labels: str) -> Counter[str]:
        """Returns the sums of a metric by the values of a label, without zeros."""
        found: Counter[str] = Counter()
        for series in self._matching(name, labels):
            if series.value:
                found[series.labels.get(label, "")] += round(series.value)
        return found

    def _matching(self, name: str, labels: dict[str, str]) -> list[Series]:
        return [
            series
            for series in self._series
            if series.name == name and all(series.labels.get(key) == value for key, value in labels.items())
        ]


def _series(match: re.Match[str]) -> Series:
    labels = {key.removeprefix("sponson_"): value for key, value in _LABEL.findall(match["labels"] or "")}
    return Series(match["name"].removeprefix("sponson_"), labels, float(match["value"]))
