"""Real cores and real stages, put together in THE ORDER, over a scripted terminal and a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from proxy.decisions.admission import Admission
from proxy.decisions.answers import Answers
from proxy.decisions.bodies import BodyMemory
from proxy.decisions.breaker import Breaker, BreakerSettings
from proxy.decisions.classification import AnyRequest, Router
from proxy.decisions.counting import CountSettings
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.estimates import Estimates
from proxy.decisions.idempotency import IdempotencySettings
from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Refusal
from proxy.decisions.quota import Bucket
from proxy.decisions.retry import RetryBudget, RetrySettings
from proxy.decisions.room import QueueSettings, Room
from proxy.decisions.tenants import Tenants, TenantSettings, TenantsSettings
from proxy.decisions.ticket import Ticket
from proxy.decisions.verdict import Verdict
from proxy.downstream.rescue import rescue
from proxy.exchange import Credential
from proxy.outcome import KeptAnswer, Outcome, OutcomeKind, Reason, kind_of_status
from proxy.plan import RoutePlan, Tier
from proxy.runtime import pipeline
from proxy.stage import CallNext
from proxy.stages.admission import AdmissionStage, Terms
from proxy.stages.answer import PolicyAnswer
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage
from proxy.stages.classification import Classification
from proxy.stages.deadline import DeadlineStage
from proxy.stages.fallback import FallbackTiers
from proxy.stages.idempotency import IdempotencyStage, KeyedCalls, KeyScope
from proxy.stages.metering import Meter
from proxy.stages.observation import ObservationStage
from proxy.stages.retry import RetryStage
from proxy.stages.tenants import TenantStage, TokenCounting
from proxy.stages.tier import ProviderTier
from tests.fakes import LIMITS, FakeClock, answered, counting_bits
from tests.scripted import ManualObserver, ScriptedTerminal

WAITS = WaitLimits(queue=10.0, quota_wait=30.0)
BREAKER = BreakerSettings(consecutive=3, min_calls=100, probes=1, open_first=5.0, open_cap=5.0)
FIRST_BYTE = 30.0


class WatchedBreaker(Breaker):
    """A breaker that remembers whom it let go."""

    def __init__(self, settings: BreakerSettings = BREAKER) -> None:
        super().__init__(settings, first_byte=FIRST_BYTE, jitter=lambda: 0.0)
        self.tickets: list[Ticket] = []

    def acquire(self, now: float, *, stream: bool) -> Ticket | None:
        """Remembers the ticket."""
        ticket = super().acquire(now, stream=stream)
        if ticket is not None:
            self.tickets.append(ticket)
        return ticket


def tripped(breaker: Breaker, now: float) -> None:
    """Opens a breaker by failures in a row."""
    for _ in range(breaker.settings.consecutive):
        ticket = breaker.acquire(now, stream=False)
        assert ticket is not None
        ticket.on_wire(now)
        ticket.end(Verdict.FAILURE, now)


class RecordingAdmission(Admission):
    """Remembers every permit that came back."""

    def __init__(self) -> None:
        super().__init__()
        self.back: list[Permit] = []

    def returned(self, permit: Permit, now: float) -> None:
        """Remembers it."""
        self.back.append(permit)
        super().returned(permit, now)


class Quota:
    """A bucket of requests and one of tokens that are never full, so that nothing of what comes back is lost."""

    def __init__(self, now: float, *, requests: float, tokens: float) -> None:
        self.began_at = now
        self.begun = requests, tokens
        self.buckets = Bucket("rpm", now), Bucket("tpm", now)
        for bucket, rate, level in zip(self.buckets, (12.0, 1200.0), self.begun, strict=True):
            bucket.reconfigure(rate, now, burst=1e6, most=inf)
            bucket.take(0.0, now)
            bucket.give(level, now)

    def gone(self, now: float) -> tuple[float, float]:
        """How many requests and tokens were taken and have not come back."""
        passed = now - self.began_at
        requests, tokens = (
            begun + bucket.rate * passed - bucket.level(now)
            for begun, bucket in zip(self.begun, self.buckets, strict=True)
        )
        return requests, tokens


class Provider:
    """Every core of one target, and its pipeline; `keys` are ids, `share` is the number of its permits."""

    def __init__(self, name: str, clock: FakeClock, admission: Admission, *, share: int = 1, keys: str = "") -> None:
        self.name = name
        self.clock = clock
        self.admission = admission
        self.settings = RetrySettings(attempts=2, base=1.0, cap=1.0)
        self.places = Places(f"provider {name}", share)
        self.room = Room(name)
        self.room.reconfigure(QueueSettings(), share=share)
        self.ring = ring_of(keys.split()) if keys else None
        self.line = Line(f"{name}/m1", self.room)
        self.line.reconfigure((self.places,), self.ring)
        self.breaker = WatchedBreaker()
        self.breaker.rewire(lambda change: self._changed(change.new.value))
        self.budget = RetryBudget(0.2)
        self.quota: Quota | None = None
        self.terms = Terms()

    def meter(self, *, requests: float, tokens: float) -> None:
        """Bounds its requests and tokens, of which so many are there; the pipelines made from now on count them."""
        quota = self.quota = Quota(self.clock.now(), requests=requests, tokens=tokens)
        self.line.reconfigure((self.places,), self.ring, requests=quota.buckets[:1], tokens=quota.buckets[1:])
        meter = Meter(Estimates(), CountSettings(), fields={}, reserves=True)
        self.terms = Terms(meter=meter, settles=True)

    def _changed(self, state: str) -> None:
        if state == "open":
            self.admission.flush(self.line, Refusal(reason=Reason.BREAKER_OPEN, retry_after=1.0), self.clock.now())

    def pipeline(self, terminal: CallNext, *, waits: WaitLimits = WAITS) -> CallNext:
        """The target's pipeline, as the runtime composes it."""
        stages = pipeline.TargetStages(
            retry=RetryStage(
                self.settings,
                budget=self.budget,
                breaker=self.breaker,
                ring=self.ring,
                longest_rest=waits.quota_wait,
                clock=self.clock,
            ),
            breaker=BreakerStage(self.breaker, clock=self.clock),
            admission=AdmissionStage(self.admission, self.line, limits=waits, clock=self.clock, terms=self.terms),
            attempt=AttemptStage(provider=self.name, model="m1", limits=LIMITS, clock=self.clock, bits=counting_bits),
        )
        return pipeline.target(stages, terminal)

    def trip(self) -> None:
        """Opens the breaker by failures in a row."""
        tripped(self.breaker, self.clock.now())


class OneTarget:
    """A tier's pipelines: one for every model."""

    def __init__(self, call: CallNext) -> None:
        self._call = call

    def of(self, model: str | None) -> tuple[str, CallNext]:
        """Returns it."""
        return "m1", self._call


class World:
    """Two providers, alpha and beta, and one route that asks them in this order, then answers by itself."""

    def __init__(self, *, alpha_keys: str = "", share: int = 1) -> None:
        self.clock = FakeClock()
        self.observer = ManualObserver()
        self.admission = RecordingAdmission()
        self.bodies = BodyMemory()
        self.keyed, self.answers = KeyedCalls(), Answers()
        self.tenants: Tenants | None = None
        self.alpha = Provider("alpha", self.clock, self.admission, share=share, keys=alpha_keys)
        self.beta = Provider("beta", self.clock, self.admission, share=share)
        self.providers = (self.alpha, self.beta)

    def call(self, alpha: CallNext, beta: CallNext | None = None, *, answer: bool = False) -> CallNext:
        """The whole pipeline; without `beta` the route has one provider tier."""
        tiers: list[Tier] = [self._tier(1, self.alpha, alpha)]
        if beta is not None:
            tiers.append(self._tier(2, self.beta, beta))
        if answer:
            number = len(tiers) + 1
            tiers.append(PolicyAnswer(number=number, status=200, body=b'{"note":1}', clock=self.clock))
        fallback = FallbackTiers(tiers, retry=self.alpha.settings, clock=self.clock)
        deadline = DeadlineStage(total=600.0, waits=40.0, idle_waits=600.0)
        idempotency = IdempotencyStage(
            IdempotencySettings(), KeyScope(route=b"chat"), calls=self.keyed, answers=self.answers, clock=self.clock
        )
        route = pipeline.route(deadline, fallback, tenants=self._tenant_stage(), idempotency=idempotency)
        plan = make_plan(route)
        observation = ObservationStage(self.observer, rescue=rescue, clock=self.clock)
        router = Router([], by_provider={}, default=plan)
        return pipeline.front(observation, Classification(router, self.bodies, self.tenants))

    def cap(self, caps: TenantSettings) -> None:
        """Gives every tenant these caps, in the pipelines that are made from now on."""
        self.tenants = Tenants(b"salt")
        self.tenants.reconfigure(TenantsSettings(default=caps), self.clock.now())

    def _tenant_stage(self) -> TenantStage | None:
        if self.tenants is None:
            return None
        estimates = Estimates()
        tokens = TokenCounting(lambda model: estimates, CountSettings())
        return TenantStage(self.tenants, tokens=tokens, tiers=1, clock=self.clock)

    def _tier(self, number: int, provider: Provider, terminal: CallNext) -> ProviderTier:
        return ProviderTier(
            number=number,
            provider=provider.name,
            root="/v1",
            query="",
            model=None,
            fields={},
            targets=OneTarget(provider.pipeline(terminal)),
            own_key=provider.ring is not None,
        )

    def tick(self) -> None:
        """What the process does every few milliseconds."""
        now = self.clock.now()
        self.admission.tick(now)
        for provider in self.providers:
            provider.breaker.tick(now)


def make_plan(call: CallNext, *, name: str = "chat", body_max: int = 1 << 20) -> RoutePlan:
    """A route that takes anything."""
    return RoutePlan(
        name=name,
        matcher=AnyRequest(),
        call=call,
        total=600.0,
        body_max=body_max,
        body_replay=1 << 20,
        repeatable=None,
        needs_document=False,
    )


def ring_of(ids: Sequence[str]) -> KeyRing:
    """A ring of usable keys."""
    keys = []
    for key_id in ids:
        key = Key(key_id)
        key.renew(Credential(key_id=key_id, header=(b"authorization", b"Bearer s")), f"hash of {key_id}")
        keys.append(key)
    ring = KeyRing()
    ring.reconfigure(keys, rest_seconds=60.0)
    return ring


def failed(status: int = 500) -> Outcome:
    """The outcome of a failing answer that was held back."""
    body = b"failed: %d" % status
    kept = KeptAnswer(status=status, phrase=b"Failed", lines=b"content-type: text/plain\r\n", body=body)
    return Outcome(kind_of_status(status), status=status, answer=kept)


def unanswered(kind: OutcomeKind, *, maybe_executed: bool = False) -> Outcome:
    """The outcome of a call to which the provider said nothing."""
    return Outcome(kind, maybe_executed=maybe_executed)


def plain() -> ScriptedTerminal:
    """A terminal that answers every call."""
    return ScriptedTerminal(answered())
