"""Assembly: a snapshot, the surviving cores and the secrets become a Runtime. Pure construction, then one swap.

Nothing that lives is changed until `Runtime.go_live`: an assembly that fails changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from proxy.clock import Clock
from proxy.decisions.admission import Admission
from proxy.decisions.bodies import BodyMemory
from proxy.decisions.classification import AnyRequest, Matcher, Router
from proxy.decisions.deadline import answer_pace, phase_limits, wait_limits
from proxy.decisions.places import Places
from proxy.decisions.retry import RetryBudget
from proxy.decisions.shares import share_of
from proxy.decisions.spread import Spread
from proxy.decisions.tenants import Tenants
from proxy.observer import Observer
from proxy.plan import Equals, RoutePlan, Tier
from proxy.policy.identities import bounds_tokens, learns, of_budget, own_route
from proxy.policy.snapshot import AnswerTier, PolicySnapshot, ProviderTier, RouteSnapshot, SpreadTier, StaleTier
from proxy.policy.snapshot import Tier as WrittenTier
from proxy.ports import Bits, Rescue
from proxy.runtime import pipeline
from proxy.runtime.forwarding import ForwardedPlans, Forwarding, elsewhere, forwarding
from proxy.runtime.idempotency import IdempotencyParts
from proxy.runtime.kept_state import KeptState
from proxy.runtime.lanes import LaneParts
from proxy.runtime.merging import MergingParts
from proxy.runtime.models import TierParts
from proxy.runtime.quotas import heeds
from proxy.runtime.route_names import RouteNames
from proxy.runtime.saving import RouteSaving, SavingParts
from proxy.runtime.secrets import Secrets
from proxy.runtime.spreads import as_early, waits_of, waits_of_all
from proxy.runtime.targets import Provider
from proxy.runtime.tenants import TenantParts
from proxy.runtime.tunnels import TunnelParts
from proxy.runtime.workshop import Workshop
from proxy.stage import CallNext
from proxy.stages.answer import PolicyAnswer
from proxy.stages.classification import Classification
from proxy.stages.deadline import DeadlineStage
from proxy.stages.fallback import FallbackTiers
from proxy.stages.observation import ObservationStage
from proxy.stages.spread import Equal, spread_over
from proxy.stages.tier import ProviderTier as ProviderTierStage
from proxy.upstream.passage import Own


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What outlives every policy."""

    kept: KeptState
    admission: Admission
    observer: Observer
    rescue: Rescue
    clock: Clock
    bits: Bits
    pseudonym: str = ""
    """This process's own name in `Via`."""
    own: Own | None = None
    """What leads to this process itself; None: nothing is forwarded."""


class Runtime:
    """One policy, compiled. Requests hold their pipeline by closure and end on the policy that they began with."""

    __slots__ = ("_shop", "bodies", "call", "forwarding", "observation", "providers", "refuse", "router", "snapshot")

    def __init__(
        self,
        snapshot: PolicySnapshot,
        shop: Workshop,
        *,
        rescue: Rescue,
        router: Router,
        providers: list[Provider],
        tenants: Tenants | None,
    ) -> None:
        self.snapshot = snapshot
        self.router = router
        self.providers = providers
        self._shop = shop
        self.forwarding: Forwarding | None = None
        observation = self.observation = ObservationStage(shop.observer, rescue=rescue, clock=shop.clock)
        bodies = self.bodies = shop.kept.get(("bodies",), BodyMemory)
        self.call: CallNext = pipeline.front(observation, Classification(router, bodies, tenants))
        self.refuse = observation.refuse

    def go_live(self, now: float) -> None:
        """Applies what was collected: from here on the cores work as this policy wants."""
        self._shop.apply()
        self._shop.kept.commit(now)
        self._shop.admission.pump(now)


def assemble(snapshot: PolicySnapshot, around: Surroundings, secrets: Secrets) -> Runtime:
    """Builds the Runtime of a snapshot; changes nothing that lives."""
    shop = _workshop(snapshot, around, secrets)
    providers = {provider.name: Provider(provider, shop) for provider in snapshot.providers}
    for route in snapshot.routes or ():
        for tier in route.asked():
            if tier.model is not None:
                providers[tier.provider].name_model(tier.model)
    tenants = TenantParts(snapshot, shop)
    maker = _RouteMaker(providers, shop, tenants=tenants, idle_wait=snapshot.classes.queue)
    routes = [maker.route(route) for route in snapshot.routes or ()]
    by_provider = {name: maker.only(name, prefix=f"/{name}") for name in providers}
    default = maker.only(snapshot.providers[0].name, prefix="") if snapshot.routes is None else None
    router = Router(routes, by_provider=by_provider, default=default)
    runtime = Runtime(
        snapshot, shop, rescue=around.rescue, router=router, providers=list(providers.values()), tenants=tenants.tenants
    )
    if around.own is not None:
        plans = ForwardedPlans(routes=tuple(routes), alone=by_provider)
        tunnels = TunnelParts(shop, providers, tenants, own=around.own)
        runtime.forwarding = forwarding(snapshot, runtime.observation, plans, tunnels=tunnels, bodies=runtime.bodies)
    return runtime


def _workshop(snapshot: PolicySnapshot, around: Surroundings, secrets: Secrets) -> Workshop:
    around.kept.begin()
    shop = Workshop(
        kept=around.kept,
        admission=around.admission,
        process_places=_process_places(snapshot, around),
        fleet=snapshot.fleet,
        secrets=secrets,
        observer=around.observer,
        clock=around.clock,
        bits=around.bits,
        pseudonym=around.pseudonym,
        changes=[],
        auth_headers=frozenset(p.auth.header.lower().encode("latin-1") for p in snapshot.providers),
        commits_before=around.kept.commits,
        observe=snapshot.observe,
        counting=frozenset(provider.name for provider in snapshot.providers if bounds_tokens(provider)),
        learning=frozenset(provider.name for provider in snapshot.providers if learns(snapshot, provider)),
        heeding=frozenset(provider.name for provider in snapshot.providers if heeds(snapshot, provider)),
        classes=snapshot.classes,
        lanes=LaneParts(snapshot),
        forwarded=elsewhere(snapshot) if around.own is not None else {},
    )
    if shop.process_places is not None and snapshot.concurrency is not None:
        places, size = shop.process_places, share_of(snapshot.concurrency, snapshot.fleet, key="")
        shop.later(lambda: places.reconfigure(size))
        shop.later(lambda: places.reserve(shop.urgent_part))
    return shop


def _process_places(snapshot: PolicySnapshot, around: Surroundings) -> Places | None:
    if snapshot.concurrency is None:
        return None
    size = share_of(snapshot.concurrency, snapshot.fleet, key="")
    return around.kept.get(("process",), lambda: Places("all providers", size))


class _RouteMaker:
    """Compiles routes."""

    def __init__(
        self, providers: dict[str, Provider], shop: Workshop, *, tenants: TenantParts, idle_wait: float
    ) -> None:
        self._providers = providers
        self._shop = shop
        self._tenants = tenants
        self._idle_wait = idle_wait
        self._idempotency = IdempotencyParts(shop)
        names = RouteNames(shop)
        self._saving = SavingParts(shop, names)
        self._merging = MergingParts(shop, names)

    def route(self, route: RouteSnapshot) -> RoutePlan:
        """Compiles a route of the policy."""
        return self._plan(route, Matcher(route.match), name=route.name, prefix="")

    def only(self, name: str, *, prefix: str) -> RoutePlan:
        """Compiles the route to one provider alone (`/<provider>/…`, and a policy without routes)."""
        return self._plan(own_route(self._providers[name].snapshot), AnyRequest(), name=name, prefix=prefix)

    def _plan(self, route: RouteSnapshot, matcher: Matcher | AnyRequest, *, name: str, prefix: str) -> RoutePlan:
        shop, saving = self._shop, self._saving.of(route, self._providers)
        steps = [self._step(route, number, tier, saving) for number, tier in enumerate(route.tiers, 1)]
        tiers, waits = [tier for tier, _ in steps], sum(seconds for _, seconds in steps)
        idle_waits = self._idle_wait * sum(1 for _ in route.asked())
        deadline = DeadlineStage(total=route.total_seconds, waits=waits, idle_waits=idle_waits)
        fallback = FallbackTiers(tiers, retry=route.retry, clock=shop.clock)
        return RoutePlan(
            name=name,
            matcher=matcher,
            call=pipeline.route(
                deadline,
                fallback,
                tenants=self._tenants.stage(route, self._providers),
                idempotency=self._idempotency.stage(route, self._providers),
                saving=pipeline.Saving(
                    response_cache=saving.cache,
                    single_flight=saving.single_flight,
                    merging=self._merging.stage(route, self._providers),
                ),
            ),
            prefix=prefix,
            total=route.total_seconds,
            body_max=route.body_max,
            body_replay=route.body_replay,
            repeatable=route.repeatable,
            needs_document=_needs_document(route.asked()) or matcher.needs_model,
            reads_document=saving.single_flight is not None or route.merge is not None,
            klass=route.klass,
            class_from_header=route.class_from_header,
        )

    def _step(
        self, route: RouteSnapshot, number: int, tier: WrittenTier, saving: RouteSaving
    ) -> tuple[Tier | Equals, float]:
        """Returns what a tier does, and for how many seconds it may wait for its turn."""
        match tier:
            case AnswerTier():
                clock = self._shop.clock
                return PolicyAnswer(number=number, status=tier.status, body=tier.body, clock=clock), 0.0
            case StaleTier():
                return self._saving.stale(number, tier, saving), 0.0
            case _:
                return self._asking(route, number, tier)

    def _asking(
        self, route: RouteSnapshot, number: int, tier: ProviderTier | SpreadTier
    ) -> tuple[Tier | Equals, float]:
        """Returns what asks a provider, or several equals."""
        later = number < len(route.tiers)
        if isinstance(tier, ProviderTier):
            parts = self._parts(route, tier, later=later)
            return self._tier(number, tier, parts), waits_of(parts)
        members = [(self._parts(route, one, later=True), self._parts(route, one, later=later)) for one in tier.members]
        first = tier.members[0].provider
        equals = [
            self._equal(number, member, parts, meant=member.provider == first)
            for member, parts in zip(tier.members, members, strict=True)
        ]
        spread = Spread(tier.weights, by_weight=tier.by == "weight")
        return spread_over(equals, spread, clock=self._shop.clock), waits_of_all(members)

    def _equal(self, number: int, tier: ProviderTier, parts: tuple[TierParts, TierParts], *, meant: bool) -> Equal:
        before, last = parts
        left = partial(self._providers[tier.provider].left, observes=last.observes)
        each = (self._tier(number, tier, one, meant=meant) for one in (as_early(before), before, last))
        early, able, final = each
        return Equal(early=early, able=able, last=final, model=tier.model, left=left)

    def _tier(self, number: int, tier: ProviderTier, parts: TierParts, *, meant: bool = True) -> ProviderTierStage:
        provider = self._providers[tier.provider]
        return ProviderTierStage(
            number=number,
            provider=tier.provider,
            root=provider.snapshot.root_path,
            query="&".join(f"{name}={value}" for name, value in provider.snapshot.query),
            model=tier.model,
            fields=dict(tier.set),
            targets=provider.targets(parts),
            own_key=provider.capacity.ring is not None,
            counts_tokens=parts.counts_tokens,
            meant=meant,
        )

    def _parts(self, route: RouteSnapshot, tier: ProviderTier, *, later: bool) -> TierParts:
        observes = self._providers[tier.provider].observes or route.observe
        provider = self._providers[tier.provider].snapshot
        timeouts = provider.timeouts
        identity, *was = of_budget(route, provider)
        budget = self._shop.kept.get(identity, lambda: RetryBudget(route.retry.budget), was=was)
        self._shop.later(lambda: budget.reconfigure(route.retry.budget))
        return TierParts(
            retry=route.retry,
            budget=budget,
            phases=phase_limits(
                timeouts,
                first_byte=tier.first_byte_seconds,
                answer=tier.answer_seconds,
                idle=tier.idle_seconds,
            ),
            waits=wait_limits(timeouts, queue=tier.queue_seconds, quota_wait=tier.quota_wait_seconds, later_tier=later),
            pace=answer_pace(timeouts, answer=tier.answer_seconds, pace=tier.answer_pace),
            observes=observes,
            counts_tokens=provider.name in self._shop.counting or self._tenants.counts_tokens,
            fields=dict(tier.set),
            route=route,
        )


def _needs_document(tiers: Iterable[ProviderTier]) -> bool:
    return any(tier.model is not None or bool(tier.set) for tier in tiers)
