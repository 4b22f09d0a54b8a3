"""Warnings of tenants: who can never be told apart, patterns that match nobody, tiers that a route does not have."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.decisions.tenants import TenantsSettings
from proxy.policy.problem import Path, Problem, problem_at
from proxy.policy.reach import pattern_in, without_effect
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.tree import Node, deepest

NOBODY = "default"
"""Who names no tenant."""


def tenant_warnings(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """Yields what is said of tenants and has no effect, or less than it says."""
    tenants = snapshot.tenants
    if tenants is None:
        return
    yield from _sources(root, tenants)
    yield from _shadowed(root, tenants)
    yield from _short_routes(root, tenants, snapshot)
    if snapshot.observe and not tenants.observe:
        yield from without_effect(root, ("tenants", "mode"), "the policy observes")


def _sources(root: Node, tenants: TenantsSettings) -> Iterator[Problem]:
    if not tenants.sources:
        found = deepest(root, ("tenants",))
        message = f'everybody is "{NOBODY}": without `from`, all callers together are one tenant'
        yield problem_at(found.key_place, found.path, message)
    for number, source in enumerate(tenants.sources):
        if source in tenants.sources[:number]:
            found = deepest(root, ("tenants", "from", number))
            yield problem_at(found.node.place, found.path, "is never looked at: the same stands before it")


def _shadowed(root: Node, tenants: TenantsSettings) -> Iterator[Problem]:
    earlier: list[str] = []
    for pattern, _ in tenants.overrides:
        found = deepest(root, ("tenants", "overrides", pattern))
        if pattern_in(earlier, pattern):
            wide = next(one for one in earlier if pattern_in([one], pattern))
            message = f'matches nobody: "{wide}" takes all of its tenants before'
            yield problem_at(found.key_place, found.path, message)
        elif not tenants.sources and not pattern_in([pattern], NOBODY):
            yield problem_at(found.key_place, found.path, f'matches nobody: without `from` everybody is "{NOBODY}"')
        earlier.append(pattern)


def _short_routes(root: Node, tenants: TenantsSettings, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """Where too long an input begins with a tier that a route does not have, the route refuses it."""
    for path, tier in _tiers(tenants):
        found = deepest(root, path)
        if found.path != path:
            continue
        for number, route in enumerate(snapshot.routes or ()):
            if tier is not None and len(route.tiers) < tier:
                place = deepest(root, ("routes", number, "tiers")).node.place
                message = (
                    f'route "{route.name}" at {place} has fewer tiers ({len(route.tiers)}): it refuses what is too long'
                )
                yield problem_at(found.node.place, found.path, message)


def _tiers(tenants: TenantsSettings) -> Iterator[tuple[Path, int | None]]:
    """Yields the tiers that too long an input begins with, and where they may be written."""
    yield ("tenants", "default", "too_long", "tier"), tenants.default.too_long_tier
    for pattern, caps in tenants.overrides:
        yield ("tenants", "overrides", pattern, "too_long", "tier"), caps.too_long_tier
