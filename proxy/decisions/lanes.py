"""Lanes: parts of a share that only short answers may use (`semantics.md` §3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """`share`: part (0-1) of the share that only answers of at most `max_output` tokens may use."""

    max_output: int
    share: float
