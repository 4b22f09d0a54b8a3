"""Route names: what stands for a route where work is saved. No two routes share one; a renamed one keeps its own."""

from __future__ import annotations

from proxy.policy.snapshot import RouteSnapshot
from proxy.runtime.workshop import Workshop

KIND = "saving name"


class RouteNames:
    """The names of one policy's routes: a renamed route's stays, and no other route of the policy gets it.

    Every instance makes the same ones of the same policies, so that they find each other's kept answers.
    """

    __slots__ = ("_given", "_shop")

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._given: dict[bytes, str] = {}

    def of(self, route: RouteSnapshot) -> bytes:
        """Returns the name of a route."""
        was = [(KIND, route.was)] if route.was is not None else []
        name = self._shop.kept.get((KIND, route.name), route.name.encode, was=was)
        while self._given.setdefault(name, route.name) != route.name:
            # A new route has the old name of one that is still there.
            name += b"'"
        return name
