"""One provider, assembled: its cores from kept state, and the pipelines that it makes for its tiers and models.

Two providers at one address have a pool each, as they have limits, breakers and keys each: a connection that fails or
rests is one provider's, `connections.max` bounds it, and a removed provider drains and closes its own. A pool stays
while its provider, scheme, host and port do; TLS has no settings beyond the scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from proxy.decisions.breaker import Breaker
from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.observing import Tally
from proxy.decisions.pace import Pace, PacedLimits
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Room
from proxy.decisions.shares import share_of
from proxy.exchange import Credential, PhaseLimits
from proxy.observer import KeyChanged
from proxy.policy.identities import Identity, of_key, of_provider
from proxy.policy.snapshot import KeySnapshot, ProviderSnapshot
from proxy.runtime import pipeline
from proxy.runtime.guard import ANY_MODEL, Guard
from proxy.runtime.models import OTHER, ModelTargets, TierParts
from proxy.runtime.secrets import secret_hash
from proxy.runtime.workshop import Workshop
from proxy.stage import CallNext
from proxy.stages.admission import AdmissionStage, ObservingAdmissionStage
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage, ObservingBreakerStage
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
        self.share = self._share()
        self.places = self._places("provider", self.share) if snapshot.concurrency is not None else None
        self.connections = self._places("connections", snapshot.connections.max)
        self.room = self._kept("room", lambda: Room(snapshot.name))
        shop.later(lambda: self.room.reconfigure(snapshot.queue, share=self.share, observes=self.observes))
        self.ring = self._ring() if snapshot.keys else None
        self.pool = self._pool()
        self._named = {model for model, _ in snapshot.models}
        self._lines: dict[tuple[str, ...], Line] = {}
        self._guards: dict[str, Guard] = {}
        self._patience: dict[str, tuple[float, float]] = {}
        self._transport = Transport(
            pool=self.pool, headers=self._headers(), answer_headers=AnswerHeaders(), clock=shop.clock
        )

    def name_model(self, model: str) -> None:
        """A tier names this model: it gets cores and a label of its own."""
        self._named.add(model)

    def label(self, model: str) -> str:
        """Returns the model's name in metrics: its own where the policy names it."""
        return model if model in self._named or model == ANY_MODEL else OTHER

    def targets(self, parts: TierParts) -> ModelTargets:
        """Returns one tier's pipelines, by model."""
        return ModelTargets(self, parts, named=frozenset(self._named))

    def pipeline(self, model: str, label: str, parts: TierParts) -> CallNext:
        """Builds the pipeline of one tier and model."""
        shop = self._shop
        breaker = self._breaker(model, parts.phases)
        stages = pipeline.TargetStages(
            retry=RetryStage(
                parts.retry,
                budget=parts.budget,
                breaker=None if parts.observes else breaker,
                ring=self.ring,
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
        return pipeline.target(stages, self._transport)

    def _breaker_stage(self, breaker: Breaker, model: str, parts: TierParts) -> BreakerStage:
        clock = self._shop.clock
        if not parts.observes:
            return BreakerStage(breaker, clock=clock)
        tallies = self._tally(), self._tally(str(self.pool.address), self._scope(model))
        return ObservingBreakerStage(breaker, clock=clock, tallies=tallies)

    def _admission_stage(self, model: str, parts: TierParts) -> AdmissionStage:
        admission, limits, clock = self._shop.admission, parts.waits, self._shop.clock
        if not parts.observes:
            return AdmissionStage(admission, self._line(model), limits=limits, clock=clock)
        # Where others of this target wait for places, who only waits for a key must not stand behind them.
        line = self._line(model) if self.observes else self._line(model, "observing")
        return ObservingAdmissionStage(admission, line, limits=limits, clock=clock, tally=self._tally())

    def _paced(self, model: str, parts: TierParts) -> PacedLimits | None:
        if parts.pace is None:
            return None
        pace = self._kept("pace", Pace, str(self.pool.address), model)
        return PacedLimits(parts.phases, pace, factor=parts.pace.factor, plus=parts.pace.plus)

    def _tally(self, *rest: str) -> Tally:
        return self._kept("tally", Tally, *rest)

    def late_pipeline(self, model: str, label: str, parts: TierParts) -> CallNext | None:
        """Builds a pipeline while the policy is live: its changes apply at once. None when it is live no more.

        A request that outlives its policy must not set the cores back to what that policy wanted.
        """
        if not self._shop.live:
            return None
        made = self.pipeline(model, label, parts)
        self._shop.apply()
        return made

    def _share(self) -> int:
        snapshot = self.snapshot
        if snapshot.concurrency is None:
            return snapshot.connections.max
        granted = share_of(snapshot.concurrency, self._shop.fleet, key=snapshot.name)
        return min(granted, snapshot.connections.max)

    def _kept(self, kind: str, make: Callable[[], T], *rest: str) -> T:
        identity, *was = of_provider(kind, self.snapshot, *rest)
        return self._shop.kept.get(identity, make, was=was)

    def _places(self, kind: str, size: int, *rest: str) -> Places:
        return self._places_of(of_provider(kind, self.snapshot, *rest), size)

    def _places_of(self, identities: Sequence[Identity], size: int) -> Places:
        identity, *was = identities
        kind, *names = identity
        places = self._shop.kept.get(identity, lambda: Places(f"{kind} {'/'.join(names)}", size), was=was)
        self._shop.later(lambda: places.reconfigure(size))
        return places

    def _line(self, model: str, *apart: str) -> Line:
        if (model, *apart) not in self._lines:
            name = f"{self.snapshot.name}/{model}"
            # A pipeline builds its heads for one kind of credential: who waits in it must not be given the other kind.
            kind = (*apart, "keys") if self.snapshot.keys else apart
            line = self._kept("line", lambda: Line(name, self.room, observes=bool(apart)), model, *kind)
            limits = [self._shop.process_places, self.places, self.connections]
            if (share := self._model_share(model)) is not None:
                limits.append(self._places("model", share, model))
            bound = tuple(places for places in limits if places is not None)
            self._lines[(model, *apart)] = line
            self._shop.later(lambda: line.reconfigure(self._under_ceiling(model, bound), self.ring))
        return self._lines[(model, *apart)]

    def _model_share(self, model: str) -> int | None:
        granted = dict(self.snapshot.models).get(model)
        if granted is None:
            return None
        return share_of(granted, self._shop.fleet, key=f"{self.snapshot.name}/{model}")

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
            breaker = self._kept(
                "breaker",
                lambda: Breaker(settings, first_byte=first_byte, answer=answer, jitter=lambda: shop.bits(32) / 2**32),
                str(self.pool.address),
                scope,
            )
            name, label = self.snapshot.name, self.label(scope)
            self._guards[scope] = Guard(breaker, shop, provider=name, model=scope, label=label, room=self.room)
        guard = self._guards[scope]
        share = self._model_share(scope)
        share = self.share if share is None else min(share, self.share)

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

    def _ring(self) -> KeyRing:
        shop, name = self._shop, self.snapshot.name
        ring = self._kept("ring", KeyRing)
        keys = [self._key(snapshot) for snapshot in self.snapshot.keys]

        def changed(key_id: str, state: str, seconds: float) -> None:
            shop.observer.happened(KeyChanged(provider=name, key_id=key_id, state=state, seconds=seconds))

        shop.later(lambda: ring.reconfigure(keys, rest_seconds=self.snapshot.key_rest_seconds))
        shop.later(lambda: ring.rewire(changed))
        return ring

    def _key(self, snapshot: KeySnapshot) -> Key:
        shop, provider = self._shop, self.snapshot
        identity, *was = of_key("credential", provider, snapshot)
        key = shop.kept.get(identity, lambda: Key(snapshot.id), was=was)
        secret = shop.secrets[snapshot.source]
        auth = provider.auth
        header = (auth.header.encode("latin-1"), f"{auth.prefix}{secret}".encode())
        credential = Credential(key_id=snapshot.id, header=header)
        places = None
        if snapshot.concurrency is not None:
            share = share_of(snapshot.concurrency, shop.fleet, key=f"{provider.name}/key/{snapshot.id}")
            places = self._places_of(of_key("key", provider, snapshot), share)

        def change() -> None:
            key.id = snapshot.id
            key.weight = snapshot.weight
            key.places = places
            key.renew(credential, secret_hash(secret))

        shop.later(change)
        return key

    def _pool(self) -> Pool:
        snapshot = self.snapshot
        address = Address(scheme=snapshot.scheme, host=snapshot.host, port=snapshot.port)
        idle = snapshot.connections.idle_seconds
        pool = self._kept("pool", lambda: Pool(Dialer(address), idle_seconds=idle), str(address))

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
