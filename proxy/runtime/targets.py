"""One provider, assembled: its cores from kept state, and the pipelines that it makes for its tiers and models.

Two providers at one address have a pool each, as they have limits, breakers and keys each: a connection that fails or
rests is one provider's, `connections.max` bounds it, and a removed provider drains and closes its own. A pool stays
while its provider, scheme, host and port do; TLS has no settings beyond the scheme.
"""

from __future__ import annotations

from typing import TypeVar

from proxy.decisions.breaker import Breaker
from proxy.decisions.estimates import Estimates
from proxy.decisions.observing import Tally
from proxy.decisions.pace import Pace, PacedLimits
from proxy.decisions.places import Places
from proxy.exchange import PhaseLimits
from proxy.policy.snapshot import ProviderSnapshot
from proxy.runtime import pipeline
from proxy.runtime.capacity import Capacity
from proxy.runtime.cores import Cores
from proxy.runtime.guard import ANY_MODEL, Guard
from proxy.runtime.models import OTHER, ModelTargets, TierParts
from proxy.runtime.workshop import Workshop
from proxy.stage import CallNext
from proxy.stages.admission import AdmissionStage, ObservingAdmissionStage
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage, ObservingBreakerStage
from proxy.stages.context import ContextStage, ObservingContextStage
from proxy.stages.retry import RetryStage
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from proxy.upstream.pool import Pool
from proxy.upstream.transport import Transport

T = TypeVar("T")


class Provider:
    """A provider's living parts, as one policy wants them."""

    def __init__(self, snapshot: ProviderSnapshot, shop: Workshop) -> None:
        self.snapshot = snapshot
        self._shop = shop
        self.observes = shop.observe or snapshot.observe
        self._cores = Cores(snapshot, shop)
        self.capacity = Capacity(self._cores, observes=self.observes)
        self.pool = self._pool()
        self._named = {model.name for model in snapshot.models}
        self._guards: dict[str, Guard] = {}
        self._patience: dict[str, tuple[float, float]] = {}
        self._transport = Transport(
            pool=self.pool, headers=self._headers(), answer_headers=AnswerHeaders(), clock=shop.clock
        )

    def name_model(self, model: str) -> None:
        """A tier names this model: it gets cores and a label of its own."""
        self._named.add(model)

    @property
    def named(self) -> frozenset[str]:
        """The models that the policy names."""
        return frozenset(self._named)

    def estimates(self, model: str) -> Estimates:
        """Returns how many tokens the calls of a model usually take; models that callers invent share those of one."""
        return self._cores.kept("estimates", Estimates, self.label(model))

    def label(self, model: str) -> str:
        """Returns the model's name in metrics: its own where the policy names it."""
        return model if model in self._named or model == ANY_MODEL else OTHER

    def targets(self, parts: TierParts) -> ModelTargets:
        """Returns one tier's pipelines, by model."""
        return ModelTargets(self, parts, named=self.named)

    def pipeline(self, model: str, label: str, parts: TierParts) -> CallNext:
        """Builds the pipeline of one tier and model."""
        shop = self._shop
        breaker = self._breaker(model, parts.phases)
        stages = pipeline.TargetStages(
            retry=RetryStage(
                parts.retry,
                budget=parts.budget,
                breaker=None if parts.observes else breaker,
                ring=self.capacity.ring,
                longest_rest=parts.waits.quota_wait,
                clock=shop.clock,
            ),
            breaker=self._breaker_stage(breaker, model, parts) if breaker is not None else None,
            admission=self._admission_stage(model, parts),
            attempt=AttemptStage(
                provider=self.snapshot.name,
                model=label,
                limits=parts.phases,
                clock=shop.clock,
                bits=shop.bits,
                paced=self._paced(model, parts),
            ),
        )
        return pipeline.target(stages, self._transport, context=self._context_stage(model, parts))

    def _context_stage(self, model: str, parts: TierParts) -> ContextStage | None:
        most = self.snapshot.model(model).context_tokens
        if most is None:
            return None
        estimates = self.estimates(model)
        if not parts.observes:
            return ContextStage(most, model=model, estimates=estimates)
        tally, clock = self._tally(), self._shop.clock
        return ObservingContextStage(most, model=model, estimates=estimates, tally=tally, clock=clock)

    def _breaker_stage(self, breaker: Breaker, model: str, parts: TierParts) -> BreakerStage:
        clock = self._shop.clock
        if not parts.observes:
            return BreakerStage(breaker, clock=clock)
        tallies = self._tally(), self._tally(str(self.pool.address), self._scope(model))
        return ObservingBreakerStage(breaker, clock=clock, tallies=tallies)

    def _admission_stage(self, model: str, parts: TierParts) -> AdmissionStage:
        admission, limits, clock = self._shop.admission, parts.waits, self._shop.clock
        if not parts.observes:
            line = self.capacity.line(model, ceiling=self._under_ceiling)
            return AdmissionStage(admission, line, limits=limits, clock=clock)
        # Where others of this target wait for places, who only waits for a key must not stand behind them.
        apart = () if self.observes else ("observing",)
        line = self.capacity.line(model, *apart, ceiling=self._under_ceiling)
        return ObservingAdmissionStage(admission, line, limits=limits, clock=clock, tally=self._tally())

    def _paced(self, model: str, parts: TierParts) -> PacedLimits | None:
        if parts.pace is None:
            return None
        pace = self._cores.kept("pace", Pace, str(self.pool.address), model)
        return PacedLimits(parts.phases, pace, factor=parts.pace.factor, plus=parts.pace.plus)

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
        guard = self._guards.get(self._scope(model))
        return guard.bound(limits) if guard is not None else limits

    def _breaker(self, model: str, phases: PhaseLimits) -> Breaker | None:
        settings, shop = self.snapshot.breaker, self._shop
        if settings is None:
            return None
        scope = self._scope(model)
        first_byte, answer = self._most_patient(scope, phases)
        if scope not in self._guards:
            breaker = self._cores.kept(
                "breaker",
                lambda: Breaker(settings, first_byte=first_byte, answer=answer, jitter=lambda: shop.bits(32) / 2**32),
                str(self.pool.address),
                scope,
            )
            name, label = self.snapshot.name, self.label(scope)
            self._guards[scope] = Guard(breaker, shop, provider=name, model=scope, label=label, room=self.capacity.room)
        guard = self._guards[scope]
        share = self.capacity.model_share(scope)
        share = self.capacity.share if share is None else min(share, self.capacity.share)

        def change() -> None:
            first_byte, answer = self._patience[scope]
            guard.breaker.reconfigure(settings, first_byte=first_byte, answer=answer, share=share)

        shop.later(change)
        shop.later(guard.take_over)
        return guard.breaker

    def _most_patient(self, scope: str, phases: PhaseLimits) -> tuple[float, float]:
        """Several tiers may share a breaker: a call is slow, and a probe late, by the most patient of them."""
        first_byte, answer = self._patience.get(scope, (0.0, 0.0))
        found = self._patience[scope] = max(phases.first_byte, first_byte), max(phases.answer, answer)
        return found

    def _pool(self) -> Pool:
        snapshot = self.snapshot
        address = Address(scheme=snapshot.scheme, host=snapshot.host, port=snapshot.port)
        idle = snapshot.connections.idle_seconds
        pool = self._cores.kept("pool", lambda: Pool(Dialer(address), idle_seconds=idle), str(address))

        def change() -> None:
            pool.idle_seconds = idle

        self._shop.later(change)
        return pool

    def _headers(self) -> HeaderPlan:
        snapshot, secrets = self.snapshot, self._shop.secrets
        default = {"http": 80, "https": 443}[snapshot.scheme]
        host = f"[{snapshot.host}]" if ":" in snapshot.host else snapshot.host
        return HeaderPlan(
            host=host if snapshot.port == default else f"{host}:{snapshot.port}",
            added=[(name.encode("latin-1"), secrets[source].encode()) for name, source in snapshot.headers],
            own_credential=bool(snapshot.keys),
            auth_headers=self._shop.auth_headers,
            propagate_trace=snapshot.propagate_trace,
        )
