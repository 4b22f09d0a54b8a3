"""Credentials: which headers tell callers' accounts apart, and whose own credential goes along on a route."""

from __future__ import annotations

from proxy.policy.snapshot import ProviderTier, RouteSnapshot, SpreadTier
from proxy.runtime.targets import Provider
from proxy.runtime.workshop import Workshop
from proxy.upstream.headers import CREDENTIALS


def credential_headers(shop: Workshop) -> tuple[str, ...]:
    """Returns the headers that tell callers' accounts apart, in lower case."""
    return tuple(sorted(name.decode("latin-1") for name in CREDENTIALS | shop.auth_headers))


def passes_credentials(route: RouteSnapshot, providers: dict[str, Provider]) -> bool:
    """Whether a caller's own credential may go along: it does so to the first tier, where that has no keys."""
    match next(iter(route.tiers), None):
        case ProviderTier(provider=name):
            names = [name]
        case SpreadTier(members=members):
            names = [member.provider for member in members]
        case _:
            names = []
    return any(not providers[name].snapshot.keys for name in names)
