"""Several addresses of one provider, assembled: who is chosen, what the line sees of them, and who is told of room.

Absent where a provider has one address: nothing of this is on such a request's way.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.decisions.addresses import Addresses, Hall, Openings, Site, Way
from proxy.decisions.breaker import Breaker
from proxy.decisions.places import Places
from proxy.runtime.cores import Cores
from proxy.runtime.upstreams import Upstream


class AddressBook:
    """A provider's addresses, as one policy wants them; what is in use at each outlives it."""

    def __init__(self, cores: Cores, upstreams: Sequence[Upstream]) -> None:
        self._cores = cores
        self._sites = [self._site(upstream) for upstream in upstreams]
        self._scopes: dict[str, Addresses] = {}

    def of(self, scope: str, breakers: Sequence[Breaker | None]) -> Addresses:
        """Returns the addresses for the calls of one scope; the breakers are one for each."""
        found = self._scopes.get(scope)
        if found is None:
            pairs = zip(self._sites, breakers, strict=True)
            ways = [Way(site=site, breaker=breaker) for site, breaker in pairs]
            label = f"addresses {self._cores.snapshot.name}/{scope}"
            hall = self._cores.kept("hall", Hall)
            openings = self._cores.kept("openings", lambda: Openings(label, hall), scope)
            self._cores.shop.later(lambda: openings.reconfigure(ways))
            found = self._scopes[scope] = Addresses(openings, ways, on_room=self._on_room)
        return found

    def bound(self, scope: str, limits: tuple[Places, ...]) -> tuple[Places, ...]:
        """Returns these limits and what the addresses have room for."""
        found = self._scopes.get(scope)
        return limits if found is None else (*limits, found.openings.places)

    def _site(self, upstream: Upstream) -> Site:
        address, most = upstream.address, self._cores.snapshot.connections.max
        site = self._cores.kept("address", lambda: Site(upstream.pool.peer, most), str(address))

        def change() -> None:
            site.most = most

        self._cores.shop.later(change)
        return site

    def _on_room(self) -> None:
        """A connection's place came free: it may be another model's that lacked it."""
        shop = self._cores.shop
        if shop.admission.waiting:
            places = [addresses.openings.places for addresses in self._scopes.values()]
            shop.admission.pump(shop.clock.now(), places)
