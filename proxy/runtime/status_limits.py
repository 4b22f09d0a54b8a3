"""What `/status` and the gauges show of limits: places, buckets, who holds permits, adaptive limits, estimates."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from proxy.decisions.adaptive import AdaptiveLimit
from proxy.decisions.admission import Admission
from proxy.decisions.estimates import Estimates
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.quota import MINUTE, Bucket
from proxy.observer import Reading
from proxy.runtime.kept_state import Identity, KeptState

MOST_HOLDERS: Final = 1000
"""Rows of permit holders that are shown, the oldest first."""
_UNITS: Final = {"rpm": "requests", "tpm": "tokens"}


def limits_status(kept: KeptState, admission: Admission, now: float) -> dict[str, Any]:
    """Returns the rows of all limits; times are seconds, amounts requests or tokens."""
    return {
        "permits": list(_permits(kept)),
        "permits_out": len(admission.out),
        "holders": list(_holders(kept, admission, now)),
        "quotas": list(_quotas(kept, now)),
        "adaptive": list(_adaptive(kept)),
        "estimates": list(_estimates(kept)),
    }


def limit_gauges(kept: KeptState, now: float) -> Iterator[Reading]:
    """Yields what is used, and what is left, of every limit."""
    for identity, places, used in kept.all(Places):
        if used:
            labels = _labels(*map(str, identity))
            yield Reading("sponson.permits.used", places.used, labels)
            yield Reading("sponson.permits.share", places.size, labels)
    for identity, bucket, used in kept.all(Bucket):
        if used:
            kind, unit = _bucket_of(identity)
            labels = (*_labels(kind, *map(str, identity[1:])), ("unit", unit))
            yield Reading("sponson.quota.left", bucket.level(now), labels)
            yield Reading("sponson.quota.capacity", bucket.capacity, labels)


def _permits(kept: KeptState) -> Iterator[dict[str, Any]]:
    for identity, places, used in kept.all(Places):
        if used:
            row: dict[str, Any] = {
                "limit": _name(*map(str, identity)),
                "in_use": places.used,
                "size": places.size,
            }
            reserves = [one for one in places.reserves if one.size or one.used]
            if reserves:
                row["reserved"] = {one.group: {"in_use": one.used, "size": one.size} for one in reserves}
            yield row


def _holders(kept: KeptState, admission: Admission, now: float) -> Iterator[dict[str, Any]]:
    """Yields who holds a permit, and since when: a leak, or a stream that never ends, is seen here."""
    targets = {line: f"{identity[1]}/{identity[2]}" for identity, line, _ in kept.all(Line)}
    oldest = sorted(admission.out, key=_taken_at)
    for permit in islice(oldest, MOST_HOLDERS):
        yield {
            "target": targets.get(permit.line, permit.line.name),
            "class": f"P{permit.klass}",
            "key": permit.key.id if permit.key is not None else None,
            "tokens": round(permit.tokens),
            "seconds": round(now - permit.taken_at, 3),
        }


def _quotas(kept: KeptState, now: float) -> Iterator[dict[str, Any]]:
    for identity, bucket, used in kept.all(Bucket):
        if not used:
            continue
        kind, unit = _bucket_of(identity)
        yield {
            "limit": _name(kind, *map(str, identity[1:])),
            "unit": unit,
            "left": round(bucket.level(now), 3),
            "capacity": round(bucket.capacity, 3),
            "per_minute": round(bucket.rate * MINUTE, 3),
            "reserved": round(bucket.reserved, 3),
        }


def _adaptive(kept: KeptState) -> Iterator[dict[str, Any]]:
    for identity, limit, used in kept.all(AdaptiveLimit):
        if used:
            yield {"provider": identity[1], "size": limit.size, "share": limit.share, "lowered": limit.lowered}


def _estimates(kept: KeptState) -> Iterator[dict[str, Any]]:
    for identity, estimates, used in kept.all(Estimates):
        if used:
            facts = estimates.statistics()
            yield {
                "provider": identity[1],
                "model": identity[2],
                "reports": facts.reports,
                "bytes_per_token": round(facts.bytes_per_token, 3),
                "reserved_bytes_per_token": round(facts.reserved_bytes_per_token, 3),
                "output_tokens": round(facts.output_tokens, 1),
            }


def _taken_at(permit: Permit) -> float:
    return permit.taken_at


def _bucket_of(identity: Identity) -> tuple[str, str]:
    """Returns whose a bucket is ("provider", "model" or "key"), and what it holds."""
    owner, _, rate = str(identity[0]).rpartition("_")
    return owner or "provider", _UNITS[rate]


def _name(kind: str, *rest: str) -> str:
    """Returns a limit's name for people: its kind and whose it is, by the names that the policy now uses."""
    return f"{kind} {'/'.join(rest)}" if rest else "all providers"


def _labels(kind: str, provider: str = "", name: str = "", *_: str) -> tuple[tuple[str, str], ...]:
    """Returns the labels of a limit from its identity: which kind, whose, and of which model or key."""
    labels = [("limit", kind), ("provider", provider)]
    if kind == "model":
        labels.append(("model", name))
    elif kind == "key":
        labels.append(("key_id", name))
    return tuple(labels)
