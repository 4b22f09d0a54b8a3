"""Tunnels, assembled: each destination has a breaker, a queue and a dialer, within the permits of its provider.

Their permits are those of connections: keys and quotas are not touched, because nobody knows what passes.
"""

from __future__ import annotations

from typing import Final

from proxy.decisions.breaker import Breaker
from proxy.decisions.classification import AnyRequest
from proxy.decisions.deadline import phase_limits, wait_limits
from proxy.decisions.destinations import Destination, is_guarded
from proxy.decisions.hello import read_hello
from proxy.decisions.observing import Tally
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.plan import RoutePlan
from proxy.policy.identities import own_route
from proxy.runtime import pipeline
from proxy.runtime.capacity import OBSERVING
from proxy.runtime.cores import Cores
from proxy.runtime.guard import Guard
from proxy.runtime.targets import Provider
from proxy.runtime.tenants import TenantParts
from proxy.runtime.workshop import Workshop
from proxy.stage import CallNext
from proxy.stages.admission import AdmissionStage, ObservingAdmissionStage, Terms
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage, ObservingBreakerStage
from proxy.stages.deadline import DeadlineStage
from proxy.stages.fallback import FallbackTiers
from proxy.upstream.address import Address
from proxy.upstream.aside import Aside
from proxy.upstream.dialer import Dialer
from proxy.upstream.guarded import GuardedLookup
from proxy.upstream.lookup import Lookup
from proxy.upstream.passage import Judge, Own, Passage
from proxy.upstream.passing import TunnelConnection
from proxy.upstream.pool import Pool

LABEL: Final = "tunnel"


class TunnelTier:
    """The only step of a tunnel: nobody else could stand for whom it leads to."""

    number = 1
    own_key = False

    def __init__(self, provider: str, call: CallNext) -> None:
        self.provider = provider
        self._call = call

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Makes the tunnel."""
        return await self._call(exchange)


class TunnelParts:
    """Makes the tunnels of one policy; `own` tells what leads to this process itself."""

    def __init__(self, shop: Workshop, providers: dict[str, Provider], tenants: TenantParts, *, own: Own) -> None:
        self._shop = shop
        self._providers = providers
        self._tenants = tenants
        self._own = own
        self.tenants = tenants.tenants

    def plan(self, name: str, destination: Destination, *, listed: bool, hosts: frozenset[str]) -> RoutePlan:
        """Returns the route of tunnels to one destination; `listed`: that very host and port are."""
        provider, shop = self._providers[name], self._shop
        route = own_route(provider.snapshot)
        waits = wait_limits(provider.snapshot.timeouts, queue=None, quota_wait=None, later_tier=False)
        passage = Passage(
            pool=self._pool(provider, destination, listed=listed).pool,
            judge=judge_of(hosts | {destination.host}),
            own=self._own,
            clock=shop.clock,
        )
        call = pipeline.tunnel(*self._stages(provider, destination), passage.__call__)
        seconds = waits.queue + waits.quota_wait
        deadline = DeadlineStage(total=route.total_seconds, waits=seconds, idle_waits=shop.classes.queue)
        tiers = FallbackTiers([TunnelTier(name, call)], retry=route.retry, clock=shop.clock)
        tenants = self._tenants.stage(route, self._providers)
        return RoutePlan(
            name=name,
            matcher=AnyRequest(),
            call=pipeline.route(deadline, tiers, tenants=tenants),
            total=route.total_seconds,
            body_max=0,
            body_replay=0,
            repeatable=False,
            needs_document=False,
        )

    def _pool(self, provider: Provider, destination: Destination, *, listed: bool) -> Aside:
        address = Address(scheme="tcp", host=destination.host, port=destination.port)

        def make() -> Aside:
            lookup = Lookup() if listed else GuardedLookup(is_guarded)
            return Aside(Pool(Dialer(address, lookup=lookup, connection=TunnelConnection), idle_seconds=0.0))

        return Cores(provider.snapshot, self._shop).kept("aside", make, str(address), "listed" if listed else "named")

    def _stages(
        self, provider: Provider, destination: Destination
    ) -> tuple[BreakerStage | None, AdmissionStage, AttemptStage]:
        shop, snapshot = self._shop, provider.snapshot
        limits = phase_limits(snapshot.timeouts, first_byte=None, answer=None, idle=None)
        breaker = self._breaker(provider, destination)
        guard = self._guard(provider, destination, breaker) if breaker is not None else None
        attempt = AttemptStage(provider=snapshot.name, model=LABEL, limits=limits, clock=shop.clock, bits=shop.bits)
        return self._breaker_stage(provider, breaker), self._admission(provider, destination, guard), attempt

    def _breaker(self, provider: Provider, destination: Destination) -> Breaker | None:
        shop, snapshot = self._shop, provider.snapshot
        settings = snapshot.breaker
        if settings is None:
            return None
        first_byte, answer, share = snapshot.timeouts.first_byte, snapshot.timeouts.answer, provider.capacity.share
        breaker = Cores(snapshot, shop).kept(
            "breaker",
            lambda: Breaker(settings, first_byte=first_byte, answer=answer, jitter=lambda: shop.bits(32) / 2**32),
            f"tcp://{destination}",
            LABEL,
        )
        shop.later(lambda: breaker.reconfigure(settings, first_byte=first_byte, answer=answer, share=share))
        return breaker

    def _guard(self, provider: Provider, destination: Destination, breaker: Breaker) -> Guard:
        room, name = provider.capacity.room, provider.snapshot.name
        guard = Guard(breaker, self._shop, provider=name, model=_line_of(destination), label=LABEL, room=room)
        self._shop.later(guard.take_over)
        return guard

    def _breaker_stage(self, provider: Provider, breaker: Breaker | None) -> BreakerStage | None:
        clock = self._shop.clock
        if breaker is None:
            return None
        if not provider.observes:
            return BreakerStage(breaker, clock=clock)
        return ObservingBreakerStage(breaker, clock=clock, tallies=[self._tally(provider)])

    def _admission(self, provider: Provider, destination: Destination, guard: Guard | None) -> AdmissionStage:
        shop, capacity = self._shop, provider.capacity
        apart = (OBSERVING,) if provider.observes else ()
        line = Cores(provider.snapshot, shop).kept(
            "tunnels",
            lambda: Line(f"{provider.snapshot.name}/{LABEL}", capacity.room, observes=provider.observes),
            _line_of(destination),
            *apart,
        )
        bound = self._bound(provider)
        shop.later(lambda: line.reconfigure(guard.bound(bound) if guard is not None else bound, None))
        waits = wait_limits(provider.snapshot.timeouts, queue=None, quota_wait=None, later_tier=False)
        terms = Terms(classes=shop.classes)
        if not provider.observes:
            return AdmissionStage(shop.admission, line, limits=waits, clock=shop.clock, terms=terms)
        tally = self._tally(provider)
        return ObservingAdmissionStage(shop.admission, line, limits=waits, clock=shop.clock, terms=terms, tally=tally)

    def _bound(self, provider: Provider) -> tuple[Places, ...]:
        capacity, adapting = provider.capacity, provider.capacity.adapting
        limits = [self._shop.process_places, capacity.places, capacity.connections]
        limits.append(adapting.places if adapting is not None else None)
        return tuple(places for places in limits if places is not None)

    def _tally(self, provider: Provider) -> Tally:
        return Cores(provider.snapshot, self._shop).kept("tally", Tally)


def judge_of(names: frozenset[str]) -> Judge:
    """Returns who says by a client's first bytes whether it may pass: it asks for one of these names, or for none."""

    def judge(data: bytes) -> bool | None:
        hello = read_hello(data)
        return hello.name is None or hello.name in names if hello.known else None

    return judge


def _line_of(destination: Destination) -> str:
    return f"{LABEL} {destination}"
