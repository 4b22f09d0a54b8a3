"""What `/status` and the gauges show of connections: where they lead, how often they serve again, how they end.

Requests that went out on a connection that was there count as reuses, those that had to dial as dials, whatever came of
it: the part of the former is the reuse ratio. Dials by result are all there were, redials and those of connections
that are kept ready included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from proxy.observer import Reading
from proxy.runtime.kept_state import KeptState
from proxy.upstream.pool import Ending, Pool


def connection_status(kept: KeptState) -> list[dict[str, Any]]:
    """Returns one row an address; `ended` are idle connections that ended, by reason."""
    return [_row(str(identity[1]), pool) for identity, pool, used in kept.all(Pool) if used]


def connection_gauges(kept: KeptState) -> Iterator[Reading]:
    """Attempts are counted where they are: each has a connection, or dials one, whatever permits say."""
    active: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    for identity, pool, used in kept.all(Pool):
        if used or pool.busy:
            active[str(identity[1])] += pool.busy
            idle[str(identity[1])] += pool.idle
    for provider, number in active.items():
        yield Reading("sponson.attempts.active", number, (("provider", provider),))
        yield Reading("sponson.connections", idle[provider], (("provider", provider), ("state", "idle")))


def connection_counters(kept: KeptState) -> Iterator[Reading]:
    """Yields what only grows, of each address by itself: a sum would shrink where an address is taken away."""
    for identity, pool, used in kept.all(Pool):
        if not used:
            continue
        host, port = pool.peer
        where = (("provider", str(identity[1])), ("server.address", host), ("server.port", str(port)))
        for reused, number in (("true", pool.reuses), ("false", pool.dials)):
            yield Reading("sponson.connection.requests", number, (*where, ("sponson.connection_reused", reused)))
        for result, number in (("ok", pool.dialer.opened), ("failed", pool.dialer.failed)):
            yield Reading("sponson.connection.dials", number, (*where, ("result", result)))
        for ending in Ending:
            yield Reading("sponson.connection.ended", pool.ended[ending], (*where, ("reason", ending.value)))


def _row(provider: str, pool: Pool) -> dict[str, Any]:
    warmth, requests = pool.warmth, pool.reuses + pool.dials
    return {
        "provider": provider,
        "address": str(pool.address),
        "in_use": pool.busy,
        "idle": pool.idle,
        "warm": warmth.want if warmth is not None else 0,
        "idle_seconds": round(pool.rests, 3),
        "dials": pool.dials,
        "reuses": pool.reuses,
        "reuse_ratio": round(pool.reuses / requests, 4) if requests else None,
        "warm_dials": warmth.dials if warmth is not None else 0,
        "failed_dials": pool.dialer.failed,
        "ended": {ending.value: pool.ended[ending] for ending in Ending},
    }
