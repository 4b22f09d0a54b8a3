"""One provider, assembled: its cores from kept state, and the pipelines that it makes for its tiers and models."""

from __future__ import annotations

from typing import TypeVar

from proxy.decisions.addresses import Addresses
from proxy.decisions.breaker import Breaker
from proxy.decisions.estimates import Estimates
from proxy.decisions.observing import Tally
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.exchange import PhaseLimits
from proxy.policy.identities import bounds_tokens, of_provider
from proxy.policy.snapshot import ProviderSnapshot
from proxy.runtime import pipeline
from proxy.runtime.addresses import AddressBook
from proxy.runtime.capacity import OBSERVING, Capacity
from proxy.runtime.cores import Cores
from proxy.runtime.guard import ANY_MODEL, Guard
from proxy.runtime.models import OTHER, ModelTargets, TierParts
from proxy.runtime.quotas import bounds_rates
from proxy.runtime.spreads import part_left
from proxy.runtime.upstreams import Call, Upstream
from proxy.runtime.workshop import Workshop
from proxy.stage import CallNext
from proxy.stages.addresses import AddressChoice, AddressGate
from proxy.stages.admission import AdmissionStage, ObservingAdmissionStage, Terms
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage
from proxy.stages.context import ContextStage, ObservingContextStage
from proxy.stages.metering import Meter
from proxy.stages.retry import DeduplicatedRetryStage, Opening, RetryStage

T = TypeVar("T")


class Provider:
    """A provider's living parts, as one policy wants them."""

    def __init__(self, snapshot: ProviderSnapshot, shop: Workshop) -> None:
        self.snapshot = snapshot
        self._shop = shop
        self.observes = shop.observe or snapshot.observe
        self._cores = Cores(snapshot, shop)
        self.capacity = Capacity(self._cores, observes=self.observes)
        self._upstreams = [Upstream(address, self._cores) for address in snapshot.addresses]
        self._book = AddressBook(self._cores, self._upstreams) if len(self._upstreams) > 1 else None
        self._named = {model.name for model in snapshot.models}
        self._estimates: dict[str, Estimates] = {}
        self._guards: dict[str, list[Guard]] = {}

    def name_model(self, model: str) -> None:
        """A tier names this model: it gets cores and a label of its own."""
        self._named.add(model)

    @property
    def named(self) -> frozenset[str]:
        """The models that the policy names."""
        return frozenset(self._named)

    def estimates(self, model: str) -> Estimates:
        """Returns how many tokens the calls of a model usually take."""
        found = self._estimates.get(model)
        if found is None:
            found = self._estimates[model] = self._cores.kept("estimates", Estimates, model)
        return found

    def learned(self, model: str | None) -> Estimates:
        """Returns those of the model that a caller asks for; of one that was never asked for, those of all such."""
        return self._estimates.get(model or OTHER) or self.estimates(OTHER)

    def label(self, model: str) -> str:
        """Returns the model's name in metrics: its own where the policy names it."""
        return model if model in self._named or model == ANY_MODEL else OTHER

    def targets(self, parts: TierParts) -> ModelTargets:
        """Returns one tier's pipelines, by model."""
        for model in sorted(self._waited_for() - self._named):
            # Only for the queue's sake: who waits in it must be bound by this policy from the swap on.
            self.pipeline(model, OTHER, parts)
        return ModelTargets(self, parts, named=self.named)

    def _waited_for(self) -> set[str]:
        """Returns the models in whose queues somebody waits, whatever the provider was called when they came."""
        names = {identity[1] for identity in of_provider("line", self.snapshot)}
        lines = ((identity, line) for identity, line, _ in self._shop.kept.all(Line) if any(line.waiters))
        return {str(identity[2]) for identity, _ in lines if identity[1] in names}

    def left(self, model: str | None, now: float, *, observes: bool) -> float:
        """Returns which part (0-1) of what the calls of a model may have is left; 0 where one could not go now."""
        name = model or OTHER
        if not observes and not self._lets_go(self._scope(name), now):
            return 0.0
        return part_left(self.capacity.found(name, *self._apart(observes)), now)

    def _lets_go(self, scope: str, now: float) -> bool:
        return all(guard.lets_go(now) for guard in self._guards.get(scope, ())[:1])

    def pipeline(self, model: str, label: str, parts: TierParts) -> CallNext:
        """Builds the pipeline of one tier and model."""
        scope = self._scope(model)
        breakers = self._breakers(scope, parts.phases)
        calls = [
            upstream.call(model, label, parts, breaker, scope=scope)
            for upstream, breaker in zip(self._upstreams, breakers, strict=True)
        ]
        opening: Opening | None = breakers[0]
        gate: BreakerStage | AddressGate | None
        attempt: AttemptStage | None
        gate, attempt, terminal = calls[0]
        if (addresses := self._addresses(scope, breakers)) is not None:
            opening, attempt, terminal = addresses, None, self._choice(addresses, calls)
            gate = AddressGate(addresses, clock=self._shop.clock) if not parts.observes else None
        stages = pipeline.TargetStages(
            retry=self._retry_stage(parts, opening if not parts.observes else None),
            breaker=gate,
            admission=self._admission_stage(model, parts),
            attempt=attempt,
        )
        return pipeline.target(stages, terminal, context=self._context_stage(model, parts))

    def _choice(self, addresses: Addresses, calls: list[Call]) -> AddressChoice:
        each = [pipeline.address(*call) for call in calls]
        return AddressChoice(addresses, each, provider=self.snapshot.name, clock=self._shop.clock)

    def _retry_stage(self, parts: TierParts, opening: Opening | None) -> RetryStage:
        knows_keys = self.snapshot.idempotency_header is not None
        return (DeduplicatedRetryStage if knows_keys else RetryStage)(
            parts.retry,
            budget=parts.budget,
            breaker=opening,
            ring=self.capacity.ring,
            longest_rest=parts.waits.quota_wait,
            clock=self._shop.clock,
        )

    def _context_stage(self, model: str, parts: TierParts) -> ContextStage | None:
        most = self.snapshot.model(model).context_tokens
        if most is None:
            return None
        estimates = self.estimates(model)
        if not parts.observes:
            return ContextStage(most, model=model, estimates=estimates)
        tally, clock = self._tally(), self._shop.clock
        return ObservingContextStage(most, model=model, estimates=estimates, tally=tally, clock=clock)

    def _admission_stage(self, model: str, parts: TierParts) -> AdmissionStage:
        shop, capacity, ceiling = self._shop, self.capacity, self._under_ceiling
        apart = self._apart(parts.observes)
        line = capacity.line(model, *apart, ceiling=ceiling)
        terms = Terms(
            classes=shop.classes,
            lanes=capacity.lanes(model, parts, *apart, ceiling=ceiling),
            meter=self._meter(model, parts),
            adapting=capacity.adapting,
            settles=any(self.snapshot.name in names for names in (shop.learning, shop.heeding))
            or bounds_rates(self.snapshot),
            instances=shop.fleet.size,
            audience=capacity.audience,
            credentials=capacity.credentials,
        )
        if not parts.observes:
            return AdmissionStage(shop.admission, line, limits=parts.waits, clock=shop.clock, terms=terms)
        tally = self._tally()
        return ObservingAdmissionStage(
            shop.admission, line, limits=parts.waits, clock=shop.clock, terms=terms, tally=tally
        )

    def _meter(self, model: str, parts: TierParts) -> Meter | None:
        snapshot = self.snapshot
        if snapshot.name not in self._shop.learning:
            return None
        reserves = bounds_tokens(snapshot)
        return Meter(self.estimates(model), snapshot.count, fields=parts.fields, reserves=reserves)

    def _apart(self, observes: bool) -> tuple[str, ...]:
        return (OBSERVING,) if observes and not self.observes else ()

    def _tally(self, *rest: str) -> Tally:
        return self._cores.kept("tally", Tally, *rest)

    def late_pipeline(self, model: str, label: str, parts: TierParts) -> CallNext | None:
        """Builds a pipeline while the policy is live: its changes apply at once. None when it is live no more.

        A request that outlives its policy must not set the cores back to what that policy wanted.
        """
        if not self._shop.live:
            return None
        made = self.pipeline(model, label, parts)
        self._shop.apply()
        return made

    def _scope(self, model: str) -> str:
        breaker = self.snapshot.breaker
        return ANY_MODEL if breaker is not None and breaker.per_provider else model

    def _under_ceiling(self, model: str, limits: tuple[Places, ...]) -> tuple[Places, ...]:
        scope = self._scope(model)
        if self._book is not None:
            return self._book.bound(scope, limits)
        guards = self._guards.get(scope)
        return guards[0].bound(limits) if guards else limits

    def _breakers(self, scope: str, phases: PhaseLimits) -> list[Breaker | None]:
        """Returns the breakers of a scope, one for each address, and puts them in their places."""
        settings, shop = self.snapshot.breaker, self._shop
        if settings is None:
            return [None] * len(self._upstreams)
        shares = self.capacity.share, self.capacity.model_share(scope), self.snapshot.connections.max
        share = min(one for one in shares if one is not None)
        breakers = [upstream.breaker(settings, scope, phases, share=share) for upstream in self._upstreams]
        if scope not in self._guards:
            self._guards[scope] = [self._guard(breaker, scope) for breaker in breakers]
        for guard in self._guards[scope]:
            shop.later(guard.take_over)
        return list(breakers)

    def _guard(self, breaker: Breaker, scope: str) -> Guard:
        name, room = self.snapshot.name, self.capacity.room
        return Guard(breaker, self._shop, provider=name, model=scope, label=self.label(scope), room=room)

    def _addresses(self, scope: str, breakers: list[Breaker | None]) -> Addresses | None:
        """Returns who chooses among several addresses; None where there is one."""
        if self._book is None:
            return None
        addresses = self._book.of(scope, breakers)
        for guard in self._guards.get(scope, ()):
            guard.addresses = addresses
        return addresses
