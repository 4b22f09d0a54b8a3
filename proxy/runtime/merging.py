"""Merging, assembled: the lanes of the process, which outlive every policy, and the stage of each route."""

from __future__ import annotations

from typing import Final

from proxy.decisions.answers import Answers
from proxy.dialects.batchable import most_inputs
from proxy.policy.snapshot import ProviderSnapshot, RouteSnapshot, StaleTier
from proxy.runtime.credentials import credential_headers, passes_credentials
from proxy.runtime.idempotency import ANSWERS
from proxy.runtime.route_names import RouteNames
from proxy.runtime.targets import Provider
from proxy.runtime.workshop import Workshop
from proxy.stages.merging import MergeLanes, MergeScope, MergingStage

LANES: Final = ("merge lanes",)
UNKNOWN: Final = 1 << 30
"""Of a host that nothing is known of: the policy says how many travel together."""


class MergingParts:
    """What one policy's routes have in common: `stage` makes a route's."""

    def __init__(self, shop: Workshop, names: RouteNames) -> None:
        self._shop = shop
        self._names = names
        self._ledger = shop.kept.get(ANSWERS, Answers)
        self._lanes = shop.kept.get(LANES, MergeLanes)
        self._credentials = credential_headers(shop)

    def stage(self, route: RouteSnapshot, providers: dict[str, Provider]) -> MergingStage | None:
        """Returns the stage that merges a route's requests; None where the policy merges none."""
        settings = route.merge
        if settings is None:
            return None
        asked = [providers[tier.provider].snapshot for tier in route.asked()]
        apart = settings.scope == "credential" or passes_credentials(route, providers)
        scope = MergeScope(
            route=self._names.of(route),
            whose=settings.scope,
            credentials=self._credentials if apart else (),
            headers=tuple(name for name, _ in route.match.header),
            most=min(map(_most, asked), default=UNKNOWN),
            stale_tier=next((n for n, tier in enumerate(route.tiers, 1) if isinstance(tier, StaleTier)), None),
        )
        return MergingStage(settings, scope, lanes=self._lanes, ledger=self._ledger, clock=self._shop.clock)


def _most(provider: ProviderSnapshot) -> int:
    """Returns how many inputs one call to a provider may carry."""
    if provider.max_inputs is not None:
        return provider.max_inputs
    return min((most for one in provider.addresses if (most := most_inputs(one.host)) is not None), default=UNKNOWN)
