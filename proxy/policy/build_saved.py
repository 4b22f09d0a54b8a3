"""`cache` and `merge` of a validated route → CacheSettings, RedisSnapshot, MergeSettings."""

from __future__ import annotations

from proxy.decisions.cacheability import CacheSettings
from proxy.decisions.merging import MergeSettings
from proxy.policy.build_providers import named
from proxy.policy.problem import Path
from proxy.policy.schema.saved import REDIS_PORT, Cache, Merge, RedisStore, split_redis
from proxy.policy.snapshot import RedisSnapshot
from proxy.policy.tree import Node, deepest


def build_cache(cache: Cache) -> CacheSettings:
    """Returns the settings of a route's cache; what is written twice counts once."""
    return CacheSettings(
        ttl=float(cache.ttl),
        stale_while_revalidate=float(cache.stale_while_revalidate),
        scope=cache.scope,
        normalize=tuple(dict.fromkeys(cache.normalize)),
        ignore=tuple(dict.fromkeys(cache.ignore)),
        max_bytes=int(cache.max_bytes),
    )


def build_redis(root: Node, number: int, cache: Cache) -> RedisSnapshot | None:
    """Returns the server that keeps the answers of route `number`, None for memory."""
    if not isinstance(cache.store, RedisStore):
        return None
    store = cache.store
    store_path: Path = ("routes", number, "cache", "store")
    here: Path = (*store_path, "password")
    return RedisSnapshot(
        url=_whole(store.redis),
        username=store.username,
        password=None if store.password is None else named(root, here, store.password),
        place=str(deepest(root, store_path).node.place),
    )


def build_merge(merge: Merge) -> MergeSettings:
    """Returns the settings of a route's merging."""
    return MergeSettings(
        window=float(merge.window), max=merge.max, inputs=merge.inputs, results=merge.results, scope=merge.scope
    )


def _whole(url: str) -> str:
    """Returns an address with its port and database: one server has one name, however it is written."""
    parts = split_redis(url)
    assert parts is not None
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{parts.port or REDIS_PORT}/{int(parts.path.removeprefix('/') or 0)}"
