"""Forwarded traffic, assembled: whose each destination is, and the pipelines of requests and tunnels to it.

A request whose path and address are those of its provider's `base_url` is one like any other: the routes whose first
tier is that provider take it, or the provider alone. What goes elsewhere, to another listed name or beside the path of
`base_url`, is asked there, by the provider alone: no other tier and no kept answer could stand for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from proxy.decisions.bodies import BodyMemory
from proxy.decisions.classes import CLASS_HEADER, class_of
from proxy.decisions.classification import Router
from proxy.decisions.destinations import (
    DEFAULT_PORTS,
    TUNNEL_PORT,
    AskedUrl,
    Destination,
    Destinations,
    Listing,
    read_authority,
    read_host,
    read_url,
)
from proxy.decisions.joining import join
from proxy.decisions.tenants import Tenants
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason, refused
from proxy.plan import RoutePlan
from proxy.policy.snapshot import AddressSnapshot, PolicySnapshot, ProviderSnapshot
from proxy.runtime import pipeline
from proxy.runtime.tunnels import LABEL, TunnelParts
from proxy.stage import CallNext
from proxy.stages.classification import Classification
from proxy.stages.observation import ObservationStage

OWN: Final = "own"
"""Stands for whatever address `base_url` leads to."""
MOST_SHOWN: Final = 100
NO_URL: Final = "the target is no address of a server; write http://HOST/PATH or https://HOST:PORT/PATH, without a user"
NO_AUTHORITY: Final = "CONNECT takes HOST:PORT, a name or an address as it is usually written"


def destinations_of(snapshot: PolicySnapshot) -> Destinations:
    """Returns what the policy lists: what is written in `hosts` before what follows from a `base_url`."""
    written = [
        Listing(provider=provider.name, host=one.host, port=one.port)
        for provider in snapshot.providers
        for one in provider.hosts
    ]
    return Destinations([*written, *(one for provider in snapshot.providers for one in _by_base_url(provider))])


def _by_base_url(provider: ProviderSnapshot) -> list[Listing]:
    """Returns what a provider lists that says nothing of hosts: where it is, and its name by the usual ports."""
    if provider.hosts:
        return []
    found = []
    for address in provider.addresses:
        host = read_host(address.host) or address.host
        found.append(Listing(provider=provider.name, host=host, port=address.port))
        if address.port == DEFAULT_PORTS[address.scheme]:
            found.append(Listing(provider=provider.name, host=host))
    return found


def elsewhere(snapshot: PolicySnapshot) -> dict[str, dict[AddressSnapshot, bool]]:
    """Returns the addresses, by provider, to which requests may be forwarded and `base_url` does not lead.

    And for each whether that very host and port are listed.
    """
    destinations = destinations_of(snapshot)
    found: dict[str, dict[AddressSnapshot, bool]] = {}
    for provider in snapshot.providers:
        own, others = own_addresses(provider), found.setdefault(provider.name, {})
        for scheme, one in destinations.asked(provider.name, scheme=provider.scheme):
            if f"{scheme}://{one}" not in own:
                others[AddressSnapshot(scheme=scheme, host=one.host, port=one.port)] = destinations.lists(one)
    return found


def own_addresses(provider: ProviderSnapshot) -> frozenset[str]:
    """Returns where `base_url` leads, in the spelling of destinations."""
    return frozenset(
        f"{one.scheme}://{Destination(host=read_host(one.host) or one.host, port=one.port)}"
        for one in provider.addresses
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Owner:
    """A provider, to whom requests are forwarded: by the policy's routes (`usual`), or to it alone."""

    snapshot: ProviderSnapshot
    addresses: frozenset[str]
    usual: CallNext
    alone: CallNext

    def native(self, path: str, address: str) -> bool:
        """Whether `base_url` leads to this very path there."""
        return address in self.addresses and join(path, self.snapshot.root_path) == path


class Forwarding:
    """What the forward listener needs of one policy; `call` is the whole pipeline."""

    __slots__ = ("_destinations", "_owners", "_rank", "_tunnels", "call", "refuse")

    def __init__(
        self,
        observation: ObservationStage,
        destinations: Destinations,
        *,
        owners: Mapping[str, Owner],
        tunnels: Mapping[Destination, RoutePlan],
        tenants: Tenants | None,
    ) -> None:
        self._destinations = destinations
        self._owners = dict(owners)
        self._tunnels = dict(tunnels)
        self._rank = _Ranks(tenants)
        self.call: CallNext = pipeline.front(observation, _enter)
        self.refuse: Callable[[Exchange, Outcome], None] = observation.refuse

    def aim(self, exchange: Exchange) -> Outcome | None:
        """Makes the exchange one with the owner of its target; returns the refusal of what nobody owns.

        Nothing is looked up for a name that is not listed.
        """
        request = exchange.request
        if request.method == "CONNECT":
            return self._aim_tunnel(exchange)
        url = read_url(request.target)
        if url is None:
            return refused(Reason.BAD_REQUEST, detail=NO_URL)
        name = self._destinations.provider(url.destination, usual=DEFAULT_PORTS[url.scheme])
        if name is None:
            return _forbidden(url.destination)
        self._aim_request(exchange, url, self._owners[name])
        return None

    def _aim_request(self, exchange: Exchange, url: AskedUrl, owner: Owner) -> None:
        request = exchange.request
        request.target = url.target
        request.path, mark, query = url.target.partition("?")
        request.query = mark + query
        scheme, destination = self._destinations.leads_to(url, scheme=owner.snapshot.scheme)
        address = f"{scheme}://{destination}"
        if owner.native(request.path, address):
            exchange.plan = owner.usual
        else:
            exchange.towards, exchange.plan = address, owner.alone

    def _aim_tunnel(self, exchange: Exchange) -> Outcome | None:
        destination = read_authority(exchange.request.target)
        if destination is None:
            return refused(Reason.BAD_REQUEST, detail=NO_AUTHORITY)
        plan = self._tunnels.get(destination)
        if plan is None or self._destinations.provider(destination, usual=TUNNEL_PORT) is None:
            return _forbidden(destination)
        exchange.plan = plan.call
        facts = exchange.facts
        facts.operation, facts.route, facts.model = LABEL, plan.name, LABEL
        self._rank(exchange, plan)
        return None


class _Ranks:
    """Says of a tunnel who asks, and in which class."""

    __slots__ = ("_tenants",)

    def __init__(self, tenants: Tenants | None) -> None:
        self._tenants = tenants

    def __call__(self, exchange: Exchange, plan: RoutePlan) -> None:
        fields, facts, own = exchange.request.fields, exchange.facts, None
        if self._tenants is not None:
            facts.tenant = self._tenants.name_of(fields)
            own = self._tenants.class_of(facts.tenant)
        facts.klass = class_of(fields.get(CLASS_HEADER), route=plan.klass, tenant=own, may_raise=plan.class_from_header)


def _enter(exchange: Exchange) -> Awaitable[Outcome]:
    """Goes where the exchange was aimed at."""
    call: CallNext = exchange.plan
    return call(exchange)


def _keeping(alone: RoutePlan) -> RoutePlan:
    """Returns the plan of a provider alone for paths that are the provider's own: nothing is cut off or put before."""
    call = alone.call

    def keeping(exchange: Exchange) -> Awaitable[Outcome]:
        exchange.towards = exchange.towards or OWN
        return call(exchange)

    return replace(alone, call=keeping)


def _forbidden(destination: Destination) -> Outcome:
    asked = str(destination)[:MOST_SHOWN]
    detail = f"no provider of the policy lists {asked}; write it under the hosts of the provider that it belongs to"
    return refused(Reason.FORBIDDEN_TARGET, detail=detail)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ForwardedPlans:
    """What takes forwarded requests: the routes of a policy, in order, and for each provider its own (`alone`)."""

    routes: tuple[RoutePlan, ...]
    alone: Mapping[str, RoutePlan]


def forwarding(
    snapshot: PolicySnapshot,
    observation: ObservationStage,
    plans: ForwardedPlans,
    *,
    tunnels: TunnelParts,
    bodies: BodyMemory,
) -> Forwarding:
    """Puts a policy's forwarding together; of its routes those take a provider's requests whose first tier it is."""
    destinations, tenants = destinations_of(snapshot), tunnels.tenants
    firsts = [next(route.asked(), None) for route in snapshot.routes or ()]
    owners = {}
    for provider in snapshot.providers:
        own = [
            plan
            for first, plan in zip(firsts, plans.routes, strict=True)
            if first is not None and first.provider == provider.name
        ]
        usual, alone = (
            Classification(
                Router(routes, by_provider={}, default=_keeping(plans.alone[provider.name])), bodies, tenants
            )
            for routes in (own, [])
        )
        owners[provider.name] = Owner(
            snapshot=provider, addresses=own_addresses(provider), usual=usual.__call__, alone=alone.__call__
        )
    ways = {
        one: tunnels.plan(name, one, listed=destinations.lists(one), hosts=destinations.hosts(name))
        for one, name in destinations.tunnels().items()
    }
    return Forwarding(observation, destinations, owners=owners, tunnels=ways, tenants=tenants)
