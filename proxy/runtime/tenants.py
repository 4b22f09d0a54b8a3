"""Tenants, assembled: their state, which outlives every policy, and the stage that each route gets of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.decisions.counting import CountSettings
from proxy.decisions.estimates import Estimates
from proxy.decisions.tenants import Tenants, TenantSettings, TenantsSettings
from proxy.policy.snapshot import PolicySnapshot, RouteSnapshot
from proxy.runtime.models import OTHER
from proxy.runtime.targets import Provider
from proxy.runtime.workshop import Workshop
from proxy.stages.tenants import ObservingTenantStage, TenantStage, TokenCounting

IDENTITY: Final = ("tenants",)
SALT_BYTES: Final = 16


class TenantParts:
    """What one policy says of tenants: `tenants` are all that are known, `stage` makes a route's.

    `counts_tokens`: some tenant has a cap of tokens, so that every answer must tell how many there were.
    """

    def __init__(self, snapshot: PolicySnapshot, shop: Workshop) -> None:
        self._settings = snapshot.tenants
        self._shop = shop
        self.tenants = self._tenants(snapshot.tenants) if snapshot.tenants is not None else None
        rules = tuple(_rules(snapshot.tenants)) if snapshot.tenants is not None else ()
        self.counts_tokens = any(rule.tpm is not None for rule in rules)
        self._binds = any(rule != TenantSettings(klass=rule.klass, too_long_tier=rule.too_long_tier) for rule in rules)

    def _tenants(self, settings: TenantsSettings) -> Tenants:
        shop = self._shop
        tenants = shop.kept.get(IDENTITY, lambda: Tenants(shop.bits(8 * SALT_BYTES).to_bytes(SALT_BYTES, "big")))
        shop.later(lambda: tenants.reconfigure(settings, shop.clock.now()))
        return tenants

    def stage(self, route: RouteSnapshot, providers: dict[str, Provider]) -> TenantStage | None:
        """Returns the stage that holds a route's requests to their tenants' caps; None where no tenant has any."""
        if self.tenants is None or self._settings is None or not self._binds:
            return None
        observes = self._settings.observe or self._shop.observe or route.observe
        return (ObservingTenantStage if observes else TenantStage)(
            self.tenants, tokens=_counting(route, providers), tiers=len(route.tiers), clock=self._shop.clock
        )


def _rules(settings: TenantsSettings) -> Iterator[TenantSettings]:
    yield settings.default
    yield from (rule for _, rule in settings.overrides)


def _counting(route: RouteSnapshot, providers: dict[str, Provider]) -> TokenCounting:
    """Counts as the first that the route asks: nobody knows yet who will answer."""
    first = next(route.asked(), None)
    if first is None:
        unasked = Estimates()
        return TokenCounting(lambda model: unasked, CountSettings())
    provider, own = providers[first.provider], first.model
    for model in (*sorted(provider.named), OTHER):
        provider.estimates(model)
    return TokenCounting(lambda model: provider.learned(own or model), provider.snapshot.count)
