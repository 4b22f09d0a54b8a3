"""Compiled routes: what assembly builds of a policy and what stages read, once per request.

Plain slotted values; built once per policy, shared by all requests, never changed afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.exchange import Exchange
from proxy.outcome import Outcome


class Tier(Protocol):
    """One step of a route's fallback order. `provider` is "" for a tier that asks nobody."""

    number: int
    provider: str
    own_key: bool

    def __call__(self, exchange: Exchange) -> Awaitable[Outcome]:
        """Tries to answer."""
        ...


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Equals:
    """A step that any of several `tiers` may take; `order` says, each time anew, who of them is asked first."""

    tiers: tuple[Tier, ...]
    order: Callable[[Exchange], Sequence[Tier]]


class RouteMatcher(Protocol):
    """Whether a route is meant."""

    needs_model: bool
    needs_headers: bool

    def might(self, path: str, fields: Mapping[str, str]) -> bool:
        """Looks at path and headers."""
        ...

    def model_matches(self, model: str | None) -> bool:
        """Looks at the model."""
        ...


@dataclass(slots=True, repr=False, eq=False, kw_only=True)
class RoutePlan:
    """One route, compiled. `call` is its pipeline; `needs_document`: the body must be understood (model or `set`);
    `reads_document`: it is looked at where it can be.

    `total` is in seconds. A body larger than `body_max` bytes is refused, one larger than `body_replay` is sent once.
    `prefix` is what is removed from the caller's path ("/alpha" for `/<provider>/…`). `klass` is the class of its
    calls, which the caller's own word may raise where `class_from_header` says so.
    """

    name: str
    matcher: RouteMatcher
    call: Callable[[Exchange], Awaitable[Outcome]]
    prefix: str = ""
    total: float
    body_max: int
    body_replay: int
    repeatable: bool | None
    needs_document: bool
    reads_document: bool = False
    klass: str = "P1"
    class_from_header: bool = False

    def __repr__(self) -> str:
        return f"<RoutePlan {self.name}>"
