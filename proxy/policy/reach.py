"""Warnings: what is allowed and has no effect, or less than it says.

Rules that can match nothing, routes that an earlier one leaves nothing for, modes without effect, shares that are
empty or beyond what connections allow, breakers that no ratio opens.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.classification import MatchSettings
from proxy.decisions.shares import FleetSettings, share_of
from proxy.policy.problem import Path, Problem, path_text, problem_at
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot, RouteSnapshot
from proxy.policy.tree import Node, deepest

OWN_PATHS = "/sponson/"
WILD = "*?["


def warnings(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """Yields what is allowed and has no effect."""
    for number, route in enumerate(snapshot.routes or ()):
        yield from _dead_patterns(root, number, route)
        yield from _shadowed(root, number, (snapshot.routes or ())[:number], route)
    yield from _modes(root, snapshot)
    yield from _empty_shares(root, snapshot)
    for provider in snapshot.providers:
        if not (provider.observe or snapshot.observe):
            yield from _without_connections(root, provider, snapshot.fleet)
        if isinstance(provider.breaker, BreakerSettings):
            yield from _short_window(root, provider.name, provider.breaker)


def _modes(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """A policy that holds nobody back says so, and a stricter mode below a lenient one has no effect."""
    if snapshot.observe:
        message = "observe: no share and no breaker holds any call back; what they would do is only reported"
        yield problem_at(deepest(root, ("mode",)).node.place, ("mode",), message)
    observing = {provider.name for provider in snapshot.providers if provider.observe or snapshot.observe}
    for provider in snapshot.providers:
        if snapshot.observe and not provider.observe:
            yield from without_effect(root, ("providers", provider.name, "mode"), "the policy observes")
    for number, route in enumerate(snapshot.routes or ()):
        asked = {tier.provider for tier in route.asked()}
        if not route.observe and asked and asked <= observing:
            why = "the policy observes" if snapshot.observe else "all of its providers observe"
            yield from without_effect(root, ("routes", number, "mode"), why)


def without_effect(root: Node, path: Path, why: str) -> Iterator[Problem]:
    """Yields a warning of a mode that is written and is stricter than one above it."""
    found = deepest(root, path)
    if found.path == path:
        message = f"has no effect: {why}, and the most lenient mode holds"
        yield problem_at(found.node.place, found.path, message)


def _empty_shares(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """A limit of fewer units than there are instances leaves this one nothing: every call waits, and is refused."""
    for path, limit in _limits(snapshot):
        if 0 < limit < snapshot.fleet.size and snapshot.fleet.index is None:
            found = deepest(root, path)
            message = (
                f"leaves no instance a place: {limit} among {snapshot.fleet.size} instances is less than one each; "
                "raise it, or tell each instance its SPONSON_INSTANCE_INDEX"
            )
            yield problem_at(found.node.place, found.path, message)


def _limits(snapshot: PolicySnapshot) -> Iterator[tuple[Path, int]]:
    if snapshot.concurrency is not None:
        yield ("limits", "concurrency"), snapshot.concurrency
    for provider in snapshot.providers:
        here: Path = ("providers", provider.name)
        if provider.concurrency is not None:
            yield (*here, "limits", "concurrency"), provider.concurrency
        for model in provider.models:
            if model.concurrency is not None:
                yield (*here, "models", model.name, "limits", "concurrency"), model.concurrency
        for number, key in enumerate(provider.keys):
            if key.concurrency is not None:
                yield (*here, "keys", number, "concurrency"), key.concurrency


def _without_connections(root: Node, provider: ProviderSnapshot, fleet: FleetSettings) -> Iterator[Problem]:
    """A share is never used up where an instance may have fewer connections to all of the provider's addresses."""
    here: Path = ("providers", provider.name)
    most = provider.most_connections
    for path, share in _binding_shares(provider, fleet):
        if share > most:
            found = deepest(root, (*here, "connections", "max"))
            written = _connections(provider)
            message = f"{written} is below the share of {share} of {path_text(path)}: only {most} calls run at once"
            if found.path != (*here, "connections", "max"):
                found = deepest(root, (*here, *path))
                message = f"a share of {share} is above connections.max ({written}): only {most} calls run at once"
            yield problem_at(found.node.place, found.path, message)


def _connections(provider: ProviderSnapshot) -> str:
    count = len(provider.addresses)
    return str(provider.connections.max) + (f" at each of {count} addresses" if count > 1 else "")


def _binding_shares(provider: ProviderSnapshot, fleet: FleetSettings) -> Iterator[tuple[Path, int]]:
    """Yields the provider's share, else those of its models and keys, which then have nothing else above them."""
    name = provider.name
    if provider.concurrency is not None:
        yield ("limits", "concurrency"), share_of(provider.concurrency, fleet, key=name)
        return
    for model in provider.models:
        if model.concurrency is not None:
            share = share_of(model.concurrency, fleet, key=f"{name}/{model.name}")
            yield ("models", model.name, "limits", "concurrency"), share
    for number, key in enumerate(provider.keys):
        if key.concurrency is not None:
            share = share_of(key.concurrency, fleet, key=f"{name}/key/{key.id}")
            yield ("keys", number, "concurrency"), share


def _dead_patterns(root: Node, number: int, route: RouteSnapshot) -> Iterator[Problem]:
    for position, pattern in enumerate(route.match.path):
        found = deepest(root, ("routes", number, "match", "path", position))
        if not pattern.startswith(("/", *WILD)):
            message = f'can match nothing: paths begin with /, "{pattern}" does not'
            yield problem_at(found.node.place, found.path, message)
        elif pattern.startswith(OWN_PATHS):
            message = f"can match nothing: paths below {OWN_PATHS} are the proxy's own"
            yield problem_at(found.node.place, found.path, message)


def _shadowed(root: Node, number: int, earlier: Sequence[RouteSnapshot], route: RouteSnapshot) -> Iterator[Problem]:
    for other in earlier:
        if _covers(other.match, route.match):
            found = deepest(root, ("routes", number, "name"))
            message = f'is never reached: route "{other.name}" takes all of its requests before'
            yield problem_at(found.node.place, found.path, message)
            return


def _covers(one: MatchSettings, other: MatchSettings) -> bool:
    """True when all that `other` matches is surely matched by `one`."""
    headers = dict(other.header)
    return (
        ("*" in one.path or _all_in(one.path, other.path))
        and _all_in(one.model, other.model)
        and all(_all_in(patterns, headers.get(name, ())) for name, patterns in one.header)
    )


def _all_in(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    return not wide or (bool(narrow) and all(pattern_in(wide, pattern) for pattern in narrow))


def pattern_in(wide: Sequence[str], pattern: str) -> bool:
    """Whether all that a pattern matches is surely matched by one of others."""
    if "*" in wide or pattern in wide:
        return True
    literal = not any(mark in pattern for mark in WILD)
    return literal and any(fnmatch.fnmatchcase(pattern, one) for one in wide)


def _short_window(root: Node, name: str, breaker: BreakerSettings) -> Iterator[Problem]:
    if breaker.min_calls > breaker.window_calls:
        path = ("providers", name, "breaker")
        found = deepest(root, (*path, "min_calls"))
        if found.path == path:
            found = deepest(root, (*path, "window", "calls"))
        message = (
            f"min_calls ({breaker.min_calls}) is above window.calls ({breaker.window_calls}): "
            "no ratio ever opens the breaker"
        )
        yield problem_at(found.node.place, found.path, message)
