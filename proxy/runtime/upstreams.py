"""One address of a provider, assembled: its pool and transport, its breakers, and what stands around one call to it.

Two providers at one address have a pool each, as they have limits, breakers and keys each: a connection that fails or
rests is one provider's, `connections.max` bounds it, and a removed provider drains and closes its own. A pool stays
while its provider, scheme, host and port do; TLS has no settings beyond the scheme.
"""

from __future__ import annotations

from proxy.decisions.breaker import Breaker, BreakerSettings
from proxy.decisions.destinations import is_guarded
from proxy.decisions.observing import Tally
from proxy.decisions.pace import Pace, PacedLimits
from proxy.exchange import PhaseLimits
from proxy.policy.snapshot import AddressSnapshot
from proxy.runtime.cores import Cores
from proxy.runtime.models import TierParts
from proxy.stage import CallNext
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage, ObservingBreakerStage
from proxy.upstream.address import Address
from proxy.upstream.aside import Aside
from proxy.upstream.dialer import Dialer
from proxy.upstream.guarded import GuardedLookup
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from proxy.upstream.pool import Pool
from proxy.upstream.towards import Towards
from proxy.upstream.transport import Transport
from proxy.upstream.warmth import Warmth

Call = tuple[BreakerStage | None, AttemptStage, CallNext]


class Upstream:
    """An address's living parts, as one policy wants them."""

    def __init__(self, address: AddressSnapshot, cores: Cores) -> None:
        self._cores = cores
        self.address = Address(scheme=address.scheme, host=address.host, port=address.port)
        self.pool = self._pool()
        self._breakers: dict[str, Breaker] = {}
        self._patience: dict[str, tuple[float, float]] = {}
        own = self._to(self.address, self.pool)
        others = self._others()
        self._transport: CallNext = Towards(own, others).__call__ if others else own

    def _to(self, address: Address, pool: Pool) -> Transport:
        return Transport(
            pool=pool,
            headers=self._headers(address),
            answer_headers=AnswerHeaders(heeds_rates=self._cores.snapshot.name in self._cores.shop.heeding),
            clock=self._cores.shop.clock,
        )

    def _others(self) -> dict[str, CallNext]:
        """Returns what asks the other addresses to which requests to the provider may be forwarded."""
        found: dict[str, CallNext] = {}
        for one, listed in self._cores.shop.forwarded.get(self._cores.snapshot.name, {}).items():
            address = Address(scheme=one.scheme, host=one.host, port=one.port)
            found[str(address)] = self._to(address, self._aside(address, listed=listed)).__call__
        return found

    def _aside(self, address: Address, *, listed: bool) -> Pool:
        idle = self._cores.snapshot.connections.idle_seconds

        def make() -> Aside:
            lookup = None if listed else GuardedLookup(is_guarded)
            return Aside(Pool(Dialer(address, lookup=lookup), idle_seconds=idle))

        return self._cores.kept("aside", make, str(address), "listed" if listed else "named").pool

    def breaker(self, settings: BreakerSettings, scope: str, phases: PhaseLimits, *, share: int) -> Breaker:
        """Returns the breaker of one scope here; `share` is how many calls may run at once when all is well."""
        shop = self._cores.shop
        first_byte, answer = self._most_patient(scope, phases)
        if scope not in self._breakers:
            self._breakers[scope] = self._cores.kept(
                "breaker",
                lambda: Breaker(settings, first_byte=first_byte, answer=answer, jitter=lambda: shop.bits(32) / 2**32),
                str(self.address),
                scope,
            )
        breaker = self._breakers[scope]

        def change() -> None:
            first_byte, answer = self._patience[scope]
            breaker.reconfigure(settings, first_byte=first_byte, answer=answer, share=share)

        shop.later(change)
        return breaker

    def call(self, model: str, label: str, parts: TierParts, breaker: Breaker | None, *, scope: str) -> Call:
        """Returns what stands around one call to this address: its breaker's stage, its record, and the wire."""
        shop = self._cores.shop
        attempt = AttemptStage(
            provider=self._cores.snapshot.name,
            model=label,
            limits=parts.phases,
            clock=shop.clock,
            bits=shop.bits,
            paced=self._paced(model, parts),
        )
        stage = self._breaker_stage(breaker, scope, observes=parts.observes) if breaker is not None else None
        return stage, attempt, self._transport

    def _breaker_stage(self, breaker: Breaker, scope: str, *, observes: bool) -> BreakerStage:
        cores, clock = self._cores, self._cores.shop.clock
        if not observes:
            return BreakerStage(breaker, clock=clock)
        tallies = cores.kept("tally", Tally), cores.kept("tally", Tally, str(self.address), scope)
        return ObservingBreakerStage(breaker, clock=clock, tallies=tallies)

    def _paced(self, model: str, parts: TierParts) -> PacedLimits | None:
        if parts.pace is None:
            return None
        pace = self._cores.kept("pace", Pace, str(self.address), model)
        return PacedLimits(parts.phases, pace, factor=parts.pace.factor, plus=parts.pace.plus)

    def _most_patient(self, scope: str, phases: PhaseLimits) -> tuple[float, float]:
        """Several tiers may share a breaker: a call is slow, and a probe late, by the most patient of them."""
        first_byte, answer = self._patience.get(scope, (0.0, 0.0))
        found = self._patience[scope] = max(phases.first_byte, first_byte), max(phases.answer, answer)
        return found

    def _pool(self) -> Pool:
        cores, address = self._cores, self.address
        idle, alone = cores.snapshot.connections.idle_seconds, len(cores.snapshot.addresses) == 1
        pool = cores.kept("pool", lambda: Pool(Dialer(address), idle_seconds=idle), str(address))

        def change() -> None:
            pool.idle_seconds = idle
            pool.alone = alone
            self._warm(pool)

        cores.shop.later(change)
        return pool

    def _warm(self, pool: Pool) -> None:
        """Lets connections be kept ready; a pool that never had any to keep has nothing of it."""
        snapshot, shop = self._cores.snapshot, self._cores.shop
        want, bits = snapshot.connections.warm, shop.bits
        if pool.warmth is None and want:
            pool.warmth = Warmth(pool, clock=shop.clock, jitter=lambda: bits(32) / 2**32)
            pool.dialer.before = pool.warmth.give_way
        if pool.warmth is not None:
            connect = snapshot.timeouts.connect
            pool.warmth.reconfigure(want=want, most=snapshot.connections.max, seconds=connect)

    def _headers(self, address: Address) -> HeaderPlan:
        snapshot, shop = self._cores.snapshot, self._cores.shop
        default = {"http": 80, "https": 443}[address.scheme]
        host = f"[{address.host}]" if ":" in address.host else address.host
        plan = HeaderPlan(
            host=host if address.port == default else f"{host}:{address.port}",
            added=[(name.encode("latin-1"), shop.secrets[source].encode()) for name, source in snapshot.headers],
            own_credential=bool(snapshot.keys),
            auth_headers=shop.auth_headers,
            key_header=snapshot.idempotency_header,
            propagate_trace=snapshot.propagate_trace,
        )
        plan.pseudonym = shop.pseudonym.encode("ascii")
        return plan
