"""The next policy: shares, keys, breakers, routes, models, addresses; what goes, what comes back, what is renamed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.soak.policies import MAY_GO, RENAMED, Wanted

STEADY_PART = 0.75
"""Of all requests so many go to the steady provider; the rest is shared by the others."""
BUSY_SECONDS = 0.06
"""How long a request keeps a place, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many requests the steady provider has under way when nothing binds: shares are drawn around it."""

    busy: float

    @classmethod
    def of(cls, rate: float) -> Size:
        """For so many requests a second."""
        return cls(busy=max(2.0, rate * STEADY_PART * BUSY_SECONDS))

    def share(self, draw: random.Random, low: float, high: float) -> int:
        """A share between so many times what is under way; two at least."""
        return max(2, round(self.busy * draw.uniform(low, high)))


def first(size: Size) -> Wanted:
    """The policy to begin with: everything is there."""
    steady = max(3, round(size.busy * 1.3))
    return Wanted(number=0, steady=steady, model=steady, moving=4, key=2, total=steady + 12, knob=1)


def after(wanted: Wanted, size: Size, draw: random.Random) -> Wanted:
    """The policy after this one."""
    return Wanted(
        number=wanted.number + 1,
        steady=size.share(draw, 0.8, 1.8),
        model=size.share(draw, 0.45, 1.0),
        moving=draw.randint(2, 6),
        key=draw.randint(1, 4),
        total=size.share(draw, 1.2, 2.0) + draw.randint(6, 16),
        fleet=draw.randint(1, 4),
        port=draw.randint(0, 1),
        absent=frozenset(name for name in MAY_GO if draw.random() < (0.5 if name in wanted.absent else 0.15)),
        renamed=frozenset(name for name in RENAMED if (name in wanted.renamed) != (draw.random() < 0.25)),
        knob=draw.randrange(1, 1000),
        crowd=wanted.crowd,
    )


def last(wanted: Wanted, size: Size) -> Wanted:
    """The policy to end with: everything is there again."""
    end = first(size)
    return Wanted(
        number=wanted.number + 1,
        steady=end.steady,
        model=end.model,
        moving=end.moving,
        key=end.key,
        total=end.total,
        renamed=wanted.renamed,
        knob=end.knob,
        crowd=wanted.crowd,
    )
