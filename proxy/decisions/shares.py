"""Shares: which part of a fleet-wide limit this instance enforces (`semantics.md` §2)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """`fleet`: how many instances there are, and which of them this one is (None: not known)."""

    size: int = 1
    index: int | None = None


def apportion(total: int, *, size: int, key: str) -> list[int]:
    """Divides `total` units among `size` equal instances; the sum is `total` exactly.

    Floors first; the remaining units go to the instances whose hash with `key` is lowest, so that different limits
    do not always favour the same instance. Largest-remainder apportionment with equal weights.
    """
    if size < 1:
        raise ValueError("a fleet has at least one instance")
    base, rest = divmod(total, size)
    order = sorted(range(size), key=lambda i: hashlib.sha256(f"{key}\0{i}".encode()).digest())
    shares = [base] * size
    for instance in order[:rest]:
        shares[instance] += 1
    return shares


def share_of(limit: int, fleet: FleetSettings, *, key: str) -> int:
    """Returns this instance's part of `limit`: exact where the index is known, else the floor; never rounded up."""
    if fleet.index is None or fleet.index >= fleet.size:
        return limit // fleet.size
    return apportion(limit, size=fleet.size, key=key)[fleet.index]
