"""What `/status` shows of tenants: a bounded number of rows, who asked last first. Names, never credentials."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from proxy.decisions.tenants import Tenant, Tenants
from proxy.runtime.kept_state import KeptState

MOST_ROWS: Final = 100


def tenant_status(kept: KeptState, now: float) -> dict[str, Any]:
    """Returns how many tenants are known, and the rows of those that asked last; those that share caps come first."""
    found = [tenants for _, tenants, used in kept.all(Tenants) if used]
    return {
        "tenants": [row for tenants in found for row in _rows(tenants, now)],
        "tenants_known": sum(map(len, found)),
    }


def _rows(tenants: Tenants, now: float) -> Iterator[dict[str, Any]]:
    return (_row(tenant, now) for tenant in islice(tenants.latest(), MOST_ROWS))


def _row(tenant: Tenant, now: float) -> dict[str, Any]:
    caps, settings = tenant.caps, tenant.settings
    requests, tokens = caps.levels(now)
    return {
        "tenant": tenant.name,
        "class": settings.klass,
        "in_flight": caps.in_flight,
        "concurrency": caps.concurrency,
        "rps": caps.rps,
        "requests_left": _rounded(requests),
        "tpm": caps.tpm,
        "tokens_left": _rounded(tokens),
        "context_tokens": settings.context_tokens,
        "refused": tenant.refused,
        **{would.value: count for would, count in tenant.would.items()},
    }


def _rounded(level: float | None) -> float | None:
    return round(level, 3) if level is not None else None
