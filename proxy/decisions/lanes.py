"""Lanes: parts of a share that only short answers may use, so that long calls leave them room (`semantics.md` §3).

A call belongs to every lane whose `max_output` its own longest output does not exceed; one that tells no longest output
belongs to none. Each lane's part is kept free for its calls; beyond it they use what is for all, like everybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """One of a route's `lanes`: for answers of at most `max_output` tokens, `share` (0-1) of each provider's share."""

    max_output: int
    share: float


def lane_of(lanes: Sequence[LaneSettings], longest: int | None) -> int:
    """Returns the place of the narrowest lane that takes an answer of this many tokens; len(lanes) when none does."""
    if longest is not None:
        for index, lane in enumerate(lanes):
            if longest <= lane.max_output:
                return index
    return len(lanes)


def group_of(route: str, lane: LaneSettings) -> str:
    """Returns the name of a lane's group: whose reserve it is."""
    return f"lane {route}/{lane.max_output}"
