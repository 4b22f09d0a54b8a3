"""By what the live state of a policy is known, and was known before the renamings that the policy tells of.

Assembly keeps state by these identities, and `sponson diff` tells by them what a reload keeps. A `was` may stand in the
policy for ever: the name that a thing has comes first, because it was so called already when only something else that
its state belongs to is renamed.

And for what counting tokens keeps state at all (`bounds_tokens`, `learns`): both must answer that alike.
"""

from __future__ import annotations

from itertools import product

from proxy.decisions.lanes import LaneSettings, group_of
from proxy.policy.snapshot import (
    KeySnapshot,
    PolicySnapshot,
    ProviderSnapshot,
    ProviderTier,
    RedisSnapshot,
    RouteSnapshot,
)

Identity = tuple[str, ...]


def of_provider(kind: str, provider: ProviderSnapshot, *rest: str) -> tuple[Identity, ...]:
    """Returns the identity of something that belongs to a provider, then the earlier ones."""
    return tuple((kind, name, *rest) for name in _names(provider.name, provider.was))


def of_key(kind: str, provider: ProviderSnapshot, key: KeySnapshot) -> tuple[Identity, ...]:
    """Returns the identity of something that belongs to a key, then the earlier ones."""
    return tuple((kind, *names) for names in product(_names(provider.name, provider.was), _names(key.id, key.was)))


def of_budget(route: RouteSnapshot, provider: ProviderSnapshot) -> tuple[Identity, ...]:
    """Returns the identity of the retry budget that a route has for a provider, then the earlier ones."""
    pairs = product(_names(route.name, route.was), _names(provider.name, provider.was))
    return tuple(("budget", *names) for names in pairs)


def of_route(kind: str, route: RouteSnapshot, *rest: str) -> tuple[Identity, ...]:
    """Returns the identity of something that belongs to a route, then the earlier ones."""
    return tuple((kind, name, *rest) for name in _names(route.name, route.was))


def of_cache(route: RouteSnapshot, scope: str) -> tuple[Identity, ...]:
    """Returns the identity of a route's answers in memory, then the earlier ones: each scope has its own."""
    return of_route("cache", route, scope)


def of_server(server: RedisSnapshot) -> Identity:
    """Returns the identity of a server that keeps answers: a route that comes to name it uses what is there."""
    return "redis cache", server.url, server.username or ""


def of_lane(
    provider: ProviderSnapshot, route: RouteSnapshot, lane: LaneSettings, model: str, *apart: str
) -> tuple[Identity, ...]:
    """Returns the identity of the line in which a lane's calls to a model wait, then the earlier ones."""
    pairs = product(_names(provider.name, provider.was), _names(route.name, route.was))
    return tuple(("line", name, model, group_of(by, lane), *apart) for name, by in pairs)


def own_route(provider: ProviderSnapshot) -> RouteSnapshot:
    """Returns the route to this provider alone (`/<provider>/…`), by a name that no route of a policy can have."""
    was = f"/{provider.was}" if provider.was is not None else None
    return RouteSnapshot(name=f"/{provider.name}", was=was, tiers=(ProviderTier(provider=provider.name),))


def bounds_tokens(provider: ProviderSnapshot) -> bool:
    """Whether anything bounds the tokens of a provider's calls."""
    limits = [provider.tpm, *(model.tpm for model in provider.models), *(key.tpm for key in provider.keys)]
    return any(limit is not None for limit in limits)


def learns(policy: PolicySnapshot, provider: ProviderSnapshot) -> bool:
    """Whether anybody wants to know how many tokens a provider's calls usually take."""
    return (
        policy.tenants is not None
        or bounds_tokens(provider)
        or any(model.context_tokens is not None for model in provider.models)
    )


def _names(name: str, was: str | None) -> tuple[str, ...]:
    return (name,) if was is None else (name, was)
