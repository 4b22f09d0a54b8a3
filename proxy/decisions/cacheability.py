"""Cacheability: whether an answer may be kept, for how long, and whether a kept one may be given.

Source: `semantics.md` §6a; freshness in the words of RFC 9111.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from proxy.exchange import Facts
from proxy.observer import CacheUse
from proxy.outcome import Outcome, OutcomeKind

_KEPT_BEFORE: Final = frozenset({CacheUse.HIT, CacheUse.STALE})


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


class Freshness(StrEnum):
    """How a kept answer may be given."""

    FRESH = "fresh"
    STALE = "stale"
    """While a new one is fetched."""
    OLD = "old"
    """Not at all, or only when there is no other."""


def freshness(age: float, settings: CacheSettings) -> Freshness:
    """Returns how an answer of this age in seconds may be given: at the end of its time it is not fresh any more."""
    if age < settings.ttl:
        return Freshness.FRESH
    return Freshness.STALE if age < settings.ttl + settings.stale_while_revalidate else Freshness.OLD


def keep_seconds(settings: CacheSettings, max_age: float | None) -> float:
    """Returns for how long an answer is kept; `max_age` is that of the route's `stale_cache` tier, if it has one."""
    return max(settings.ttl + settings.stale_while_revalidate, max_age or 0.0)


def worth_keeping(outcome: Outcome, facts: Facts) -> bool:
    """Whether a call has ended with an answer of the intended target; what it says is another matter (`wholeness`)."""
    return (
        outcome.kind is OutcomeKind.OK
        and outcome.status == 200
        and outcome.committed
        and facts.tier == 1
        and facts.cache not in _KEPT_BEFORE
    )
