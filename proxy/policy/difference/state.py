"""Live state: the decision cores that a policy uses, by identity, and what a reload makes of them (`semantics.md` §7).

The cores are those that `runtime/targets.py` and `runtime/assembly.py` ask kept state for; of models only those
that the policy names, and `OTHER`. Models that callers invent get cores when they are asked for, by the same identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from proxy.decisions.deadline import answer_pace
from proxy.policy.identities import (
    Identity,
    learns,
    of_budget,
    of_cache,
    of_key,
    of_lane,
    of_provider,
    of_route,
    of_server,
    own_route,
)
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot, ProviderTier, RouteSnapshot

ANY_MODEL: Final = "*"
OTHER: Final = "other"
ALWAYS: Final = ("bodies", "answers", "keyed calls", "flights", "refreshes", "merge lanes")
"""Kinds of cores that every policy uses, one of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What becomes of every core: the new policy's, by whose they were before; those made anew; those put aside."""

    origins: Mapping[Identity, Identity]
    anew: frozenset[Identity]
    aside: frozenset[Identity]

    def kept(self, *begin: str) -> list[Identity]:
        """The cores whose identity in the new policy begins so and that go on, renamed ones too."""
        return [identity for identity in self.origins if identity[: len(begin)] == begin]

    def begun(self, *begin: str) -> list[Identity]:
        """The cores whose identity begins so and that are made anew."""
        return sorted(identity for identity in self.anew if identity[: len(begin)] == begin)

    def left(self, *begin: str) -> list[Identity]:
        """The cores whose identity in the old policy begins so and that nothing uses any more."""
        return sorted(identity for identity in self.aside if identity[: len(begin)] == begin)


def fates(old: PolicySnapshot, new: PolicySnapshot) -> Fates:
    """Returns what becomes of the old policy's cores when the new one goes live."""
    before = {identity for identity, *_ in cores(old)}
    origins: dict[Identity, Identity] = {}
    asked: set[Identity] = set()
    for identity, *earlier in cores(new):
        if identity in asked:
            continue
        found = [one for one in (identity, *earlier) if one in before]
        if found and (found[0] == identity or found[0] not in asked):
            origins[identity] = found[0]
        asked.add(identity)
    return Fates(
        origins=origins,
        anew=frozenset(asked - set(origins)),
        aside=frozenset(before - set(origins.values())),
    )


def renamings(
    old: Sequence[ProviderSnapshot | RouteSnapshot], new: Sequence[ProviderSnapshot | RouteSnapshot]
) -> dict[str, str]:
    """Returns old name → new name of what the new policy renames; `was` counts only where the name is new."""
    known = {one.name for one in old}
    return {one.was: one.name for one in new if one.was in known and one.name not in known}


def cores(policy: PolicySnapshot) -> Iterator[tuple[Identity, ...]]:
    """Yields the identity of every core that the policy uses, each with those it may have had before renamings."""
    yield from (((kind,),) for kind in ALWAYS)
    if policy.concurrency is not None:
        yield (("process",),)
    if policy.tenants is not None:
        yield (("tenants",),)
    for route in policy.routes or ():
        yield of_route("idempotency", route)
        yield from _saved(route)
    for provider in policy.providers:
        for kind, *rest in (*_own(provider), *_targets(policy, provider)):
            yield of_provider(kind, provider, *rest)
        yield from _lanes(policy, provider)
        yield from _keys(provider)
        own = own_route(provider)
        yield of_route("idempotency", own)
        for route in (own, *(route for route, _ in asking(policy, provider.name))):
            yield of_budget(route, provider)


def _saved(route: RouteSnapshot) -> Iterator[tuple[Identity, ...]]:
    """The cores of a route's saved work; a server that keeps answers is shared by all routes that name it."""
    if route.cache is not None or route.single_flight or route.merge is not None:
        yield of_route("saving name", route)
    if route.cache is not None:
        yield of_route("cache counts", route)
        server = route.cache_redis
        yield of_cache(route, route.cache.scope) if server is None else (of_server(server),)


def _keys(provider: ProviderSnapshot) -> Iterator[tuple[Identity, ...]]:
    for key in provider.keys:
        yield of_key("credential", provider, key)
        limits = ("key", key.concurrency), ("key_rpm", key.rpm), ("key_tpm", key.tpm)
        yield from (of_key(kind, provider, key) for kind, limit in limits if limit is not None)


def _own(provider: ProviderSnapshot) -> Iterator[tuple[str, ...]]:
    """The cores that a provider has once, or once an address: their kinds, with what else tells them apart."""
    yield ("connections",)
    yield ("room",)
    for where in addresses(provider):
        yield "pool", where
        if len(provider.addresses) > 1:
            yield "address", where
    limits = ("provider", provider.concurrency), ("rpm", provider.rpm), ("tpm", provider.tpm)
    yield from ((kind,) for kind, limit in limits if limit is not None)
    if provider.adaptive is not None:
        yield from (("adaptive_limit",), ("adaptive",))
    if provider.keys:
        yield ("ring",)


def _targets(policy: PolicySnapshot, provider: ProviderSnapshot) -> Iterator[tuple[str, ...]]:
    """The cores of a provider's targets, likewise: one a model, or one a line in which its calls wait."""
    everywhere = provider.observe or policy.observe
    somewhere = everywhere or any(route.observe for route, _ in asking(policy, provider.name))
    if somewhere:
        yield ("tally",)
    for name in (*named_models(policy, provider.name), OTHER):
        model = provider.model(name)
        yield from (("line", name, *apart) for apart in _lines(policy, provider, everywhere=everywhere))
        limits = ("model", model.concurrency), ("model_rpm", model.rpm), ("model_tpm", model.tpm)
        yield from ((kind, name) for kind, limit in limits if limit is not None)
        if learns(policy, provider):
            yield "estimates", name
        yield from _guarded(policy, provider, name, tallied=somewhere)


def _lines(policy: PolicySnapshot, provider: ProviderSnapshot, *, everywhere: bool) -> list[tuple[str, ...]]:
    """What tells the lines of a target apart: calls that are only observed, and the kind of credential."""
    routes = (route for route, _ in asking(policy, provider.name))
    return list(dict.fromkeys([_kind(provider), *(_apart(provider, one, everywhere=everywhere) for one in routes)]))


def _lanes(policy: PolicySnapshot, provider: ProviderSnapshot) -> Iterator[tuple[Identity, ...]]:
    """The lines of the lanes of all routes that ask a provider."""
    everywhere = provider.observe or policy.observe
    routes = {route.name: route for route, _ in asking(policy, provider.name)}.values()
    for route, model in product(routes, (*named_models(policy, provider.name), OTHER)):
        apart = _apart(provider, route, everywhere=everywhere)
        yield from (of_lane(provider, route, lane, model, *apart) for lane in route.lanes)


def _apart(provider: ProviderSnapshot, route: RouteSnapshot, *, everywhere: bool) -> tuple[str, ...]:
    kind = _kind(provider)
    return ("observing", *kind) if route.observe and not everywhere else kind


def _kind(provider: ProviderSnapshot) -> tuple[str, ...]:
    return ("keys",) if provider.keys else ()


def _guarded(
    policy: PolicySnapshot, provider: ProviderSnapshot, model: str, *, tallied: bool
) -> Iterator[tuple[str, ...]]:
    """The cores of a target at each address: what is measured there, and its breaker, one a model or a scope."""
    whole = provider.breaker is not None and provider.breaker.per_provider
    scope = ANY_MODEL if whole else model
    if len(provider.addresses) > 1:
        yield "openings", scope
        yield ("hall",)
    for where in addresses(provider):
        if follows_answers(policy, provider):
            yield "pace", where, model
        if provider.breaker is not None:
            yield "breaker", where, scope
            if tallied:
                yield "tally", where, scope


def address(provider: ProviderSnapshot) -> str:
    """Returns where a provider listens, the first of its addresses."""
    return str(provider.addresses[0])


def addresses(provider: ProviderSnapshot) -> list[str]:
    """Returns where a provider listens: the identities of its pools, and part of its breakers'."""
    return list(map(str, provider.addresses))


def asking(policy: PolicySnapshot, provider: str) -> Iterator[tuple[RouteSnapshot, ProviderTier]]:
    """Yields the tiers, and members of spread tiers, that ask this provider, each with its route."""
    for route in policy.routes or ():
        for tier in route.asked():
            if tier.provider == provider:
                yield route, tier


def named_models(policy: PolicySnapshot, provider: str) -> tuple[str, ...]:
    """Returns the models of a provider that the policy names: with limits, or in tiers."""
    limits = [model.name for one in policy.providers if one.name == provider for model in one.models]
    tiers = [tier.model for _, tier in asking(policy, provider) if tier.model is not None]
    return tuple(dict.fromkeys([*limits, *tiers]))


def follows_answers(policy: PolicySnapshot, provider: ProviderSnapshot) -> bool:
    """Whether an answer limit of this provider follows the times that are measured (`answer: {p95}`)."""
    timeouts = provider.timeouts
    return timeouts.answer_pace is not None or any(
        answer_pace(timeouts, answer=tier.answer_seconds, pace=tier.answer_pace) is not None
        for _, tier in asking(policy, provider.name)
    )
