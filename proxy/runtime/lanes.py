"""Lanes, assembled: which parts of a provider's limits are kept for the short answers of which routes."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.decisions.classification import Matcher
from proxy.decisions.lanes import group_of
from proxy.policy.snapshot import PolicySnapshot, RouteSnapshot

Parts = tuple[tuple[str, float], ...]
"""Groups of calls, each with the part (0-1) of a limit that is kept for it."""


class LaneParts:
    """The lanes of all routes of one policy. `was` tells by what name a lane's group went before its route's."""

    __slots__ = ("_routes", "was")

    def __init__(self, snapshot: PolicySnapshot) -> None:
        self._routes = [(route, Matcher(route.match)) for route in snapshot.routes or () if route.lanes]
        self.was: Mapping[str, str] = {
            group_of(route.name, lane): group_of(route.was, lane)
            for route, _ in self._routes
            if route.was is not None
            for lane in route.lanes
        }

    def __repr__(self) -> str:
        return f"<LaneParts of {len(self._routes)} routes>"

    def of(self, provider: str, model: str | None = None) -> Parts:
        """Returns what is kept of a provider's limits, or of those of one of its models: for routes that ask for it."""
        return tuple(
            (group_of(route.name, lane), lane.share)
            for route, matcher in self._routes
            if _asks(route, matcher, provider, model)
            for lane in route.lanes
        )


def _asks(route: RouteSnapshot, matcher: Matcher, provider: str, model: str | None) -> bool:
    for tier in route.asked():
        if tier.provider != provider:
            continue
        if model is None or tier.model == model or (tier.model is None and matcher.model_matches(model)):
            return True
    return False
