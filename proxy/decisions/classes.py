"""Classes: which priority a call has, and what each may use (`policy.md` rule 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CLASS_HEADER: Final = "x-sponson-class"
_RANK: Final = {"P0": 0, "P1": 1, "P2": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """`reserved`: part (0-1) of every share, permits and quota, that only P0 may use.

    P2 runs while the permits in use are below the part `idle_below` of the share, queues as P1 after `promote_after`
    seconds, and waits `queue` seconds at most in each tier.
    """

    reserved: float = 0.0
    idle_below: float = 0.7
    promote_after: float = 300.0
    queue: float = 600.0


def class_of(said: str | None, *, route: str, tenant: str | None, may_raise: bool) -> str:
    """Returns a call's class: the tenant's, else the route's; what the caller `said` may lower it.

    It may raise it, too, where `may_raise` and the tenant has no class. What is no class's name says nothing.
    """
    own = tenant if tenant is not None else route
    rank = _RANK.get(said) if said is not None else None
    if said is None or rank is None:
        return own
    return said if rank > _RANK[own] or (may_raise and tenant is None) else own
