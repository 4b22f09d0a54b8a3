"""Warnings of what is written to save calls and saves none, or less than it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.dialects.lookup import operation_of
from proxy.policy.problem import Path, Problem, problem_at
from proxy.policy.reach import WILD
from proxy.policy.snapshot import AnswerTier, PolicySnapshot, RouteSnapshot, StaleTier
from proxy.policy.tree import Node, deepest
from proxy.policy.units import format_duration

MERGED: Final = frozenset({"completions", "embeddings", "moderations"})
"""Last parts of the paths whose inputs and results are known (`facts.md` §2.4)."""


def saved_warnings(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """Yields what saves no work, at the place where it is written."""
    for number, route in enumerate(snapshot.routes or ()):
        for path, message in (*_sharing(route), *_tenants(route, snapshot), *_stale_tiers(route), *_merging(route)):
            whole: Path = ("routes", number, *path)
            if (found := deepest(root, whole)).path == whole:
                yield problem_at(found.key_place, whole, message)


def _sharing(route: RouteSnapshot) -> Iterator[tuple[Path, str]]:
    why = None
    if route.repeatable is False:
        why = "the route's requests are not repeatable"
    elif isinstance(route.tiers[0], AnswerTier):
        why = "its first tier asks nobody"
    if why is not None and route.cache is not None:
        yield ("cache",), f"keeps nothing: {why}"
    if why is not None and route.single_flight:
        yield ("single_flight",), f"joins nothing: {why}"
    if route.cache_redis is not None:
        yield (
            ("cache", "max_bytes"),
            "has no effect: the answers are kept by the Redis server, which has its own bounds",
        )
    elif route.cache is not None and not route.cache.max_bytes:
        yield ("cache", "max_bytes"), "keeps nothing: there is no room for any answer"


def _tenants(route: RouteSnapshot, snapshot: PolicySnapshot) -> Iterator[tuple[Path, str]]:
    """Who writes that tenants are kept apart wants to know that there are none."""
    if snapshot.tenants is not None:
        return
    message = "has no effect: the policy has no tenants, so that all callers are one tenant"
    if route.cache is not None and route.cache.scope == "tenant":
        yield ("cache", "scope"), message
    if route.merge is not None and route.merge.scope == "tenant":
        yield ("merge", "scope"), message


def _stale_tiers(route: RouteSnapshot) -> Iterator[tuple[Path, str]]:
    if route.cache is None:
        return
    given = route.cache.ttl + route.cache.stale_while_revalidate
    oldest = 0.0
    for position, tier in enumerate(route.tiers):
        if not isinstance(tier, StaleTier):
            continue
        path: Path = ("tiers", position, "stale_cache")
        if tier.max_age_seconds <= oldest:
            yield path, "gives nothing: an earlier stale_cache tier gives all answers of this age"
        elif tier.max_age_seconds <= given:
            message = (
                f"gives next to nothing: answers up to {format_duration(given)} old (ttl and stale_while_revalidate) "
                "are given before anybody is asked; raise max_age"
            )
            yield path, message
        oldest = max(oldest, tier.max_age_seconds)


def _merging(route: RouteSnapshot) -> Iterator[tuple[Path, str]]:
    if route.merge is None:
        return
    if isinstance(route.tiers[0], AnswerTier):
        yield ("merge",), "merges nothing: its first tier asks nobody"
    elif route.merge.max == 1:
        yield ("merge", "max"), "merges nothing: one input is one call"
    elif route.merge.inputs is None and route.match.path and not any(map(_merged, route.match.path)):
        message = (
            "can match nothing: of the route's paths no inputs are known that could travel together "
            "(those of embeddings, completions and moderations are); elsewhere name inputs and results"
        )
        yield ("merge",), message
    elif route.merge.inputs is not None and route.repeatable is not True and not any(map(_known, route.match.path)):
        message = "merges nothing on paths that are not known: a call that is split asks twice; say repeatable: true"
        yield ("merge", "inputs"), message


def _known(pattern: str) -> bool:
    """Whether a path pattern may match a path whose requests are known to change nothing."""
    return any(mark in pattern for mark in WILD) or operation_of(pattern) is not None


def _merged(pattern: str) -> bool:
    """Whether a path pattern may match a path whose requests can travel together."""
    if any(mark in pattern for mark in WILD):
        return True
    *_, previous, last = ("", *pattern.split("/"))
    return last in MERGED and (previous, last) != ("chat", "completions")
