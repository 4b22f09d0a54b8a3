"""Idempotency, assembled: what is known of keyed requests, which outlives every policy, and the stage of each route."""

from __future__ import annotations

from typing import Final

from proxy.decisions.answers import Answers
from proxy.policy.snapshot import ProviderSnapshot, RouteSnapshot
from proxy.runtime.credentials import credential_headers, passes_credentials
from proxy.runtime.targets import Provider
from proxy.runtime.workshop import Workshop
from proxy.stages.idempotency import IdempotencyStage, KeyedCalls, KeyScope

ANSWERS: Final = ("answers",)
CALLS: Final = ("keyed calls",)
ROUTE_BITS: Final = 64


class IdempotencyParts:
    """What one policy's routes have in common: `stage` makes a route's."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._answers = shop.kept.get(ANSWERS, Answers)
        self._calls = shop.kept.get(CALLS, KeyedCalls)
        self._credentials = credential_headers(shop)

    def stage(self, route: RouteSnapshot, providers: dict[str, Provider]) -> IdempotencyStage:
        """Returns the stage that answers a route's known keys."""
        asked = [providers[tier.provider].snapshot for tier in route.asked()]
        scope = KeyScope(
            route=self._route(route),
            credentials=self._credentials if passes_credentials(route, providers) else (),
            deduplicates=_deduplicates(asked),
        )
        return IdempotencyStage(
            route.idempotency, scope, calls=self._calls, answers=self._answers, clock=self._shop.clock
        )

    def _route(self, route: RouteSnapshot) -> bytes:
        """Returns what stands for a route in its keys: a renamed one keeps it, and another of that name has its own."""
        shop = self._shop
        was = [("idempotency", route.was)] if route.was is not None else []
        drawn = shop.bits(ROUTE_BITS).to_bytes(ROUTE_BITS // 8, "big")
        return shop.kept.get(("idempotency", route.name), lambda: drawn + route.name.encode(), was=was)


def _deduplicates(asked: list[ProviderSnapshot]) -> bool:
    """Whether a request that comes again can only go where its key is known: to one provider, with one account."""
    return len(asked) == 1 and asked[0].idempotency_header is not None and len(asked[0].keys) <= 1
