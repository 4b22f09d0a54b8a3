"""What of a route saves calls: its cache, joining and merging, and what becomes of answers that are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from proxy.policy.difference.change import Findings
from proxy.policy.difference.fields import DECISION, REQUEST, Field, compare, plain, seconds, source
from proxy.policy.difference.shares import Reload
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot, RedisSnapshot, RouteSnapshot, StaleTier
from proxy.policy.units import format_size

MEMORY: Final = "memory"
OFF: Final = "off"

_CACHE: Mapping[str, Callable[[Any], str]] = {
    "ttl": seconds,
    "stale_while_revalidate": seconds,
    "scope": plain,
    "normalize": plain,
    "ignore": plain,
    "max_bytes": format_size,
}
_MERGE: Mapping[str, Callable[[Any], str]] = {
    "window": seconds,
    "max": plain,
    "inputs": lambda field: "by the path" if field is None else plain(field),
    "results": lambda field: "by the path" if field is None else plain(field),
    "scope": plain,
}


def _of(section: str, attribute: str) -> Callable[[RouteSnapshot], Any]:
    return lambda route: getattr(getattr(route, section), attribute)


def _store(server: RedisSnapshot | None) -> str:
    return MEMORY if server is None else plain(server.url)


def _placeless(server: RedisSnapshot | None) -> RedisSnapshot | None:
    """Where a password is named in the policy makes no difference."""
    if server is None or server.password is None:
        return server
    return replace(server, password=replace(server.password, place=""))


CACHE: tuple[Field[RouteSnapshot], ...] = (
    *(
        Field(
            name=f"cache.{name}",
            read=_of("cache", name),
            write=write,
            when=DECISION if name == "max_bytes" else REQUEST,
        )
        for name, write in _CACHE.items()
    ),
    Field(name="cache.store", read=lambda r: _store(r.cache_redis)),
    Field(name="cache.store.username", read=lambda r: r.cache_redis and r.cache_redis.username),
    Field(
        name="cache.store.password",
        read=lambda r: (server := _placeless(r.cache_redis)) and server.password,
        write=source,
        when=DECISION,
    ),
)
"""Compared where both sides have a cache."""

MERGE: tuple[Field[RouteSnapshot], ...] = tuple(
    Field(name=f"merge.{name}", read=_of("merge", name), write=write) for name, write in _MERGE.items()
)
"""Compared where both sides merge."""


def _cache(route: RouteSnapshot) -> str:
    cache = route.cache
    return OFF if cache is None else f"ttl {seconds(cache.ttl)}, scope {cache.scope}, in {_store(route.cache_redis)}"


def _merge(route: RouteSnapshot) -> str:
    merge = route.merge
    return OFF if merge is None else f"window {seconds(merge.window)}, max {merge.max}, scope {merge.scope}"


CACHE_SWITCH: Field[RouteSnapshot] = Field(name="cache", read=_cache)
MERGE_SWITCH: Field[RouteSnapshot] = Field(name="merge", read=_merge)
SINGLE_FLIGHT: Field[RouteSnapshot] = Field(name="single_flight", read=lambda r: r.single_flight)


def compare_saved(findings: Findings, old: RouteSnapshot, new: RouteSnapshot, reload: Reload) -> None:
    """Notes what of a route's saved work differs, and what that does to answers that are kept."""
    if old.cache is None or new.cache is None:
        if compare(findings, [CACHE_SWITCH], old, new):
            _switched(findings, old, new)
    else:
        _changed(findings, old, new)
        if _asked(old, reload.old) != _asked(new, reload.new):
            findings.effect("the first tier's answers are others now: those that are kept are not given any more")
        if _headers(old) != _headers(new):
            findings.effect("other headers tell requests apart now: answers that are kept are not given any more")
    if compare(findings, [SINGLE_FLIGHT], old, new):
        findings.effect("calls that are joined already end together")
    both = old.merge is not None and new.merge is not None
    if compare(findings, MERGE if both else [MERGE_SWITCH], old, new):
        findings.effect("requests that gather at the reload go together as they came")
    _shared(findings, old, new)


def _switched(findings: Findings, old: RouteSnapshot, new: RouteSnapshot) -> None:
    if new.cache is not None:
        where = "empty" if new.cache_redis is None else "with the answers that the server has of it"
        findings.effect(f"the cache begins {where}")
    elif old.cache_redis is None:
        findings.effect("answers that are kept are put aside for 10 minutes, in case the cache comes back")
    else:
        findings.effect("answers that are kept stay on the server until their time is over")


def _changed(findings: Findings, old: RouteSnapshot, new: RouteSnapshot) -> None:
    differ = {name.removeprefix("cache.") for name in compare(findings, CACHE, old, new)}
    if differ & {"scope"}:
        findings.effect("another scope begins empty: answers that are kept by the old one are not given any more")
    if differ & {"store", "store.username"}:
        findings.effect("another store begins with what it has: answers that are kept elsewhere are not given any more")
    if differ & {"scope", "store", "store.username"}:
        return
    if differ & {"ttl", "stale_while_revalidate"} or _oldest(old) != _oldest(new):
        findings.effect("answers that are kept are as fresh as the new times say, and stay as long as they were to")
    if differ & {"normalize", "ignore"}:
        findings.effect("answers that are kept are given where a request is the same by the new rules, too")
    if "max_bytes" in differ:
        findings.effect("answers that are kept stay, as far as there is room for them")
    if old.name != new.name:
        findings.effect("keeps its cache: answers that are kept are given under the new name, too")


def _asked(route: RouteSnapshot, policy: PolicySnapshot) -> list[object]:
    """Returns what makes a first tier's answers its own: requests to another one have other keys."""
    providers = {provider.name: provider for provider in policy.providers}
    first = replace(route, tiers=route.tiers[:1])
    return [(tier.provider, tier.model, tier.set, *_service(providers[tier.provider])) for tier in first.asked()]


def _service(provider: ProviderSnapshot) -> tuple[object, ...]:
    """Callers' own credentials are part of a key where they go along."""
    added = [(name, value.literal, value.env, value.file) for name, value in provider.headers]
    return provider.addresses[0], provider.root_path, provider.dialect, provider.query, added, bool(provider.keys)


def _headers(route: RouteSnapshot) -> set[str]:
    return {name for name, _ in route.match.header}


def _oldest(route: RouteSnapshot) -> float:
    return max((tier.max_age_seconds for tier in route.tiers if isinstance(tier, StaleTier)), default=0.0)


def _shared(findings: Findings, old: RouteSnapshot, new: RouteSnapshot) -> None:
    """Who gets answers that another tenant has paid for is told, whichever way it comes about."""
    was = old.cache is not None and old.cache.scope == "route"
    if new.cache is not None and new.cache.scope == "route" and not was:
        findings.warn("all tenants share answers now: one may be given what another has asked for")
    together = old.merge is not None and old.merge.scope == "route"
    if new.merge is not None and new.merge.scope == "route" and not together:
        findings.warn("requests of all tenants may travel together now, in one call")
