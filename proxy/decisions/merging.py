"""Merging: which requests may travel together, and which part of the answer is whose (`semantics.md` §6a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """`merge` of a route: the first of several requests waits `window` seconds for others, `max` inputs are one call.

    `inputs` and `results` name the fields of request and answer where the path is not a known one. `scope`: whose
    requests may travel together.
    """

    window: float = 0.005
    max: int = 8
    inputs: str | None = None
    results: str | None = None
    scope: Literal["tenant", "route", "credential"] = "tenant"
