"""The protocols through which rooms reach each other without importing each other."""

from __future__ import annotations

from typing import Protocol

from proxy.exchange import Exchange
from proxy.outcome import Outcome


class Rescue(Protocol):
    """Turns an outcome that reached no client into an answer; synchronous, so that a cancelled task can still do it."""

    def __call__(self, exchange: Exchange, outcome: Outcome) -> None:
        """Writes the answer to `exchange.reply`, if it has not been started."""
        ...


class Bits(Protocol):
    """Randomness as an argument."""

    def __call__(self, count: int, /) -> int:
        """Returns `count` random bits."""
        ...
