"""What binds the calls to one provider: its shares, its waiting room, its keys, and the lines of its targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from proxy.decisions.adaptive import AdaptiveLimit
from proxy.decisions.lanes import group_of
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.room import Room
from proxy.decisions.shares import share_of
from proxy.policy.identities import Identity, of_lane, of_provider
from proxy.policy.snapshot import RouteSnapshot
from proxy.runtime.cores import Cores
from proxy.runtime.models import OTHER, TierParts
from proxy.runtime.quotas import model_buckets, provider_buckets
from proxy.runtime.rings import credentials, key_ring
from proxy.stages.metering import Adapting, Lanes

OBSERVING: Final = "observing"
"""Apart from others of its target: where they wait for places, who only waits for a key must not stand behind them."""

Ceiling = Callable[[str, tuple[Places, ...]], tuple[Places, ...]]
"""Adds to the limits of a model what its breaker allows at the moment."""


class Capacity:
    """One provider's limits and queues, as one policy wants them."""

    def __init__(self, cores: Cores, *, observes: bool) -> None:
        snapshot, shop = cores.snapshot, cores.shop
        self._cores = cores
        self.observes = observes
        self.share = self._share()
        parts = shop.parts(snapshot.name)
        granted = snapshot.concurrency is not None
        self.places = cores.places("provider", self.share, parts=parts) if granted else None
        self.connections = cores.places("connections", self._most, parts=() if granted else parts)
        self.room = cores.kept("room", lambda: Room(snapshot.name))
        self.audience = tuple(sorted(map(str, snapshot.addresses)))
        self.credentials = credentials(snapshot, shop, self.audience)
        self.ring = key_ring(snapshot, cores, self.credentials)
        self.adapting = self._adapting()
        self._quotas = provider_buckets(cores)
        self._lines: dict[tuple[str, ...], Line] = {}
        shop.later(self._change_room)

    def line(self, model: str, *apart: str, ceiling: Ceiling) -> Line:
        """Returns the queues of a model; those set `apart` for another kind of call are others."""
        found = self._lines.get((model, *apart))
        if found is not None:
            return found
        identities = of_provider("line", self._cores.snapshot, model, *self._kind(apart))
        return self._line(identities, (model, *apart), ceiling=ceiling)

    def _kind(self, apart: tuple[str, ...]) -> tuple[str, ...]:
        """A pipeline builds its heads for one kind of credential: who waits in it must not be given the other kind."""
        return (*apart, "keys") if self._cores.snapshot.keys else apart

    def _line(
        self, identities: Sequence[Identity], target: tuple[str, ...], *, ceiling: Ceiling, lanes: Collection[str] = ()
    ) -> Line:
        """Finds or makes a line, and lets it be bound at the swap; `lanes` are those whose reserves it may use."""
        cores, model = self._cores, target[0]
        name = f"{cores.snapshot.name}/{model}"
        observes = OBSERVING in target
        line = cores.kept_as(identities, lambda: Line(name, self.room, observes=observes))
        limits = [cores.shop.process_places, self.places, self.connections]
        limits.append(self.adapting.places if self.adapting is not None else None)
        if (share := self.model_share(model)) is not None:
            limits.append(cores.places("model", share, model, parts=cores.shop.parts(cores.snapshot.name, model)))
        bound = tuple(places for places in limits if places is not None)
        own = model_buckets(cores.snapshot.model(model), cores)
        requests, tokens = ((*wide, *narrow) for wide, narrow in zip(self._quotas, own, strict=True))
        self._lines[target] = line
        cores.shop.later(lambda: line.reconfigure(ceiling(model, bound), self.ring, requests=requests, tokens=tokens))
        cores.shop.later(lambda: line.serve(lanes))
        return line

    def lanes(self, model: str, parts: TierParts, *apart: str, ceiling: Ceiling) -> Lanes | None:
        """Returns a line for each of the route's lanes, and the model's for the rest; None where it has no lanes."""
        route = parts.route
        if not route.lanes:
            return None
        lines = [self._lane(model, route, number, *apart, ceiling=ceiling) for number in range(len(route.lanes))]
        return Lanes(route.lanes, (*lines, self.line(model, *apart, ceiling=ceiling)), fields=parts.fields)

    def _lane(self, model: str, route: RouteSnapshot, number: int, *apart: str, ceiling: Ceiling) -> Line:
        groups = [group_of(route.name, lane) for lane in route.lanes[number:]]
        target = (model, groups[0], *apart)
        found = self._lines.get(target)
        if found is not None:
            return found
        identities = of_lane(self._cores.snapshot, route, route.lanes[number], model, *self._kind(apart))
        return self._line(identities, target, ceiling=ceiling, lanes=groups)

    def found(self, model: str, *apart: str) -> Line:
        """Returns the queues of a model; those of all models that nobody knows where it has none yet."""
        return self._lines.get((model, *apart)) or self._lines[(OTHER, *apart)]

    def model_share(self, model: str) -> int | None:
        """Returns a model's own part of what this instance may have in flight; None where it has none."""
        snapshot = self._cores.snapshot
        granted = snapshot.model(model).concurrency
        if granted is None:
            return None
        return share_of(granted, self._cores.shop.fleet, key=f"{snapshot.name}/{model}")

    @property
    def _most(self) -> int:
        """Returns how many connections all addresses together may have."""
        snapshot = self._cores.snapshot
        return snapshot.connections.max * len(snapshot.addresses)

    def _adapting(self) -> Adapting | None:
        settings, cores, share = self._cores.snapshot.adaptive, self._cores, self.share
        if settings is None:
            return None
        limit = cores.kept("adaptive_limit", lambda: AdaptiveLimit(settings))
        places = cores.places("adaptive", share, parts=cores.shop.parts(cores.snapshot.name))

        def change() -> None:
            limit.reconfigure(settings, share)
            places.reconfigure(limit.size)

        cores.shop.later(change)
        return Adapting(limit, places)

    def _change_room(self) -> None:
        self.room.reconfigure(
            self._cores.snapshot.queue,
            share=self.share,
            observes=self.observes,
            idle_below=self._cores.shop.classes.idle_below,
        )

    def _share(self) -> int:
        snapshot = self._cores.snapshot
        if snapshot.concurrency is None:
            return self._most
        return min(share_of(snapshot.concurrency, self._cores.shop.fleet, key=snapshot.name), self._most)
