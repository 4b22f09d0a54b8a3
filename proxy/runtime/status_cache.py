"""What `/status` and the gauges show of caches, of refreshes, and of calls that equal requests share.

Counts and bytes: never a name, a request or an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from proxy.decisions.cached import Cached
from proxy.observer import Reading
from proxy.runtime.kept_state import KeptState
from proxy.stages.refreshing import Refreshes
from proxy.stages.response_cache import CacheCounts
from proxy.stages.single_flight import Flights

if TYPE_CHECKING:
    from proxy.store.cache import RedisCache, StoreStatistics

SERVERS: Final = "redis cache"
"""First word of the identity of a server's cache: its type comes with a library that not everybody has."""


def cache_status(kept: KeptState, now: float) -> dict[str, Any]:
    """Returns one row a cache and one a server, and what is under way."""
    flights = [flights for _, flights, _ in kept.all(Flights)]
    refreshes = [refreshes for _, refreshes, _ in kept.all(Refreshes)]
    return {
        "caches": list(_caches(kept, now)),
        "cache_servers": [_server(name, server.statistics()) for name, server in _servers(kept)],
        "refreshes": {
            "running": sum(one.running for one in refreshes),
            "started": sum(one.started for one in refreshes),
        },
        "single_flight": {
            "running": sum(len(one.calls) for one in flights),
            "joined": sum(one.joined for one in flights),
        },
    }


def cache_gauges(kept: KeptState, now: float) -> Iterator[Reading]:
    """Yields what is kept, what was offered, and how the servers are."""
    for row in _caches(kept, now):
        labels = (("route", row["route"]),)
        yield Reading("sponson.cache.bypassed", row["bypassed"], labels)
        for result in ("kept", "refused"):
            yield Reading("sponson.cache.offered", row[result], (*labels, ("result", result)))
        if row["store"] == "memory":
            yield Reading("sponson.cache.entries", row["entries"], labels)
            yield Reading("sponson.cache.size", row["bytes"], labels)
            yield Reading("sponson.cache.capacity", row["max"], labels)
            yield Reading("sponson.cache.evictions", row["evicted"], labels)
    for name, server in _servers(kept):
        yield from _server_gauges(name, server.statistics())
    for _, refreshes, _ in kept.all(Refreshes):
        yield Reading("sponson.cache.refreshing", refreshes.running)
    for _, flights, _ in kept.all(Flights):
        yield Reading("sponson.shared.active", len(flights.calls))


def _caches(kept: KeptState, now: float) -> Iterator[dict[str, Any]]:
    memory = {str(identity[1]): store for identity, store, used in kept.all(Cached) if used}
    for identity, counts, used in kept.all(CacheCounts):
        if used:
            route = str(identity[1])
            store = memory.get(route)
            yield {
                "route": route,
                "store": "redis" if store is None else "memory",
                "hits": counts.hits,
                "stale": counts.stale,
                "misses": counts.misses,
                "bypassed": counts.bypassed,
                "kept": counts.kept,
                "refused": counts.refused,
                **(_held(store, now) if store is not None else {}),
            }


def _held(store: Cached, now: float) -> dict[str, int]:
    store.expire(now)
    known = store.statistics()
    return {"entries": known.entries, "bytes": known.bytes, "max": known.most_bytes, "evicted": known.evicted}


def _servers(kept: KeptState) -> Iterator[tuple[str, RedisCache]]:
    """Yields each server that a policy uses, by its address and who we are to it."""
    for identity, core, used in kept.all(object):
        if used and identity[0] == SERVERS:
            url, username = str(identity[1]), identity[2]
            yield url.replace("//", f"//{username}@", 1) if username else url, cast("RedisCache", core)


def _server(name: str, known: StoreStatistics) -> dict[str, Any]:
    return {
        "server": name,
        "up": known.up,
        "pending": known.pending,
        "pending_bytes": known.pending_bytes,
        "written": known.written,
        "dropped": known.dropped,
        "late": known.late,
        "errors": {str(what): count for what, count in known.errors.items()},
    }


def _server_gauges(name: str, known: StoreStatistics) -> Iterator[Reading]:
    labels = (("store", name),)
    yield Reading("sponson.cache.store.up", int(known.up), labels)
    yield Reading("sponson.cache.store.written", known.written, labels)
    for what, count in (("late", known.late), ("dropped", known.dropped)):
        yield Reading("sponson.cache.store.lost", count, (*labels, ("why", what)))
    for trouble, count in known.errors.items():
        yield Reading("sponson.cache.store.errors", count, (*labels, ("why", str(trouble))))
