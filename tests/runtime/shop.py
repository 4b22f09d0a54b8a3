"""Policies assembled over cores that outlive them, as the process does it, without a socket."""

from __future__ import annotations

from typing import Any, TypeVar

from proxy.decisions.admission import Admission
from proxy.decisions.breaker import Breaker
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.decisions.verdict import Verdict
from proxy.downstream.rescue import rescue
from proxy.outcome import Outcome, OutcomeKind
from proxy.plan import RoutePlan
from proxy.policy.snapshot import PolicySnapshot
from proxy.runtime.assembly import Runtime, Surroundings, assemble
from proxy.runtime.kept_state import KeptState
from proxy.runtime.models import ModelTargets
from proxy.runtime.secrets import Secrets
from proxy.stages.fallback import FallbackTiers
from proxy.stages.tier import ProviderTier
from proxy.upstream.pool import Pool
from tests.fakes import FakeClock, counting_bits
from tests.policy.samples import load
from tests.scripted import ManualObserver, within

T = TypeVar("T")
POLICY = """\
version: 1
limits: {concurrency: 50}
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    keys: [{id: a1, env: KEY_1}, {id: a2, env: KEY_2, concurrency: 5}]
    limits: {concurrency: 10}
    models: {large: {limits: {concurrency: 3}}}
    breaker: {consecutive: 4}
  beta:
    base_url: http://127.0.0.1:9/v1
routes:
  - name: chat
    match: {path: /v1/chat/completions}
    tiers: [{provider: alpha, model: large}, {provider: beta}]
    retry: {budget: 0.2}
  - name: rest
    match: {path: "/v1/*"}
    tiers: [{provider: alpha}]
"""
SECRETS = {"KEY_1": "s1", "KEY_2": "s2", "KEY_3": "s3"}

WAITS = WaitLimits(queue=10.0, quota_wait=30.0)


class Shop:
    """What outlives every policy, and the policy that is live."""

    def __init__(self, environ: dict[str, str] | None = None) -> None:
        self.clock = FakeClock()
        self.observer = ManualObserver()
        self.kept = KeptState()
        self.admission = Admission()
        self.secrets = Secrets(environ or {})
        self.around = Surroundings(
            kept=self.kept,
            admission=self.admission,
            observer=self.observer,
            rescue=rescue,
            clock=self.clock,
            bits=counting_bits,
        )

    def assemble(self, policy: str | PolicySnapshot) -> Runtime:
        """Builds a Runtime that is not live yet."""
        snapshot = load(policy) if isinstance(policy, str) else policy
        assert self.secrets.read(snapshot) == []
        return assemble(snapshot, self.around, self.secrets)

    def live(self, policy: str) -> Runtime:
        """Builds a Runtime and takes it live."""
        runtime = self.assemble(policy)
        runtime.go_live(self.clock.now())
        return runtime

    def core(self, kind: type[T], *identity: str) -> T:
        """The core of this identity that is in use; the beginning of the identity is enough."""
        (found,) = [core for key, core, used in self.kept.all(kind) if used and key[: len(identity)] == identity]
        return found

    def size(self, *identity: str) -> int:
        """The places of a limit."""
        return self.core(Places, *identity).size

    def enter(self, provider: str, model: str) -> Permit | Waiter | Refusal:
        """Asks admission for one attempt at a target."""
        line = self.core(Line, "line", provider, model)
        return self.admission.enter(line, Ask(limits=WAITS), self.clock.now())

    def permit(self, provider: str, model: str) -> Permit:
        """Takes a permit that is there."""
        permit = self.enter(provider, model)
        assert isinstance(permit, Permit)
        return permit

    def trip(self, breaker: Breaker) -> None:
        """Opens a breaker by failures in a row."""
        for _ in range(breaker.settings.consecutive):
            ticket = breaker.acquire(self.clock.now(), stream=False)
            assert ticket is not None
            ticket.on_wire(self.clock.now())
            ticket.end(Verdict.FAILURE, self.clock.now())

    def key(self, provider: str, key_id: str) -> Key:
        """A key of a provider's ring."""
        ring = self.core(KeyRing, "ring", provider)
        (key,) = [key for key in ring.keys if key.id == key_id]
        return key

    def passes(self, seconds: float) -> None:
        """Time goes by, and the process's ticker notes it."""
        self.clock.advance(seconds)
        for _, breaker, _ in self.kept.all(Breaker):
            breaker.tick(self.clock.now())
        self.admission.tick(self.clock.now())

    async def close(self) -> None:
        """Closes what assembly opened."""
        for _, pool, _ in self.kept.all(Pool):
            await pool.close()


def fallback_of(plan: RoutePlan) -> FallbackTiers:
    """The terminal of a route, below all its stages."""
    below: Any = plan.call
    while not isinstance(below, FallbackTiers):
        _, below = within(below)
    return below


def targets(runtime: Runtime) -> ModelTargets:
    """The pipelines of the only tier of the route to a provider."""
    (plan,) = runtime.router.candidates("/alpha/chat/completions", {}).routes
    (tier,) = fallback_of(plan)._tiers
    assert isinstance(tier, ProviderTier)
    assert isinstance(tier.targets, ModelTargets)
    return tier.targets


def changed(old: str, new: str) -> str:
    """The policy with this difference."""
    assert old in POLICY
    return POLICY.replace(old, new)


def breaker_of(shop: Shop, model: str, *, provider: str = "alpha") -> Breaker:
    """The breaker of a target that the live policy uses."""
    (found,) = [
        breaker for key, breaker, used in shop.kept.all(Breaker) if used and key[1] == provider and key[-1] == model
    ]
    return found


def rest(shop: Shop, key_id: str, seconds: float) -> None:
    """Rests a key of alpha."""
    key = shop.key("alpha", key_id)
    limited = Outcome(OutcomeKind.RATE_LIMITED, status=429, retry_after=seconds)
    shop.core(KeyRing, "ring", "alpha").judge(key, limited, shop.clock.now(), used=key.credential)


def park(shop: Shop, key_id: str) -> None:
    """Parks a key of alpha."""
    key = shop.key("alpha", key_id)
    rejected = Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=401, key_fault=True)
    shop.core(KeyRing, "ring", "alpha").judge(key, rejected, shop.clock.now(), used=key.credential)
