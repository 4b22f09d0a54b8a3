"""What binds the calls to one provider: its shares, its waiting room, its keys, and the lines of its targets."""

from __future__ import annotations

from collections.abc import Callable

from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Room
from proxy.decisions.shares import share_of
from proxy.runtime.cores import Cores
from proxy.runtime.models import OTHER
from proxy.runtime.rings import key_ring

Ceiling = Callable[[str, tuple[Places, ...]], tuple[Places, ...]]
"""Adds to the limits of a model what its breaker allows at the moment."""


class Capacity:
    """One provider's limits and queues, as one policy wants them."""

    def __init__(self, cores: Cores, *, observes: bool) -> None:
        snapshot = cores.snapshot
        self._cores = cores
        self.observes = observes
        self.share = self._share()
        self.places = cores.places("provider", self.share) if snapshot.concurrency is not None else None
        self.connections = cores.places("connections", self._most)
        self.room = cores.kept("room", lambda: Room(snapshot.name))
        cores.shop.later(lambda: self.room.reconfigure(snapshot.queue, share=self.share, observes=observes))
        self.ring = key_ring(snapshot, cores)
        self._lines: dict[tuple[str, ...], Line] = {}

    def line(self, model: str, *apart: str, ceiling: Ceiling) -> Line:
        """Returns the queues of a model; those set `apart` for another kind of call are others."""
        if (model, *apart) not in self._lines:
            cores = self._cores
            name = f"{cores.snapshot.name}/{model}"
            # A pipeline builds its heads for one kind of credential: who waits in it must not be given the other kind.
            kind = (*apart, "keys") if cores.snapshot.keys else apart
            line = cores.kept("line", lambda: Line(name, self.room, observes=bool(apart)), model, *kind)
            limits = [cores.shop.process_places, self.places, self.connections]
            if (share := self.model_share(model)) is not None:
                limits.append(cores.places("model", share, model))
            bound = tuple(places for places in limits if places is not None)
            self._lines[(model, *apart)] = line
            cores.shop.later(lambda: line.reconfigure(ceiling(model, bound), self.ring))
        return self._lines[(model, *apart)]

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

    def _share(self) -> int:
        snapshot = self._cores.snapshot
        if snapshot.concurrency is None:
            return self._most
        return min(share_of(snapshot.concurrency, self._cores.shop.fleet, key=snapshot.name), self._most)
