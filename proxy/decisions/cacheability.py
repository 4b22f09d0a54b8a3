"""Cacheability: which requests are equal, whether an answer may be kept, and whether a kept one may be given.

Source: `semantics.md` §6a; freshness in the words of RFC 9111.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """`cache` of a route. `ttl` and `stale_while_revalidate` in seconds, `max_bytes` for the store in memory.

    `ignore` are fields of the body that change nothing in an answer; `normalize` are differences in texts that do not
    count. `scope`: who shares answers.
    """

    ttl: float
    stale_while_revalidate: float = 0.0
    scope: Literal["tenant", "route", "credential"] = "tenant"
    normalize: tuple[Literal["space", "case"], ...] = ()
    ignore: tuple[str, ...] = ()
    max_bytes: int = 64 * 1024 * 1024
