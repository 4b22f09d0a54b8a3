"""Tenants: a runaway caller stops here, before anything is looked up or queued for it (`policy.md`, `tenants`).

Nobody waits here. A tenant's caps are held around the whole call, to the last byte of its answer; its tokens are
reserved by estimate and settled by what the attempts have used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from proxy.clock import Clock
from proxy.decisions.caps import Grant
from proxy.decisions.counting import CountSettings, charge
from proxy.decisions.estimates import Estimates
from proxy.decisions.tenants import Tenant, Tenants
from proxy.dialects.demand import demand_of
from proxy.exchange import Exchange
from proxy.observer import Merged, Observed, Would
from proxy.outcome import Outcome, Reason, refused
from proxy.stage import CallNext

FAILED: Final = 400


class TokenCounting:
    """How tokens are counted for tenants on one route: as its first target counts them.

    `estimates` gives those of the model that the caller asks for.
    """

    __slots__ = ("count", "estimates")

    def __init__(self, estimates: Callable[[str | None], Estimates], count: CountSettings) -> None:
        self.estimates = estimates
        self.count = count

    def reserved(self, exchange: Exchange) -> float:
        """Returns how many tokens to reserve."""
        size = len(exchange.request.body or b"")
        return self.estimates(exchange.model).reserve(demand_of(exchange), self.count, size=size)

    def used(self, exchange: Exchange, reserved: float) -> float:
        """Returns how many tokens all attempts have used together, each of which might have used what was reserved.

        Of a call that several requests have travelled by, each has used its own part.
        """
        estimates, stream = self.estimates(exchange.model), exchange.facts.stream
        if exchange.facts.events and (part := self._part(exchange, estimates, reserved)) is not None:
            return part
        return sum(
            charge(
                attempt,
                demand=exchange.demand,
                estimates=estimates,
                count=self.count,
                reserved=reserved,
                stream=stream,
            ).tokens
            for attempt in exchange.facts.attempts
        )

    def _part(self, exchange: Exchange, estimates: Estimates, reserved: float) -> float | None:
        """Returns what a request has used that travelled with others; None where its own attempts tell."""
        facts, demand = exchange.facts, exchange.demand
        if not any(type(event) is Merged for _, event in facts.events):
            return None
        if (usage := facts.usage) is not None:
            return usage.input - usage.cached_input * (1.0 - self.count.cached_input) + usage.output
        if facts.attempts or not 0 < facts.status < FAILED:
            return None
        return reserved if demand is None else min(estimates.input_tokens(demand), reserved)


class TenantStage:
    """Holds a request to its tenant's caps and context budget. `tiers` is how many the route has."""

    __slots__ = ("_clock", "_tenants", "_tiers", "_tokens")

    def __init__(self, tenants: Tenants, *, tokens: TokenCounting, tiers: int, clock: Clock) -> None:
        self._tenants = tenants
        self._tokens = tokens
        self._tiers = tiers
        self._clock = clock

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        """Refuses, or makes the call with all caps taken."""
        now = self._clock.now()
        tenant = self._tenants.of(exchange.facts.tenant, now)
        if (problem := self._budget(exchange, tenant, now)) is not None:
            return problem
        tokens = self._tokens.reserved(exchange) if tenant.settings.tpm is not None else 0.0
        grant = self._enter(exchange, tenant, tokens, now)
        if isinstance(grant, Outcome):
            return grant
        try:
            return await call_next(exchange)
        finally:
            used = self._tokens.used(exchange, grant.tokens) if grant.bucket is not None else 0.0
            grant.give_back(used, self._clock.now())

    def _enter(self, exchange: Exchange, tenant: Tenant, tokens: float, now: float) -> Grant | Outcome:
        refusal = tenant.caps.refusal(tokens, now)
        if refusal is None:
            return tenant.caps.take(tokens, now)
        tenant.refused += 1
        return refusal

    def _budget(self, exchange: Exchange, tenant: Tenant, now: float) -> Outcome | None:
        """Holds the prompt to the tenant's budget: a longer one begins with a tier that takes it, or is refused."""
        most = tenant.settings.context_tokens
        if most is None or (demand := demand_of(exchange)) is None:
            return None
        tokens = self._tokens.estimates(exchange.model).input_tokens(demand)
        return self._too_long(exchange, tenant, tokens, now) if tokens > most else None

    def _too_long(self, exchange: Exchange, tenant: Tenant, tokens: float, now: float) -> Outcome | None:
        tier = tenant.settings.too_long_tier
        if tier is not None and tier <= self._tiers:
            exchange.first_tier = tier
            return None
        tenant.refused += 1
        most = tenant.settings.context_tokens
        detail = f"about {tokens:.0f} tokens of input are more than this tenant's context_tokens: {most}"
        if tier is not None:
            detail += f", and this route has no tier {tier} to take them"
        return refused(Reason.CONTEXT_TOO_LONG, detail=detail)


class ObservingTenantStage(TenantStage):
    """Lets every request go, and counts those that were above a cap or a budget (`mode: observe`).

    What would have been refused is in flight, and takes nothing of the rates: enforced, it would not have either.
    """

    __slots__ = ()

    def _enter(self, exchange: Exchange, tenant: Tenant, tokens: float, now: float) -> Grant | Outcome:
        if tenant.caps.refusal(tokens, now) is None:
            return tenant.caps.take(tokens, now)
        _note(exchange, tenant, Would.TENANT_LIMIT, now)
        return tenant.caps.pass_by(now)

    def _too_long(self, exchange: Exchange, tenant: Tenant, tokens: float, now: float) -> Outcome | None:
        _note(exchange, tenant, Would.CONTEXT_TOO_LONG, now)
        return None


def _note(exchange: Exchange, tenant: Tenant, would: Would, now: float) -> None:
    tenant.would[would] += 1
    exchange.note(now, Observed(provider="", tier=0, would=would))
