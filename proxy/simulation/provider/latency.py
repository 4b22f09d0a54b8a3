"""How long a simulated provider takes before the first byte of an answer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from proxy.simulation.provider.durations import format_duration, parse_duration


class Distribution(StrEnum):
    """The shapes a latency can have."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds: `constant` is `low`, `uniform` lies in `low`..`high`, `lognormal` has the median `low`."""

    distribution: Distribution = Distribution.CONSTANT
    low: float = 0.0
    high: float = 0.0
    sigma: float = 0.0

    def sample(self, rng: random.Random) -> float:
        """Draws one latency in seconds; a constant draws nothing from `rng`."""
        match self.distribution:
            case Distribution.CONSTANT:
                return self.low
            case Distribution.UNIFORM:
                return rng.uniform(self.low, self.high)
            case Distribution.LOGNORMAL:
                return self.low * math.exp(self.sigma * rng.gauss(0.0, 1.0))
            case _:
                assert_never(self.distribution)

    def __str__(self) -> str:
        low = format_duration(self.low)
        match self.distribution:
            case Distribution.CONSTANT:
                return f"constant:{low}"
            case Distribution.UNIFORM:
                return f"uniform:{low},{format_duration(self.high)}"
            case Distribution.LOGNORMAL:
                return f"lognormal:{low},{self.sigma:g}"
            case _:
                assert_never(self.distribution)


def parse_latency(text: str) -> Latency:
    """Reads `200ms`, `constant:200ms`, `uniform:100ms,300ms` or `lognormal:200ms,0.5`, else ValueError."""
    kind, colon, rest = text.strip().partition(":")
    if not colon:
        return Latency(low=parse_duration(kind))
    parts = [part.strip() for part in rest.split(",")]
    match kind.strip(), parts:
        case "constant", [low]:
            return Latency(low=parse_duration(low))
        case "uniform", [low, high]:
            return _uniform(parse_duration(low), parse_duration(high))
        case "lognormal", [median, sigma]:
            return _lognormal(parse_duration(median), sigma)
        case _:
            raise ValueError(f"{text!r} is not a latency: write 200ms, uniform:100ms,300ms or lognormal:200ms,0.5")


def _uniform(low: float, high: float) -> Latency:
    if high < low:
        raise ValueError("uniform: the second duration is below the first")
    return Latency(distribution=Distribution.UNIFORM, low=low, high=high)


def _lognormal(median: float, sigma_text: str) -> Latency:
    try:
        sigma = float(sigma_text)
    except ValueError:
        raise ValueError(f"lognormal: sigma {sigma_text!r} is not a number") from None
    if not 0 <= sigma <= 5:
        raise ValueError("lognormal: sigma must lie between 0 and 5")
    return Latency(distribution=Distribution.LOGNORMAL, low=median, sigma=sigma)
