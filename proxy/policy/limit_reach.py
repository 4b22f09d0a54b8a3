"""Warnings of limits: rates, reserves, lanes and equals that hold nobody, everybody, or less than they say."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import floor

from proxy.decisions.shares import share_of
from proxy.policy.problem import Path, Problem, problem_at
from proxy.policy.snapshot import (
    KeySnapshot,
    ModelSnapshot,
    PolicySnapshot,
    ProviderSnapshot,
    RouteSnapshot,
    SpreadTier,
)
from proxy.policy.tenant_reach import tenant_warnings
from proxy.policy.tree import Node, deepest

RATES = ("rpm", "tpm")
LONGEST_BURST = 60.0


def limit_warnings(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """Yields what is allowed and holds nobody, everybody, or less than it says."""
    for provider in snapshot.providers:
        yield from _rates(root, provider)
        yield from _above(root, provider)
        yield from _adaptive(root, provider, snapshot)
    yield from _reserve(root, snapshot)
    for number, route in enumerate(snapshot.routes or ()):
        yield from _lanes(root, ("routes", number), route, snapshot)
        yield from _weights(root, ("routes", number), route)
    for provider in snapshot.providers:
        yield from _nothing_left(root, provider, snapshot)
    yield from tenant_warnings(root, snapshot)


def _here(root: Node, path: Path, message: str) -> Iterator[Problem]:
    """A warning of what stands at a path; nothing where nothing is written there."""
    found = deepest(root, path)
    if found.path == path:
        yield problem_at(found.node.place, path, message)


def _rated(provider: ProviderSnapshot) -> Iterator[tuple[Path, ProviderSnapshot | KeySnapshot | ModelSnapshot]]:
    """Yields everything of a provider that may have rates, and where they are written."""
    here: Path = ("providers", provider.name)
    yield (*here, "limits"), provider
    for model in provider.models:
        yield (*here, "models", model.name, "limits"), model
    for number, key in enumerate(provider.keys):
        yield (*here, "keys", number), key


def _rates(root: Node, provider: ProviderSnapshot) -> Iterator[Problem]:
    limits: Path = ("providers", provider.name, "limits")
    rates = [(path, name, _rate(one, name)) for path, one in _rated(provider) for name in RATES]
    for path, name, rate in rates:
        if rate == 0:
            yield from _here(root, (*path, name), "none is allowed: every call that it binds is refused")
    if all(rate is None for _, _, rate in rates):
        for name in ("headroom", "burst"):
            yield from _here(root, (*limits, name), "has no effect: no rpm or tpm of this provider, its keys or models")
        return
    if provider.quota.headroom == 0:
        yield from _here(root, (*limits, "headroom"), "nothing of rpm and tpm is used: every call is refused")
    if provider.quota.burst > LONGEST_BURST:
        message = "a bucket of more than a minute lets more calls go in a minute than rpm and tpm say"
        yield from _here(root, (*limits, "burst"), message)


def _rate(one: ProviderSnapshot | KeySnapshot | ModelSnapshot, name: str) -> float | None:
    return one.rpm if name == "rpm" else one.tpm


def _above(root: Node, provider: ProviderSnapshot) -> Iterator[Problem]:
    """What a key or model may use beyond the provider's own limit, it never gets."""
    for path, one in _rated(provider):
        if one is provider:
            continue
        own = {"concurrency": provider.concurrency, "rpm": provider.rpm, "tpm": provider.tpm}
        for name, limit in (("concurrency", one.concurrency), ("rpm", one.rpm), ("tpm", one.tpm)):
            most = own[name]
            if limit is not None and most is not None and limit > most:
                message = f"{limit:.10g} is above the provider's {name} ({most:.10g}): that one binds before"
                yield from _here(root, (*path, name), message)


def _adaptive(root: Node, provider: ProviderSnapshot, snapshot: PolicySnapshot) -> Iterator[Problem]:
    path: Path = ("providers", provider.name, "limits", "adaptive")
    if provider.adaptive is not None and provider.adaptive.min >= (share := _share(provider, snapshot)):
        message = f"has no effect: min ({provider.adaptive.min}) is not below the share of an instance ({share})"
        found = deepest(root, (*path, "min"))
        yield problem_at(found.node.place, found.path, message)


def _share(provider: ProviderSnapshot, snapshot: PolicySnapshot) -> int:
    most = provider.most_connections
    if provider.concurrency is None:
        return most
    return min(share_of(provider.concurrency, snapshot.fleet, key=provider.name), most)


def _reserve(root: Node, snapshot: PolicySnapshot) -> Iterator[Problem]:
    path: Path = ("classes", "P0", "reserved")
    reserved = snapshot.classes.reserved
    if not reserved:
        return
    if reserved == 1:
        yield from _here(root, path, "everything is reserved for P0: P1 and P2 get nothing where a limit binds them")
    elif not _urgent(snapshot):
        message = "is only taken from others: no route or tenant has class P0, and no header may raise a call to it"
        yield from _here(root, path, message)
    for provider in snapshot.providers:
        limited = provider.concurrency is not None and provider.rpm is None and provider.tpm is None
        if limited and (share := _share(provider, snapshot)) > 0 and floor(reserved * share) == 0:
            message = f"reserves nothing of {provider.name}: {reserved:g} of a share of {share} is less than one permit"
            yield from _here(root, path, message)


def _urgent(snapshot: PolicySnapshot) -> bool:
    tenants = snapshot.tenants
    classes = [] if tenants is None else [tenants.default.klass, *(caps.klass for _, caps in tenants.overrides)]
    routes = snapshot.routes or ()
    return "P0" in chain(classes, (route.klass for route in routes)) or any(one.class_from_header for one in routes)


def _lanes(root: Node, here: Path, route: RouteSnapshot, snapshot: PolicySnapshot) -> Iterator[Problem]:
    providers = {provider.name: provider for provider in snapshot.providers}
    for number, lane in enumerate(route.lanes):
        for name in dict.fromkeys(tier.provider for tier in route.asked()):
            share = _share(providers[name], snapshot)
            if share > 0 and floor(lane.share * share) == 0:
                message = f"keeps nothing of {name} free: {lane.share:g} of a share of {share} is less than one permit"
                yield from _here(root, (*here, "lanes", number, "share"), message)


def _nothing_left(root: Node, provider: ProviderSnapshot, snapshot: PolicySnapshot) -> Iterator[Problem]:
    """What P0 and the lanes of all routes keep of a provider together may be everything: others would wait for ever."""
    share = _share(provider, snapshot)
    kept = floor(snapshot.classes.reserved * share)
    for number, route in enumerate(snapshot.routes or ()):
        if all(tier.provider != provider.name for tier in route.asked()) or not route.lanes:
            continue
        kept += sum(floor(lane.share * share) for lane in route.lanes)
        if 0 < share <= kept:
            message = (
                f"with what is kept for P0 and for other routes, nothing of {provider.name} is left for longer "
                f"answers: {kept} of a share of {share} are kept"
            )
            yield from _here(root, ("routes", number, "lanes"), message)
            return


def _weights(root: Node, here: Path, route: RouteSnapshot) -> Iterator[Problem]:
    for number, tier in enumerate(route.tiers):
        if isinstance(tier, SpreadTier) and tier.by != "weight":
            for position, _ in enumerate(tier.members):
                path = (*here, "tiers", number, "spread", position, "weight")
                yield from _here(root, path, "has no effect: the tier does not spread `by: weight`")
