"""Addresses: which of a provider's several addresses a call goes to, and how many calls they could take all together.

Limits, keys and queues are the provider's; connections and breakers are each address's own. So whoever waits stands in
one line for all addresses, and the address is chosen only when it is that call's turn: a place that comes free
anywhere goes to whoever has waited longest, a breaker that opens takes nobody's turn while another address is there,
and no call is bound to an address that fails or fills up while it waits. What the line sees of the addresses is one
more limit: as large as all have room for.

An `Openings` belongs to one breaker's scope (one model, or all) and outlives policies; `Addresses` is one policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf

from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.places import Places

Peer = tuple[str, int]


class Site:
    """One address, whoever calls it: how many calls it has, and may have at most (`connections.max`)."""

    __slots__ = ("in_use", "most", "peer")

    def __init__(self, peer: Peer, most: int) -> None:
        self.peer = peer
        self.most = most
        self.in_use = 0

    def __repr__(self) -> str:
        return f"<Site {self.peer[0]}:{self.peer[1]} {self.in_use}/{self.most}>"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Way:
    """An address as the calls of one scope see it; `breaker` None where the policy says `breaker: off`."""

    site: Site
    breaker: Breaker | None

    @property
    def room(self) -> float:
        """How many more calls could go there."""
        own = self.site.most - self.site.in_use
        return own if self.breaker is None else min(own, self.breaker.room)

    @property
    def shut(self) -> bool:
        """Whether its breaker was open when it was last used or ticked."""
        return self.breaker is not None and self.breaker.state is BreakerState.OPEN


class Hall:
    """How many calls of a provider, of all scopes together, have a permit and no address yet: each takes a place."""

    __slots__ = ("coming",)

    def __init__(self) -> None:
        self.coming = 0


class Openings:
    """How many calls of one scope the addresses have and could take; `places` is that as a limit for admission.

    `ways` are those of the live policy. `calls` have an address; those that are `coming` have a permit and none yet,
    those that are `going` have left it and still have their permit.
    """

    __slots__ = ("_hall", "calls", "coming", "going", "places", "ways")

    def __init__(self, label: str, hall: Hall) -> None:
        self.ways: tuple[Way, ...] = ()
        self._hall = hall
        self.calls = self.coming = self.going = 0
        self.places: Places = _Room(label, self)

    def __repr__(self) -> str:
        return f"<Openings {self.places.used}/{self.places.size}>"

    def reconfigure(self, ways: Sequence[Way]) -> None:
        """Takes the addresses as the policy now has them; calls stay where they are."""
        self.ways = tuple(ways)

    @property
    def room(self) -> int:
        """How many more calls could go there, when those of other scopes have come that are on their way."""
        others = self._hall.coming - self.coming
        return max(int(sum(max(way.room, 0) for way in self.ways)) - others, 0)

    def expect(self, number: int) -> None:
        """So many permits more are out, or fewer."""
        if number < 0:
            left = min(self.going, -number)
            self.going -= left
            number += left
        self.coming += number
        self._hall.coming += number

    def came(self) -> bool:
        """A call has its address; returns whether it was awaited: where it did not go, others may."""
        self.calls += 1
        awaited = self.coming > 0
        self.coming -= awaited
        self._hall.coming -= awaited
        return awaited

    def left(self) -> None:
        """A call has gone from its address; its permit follows."""
        self.calls -= 1
        self.going += 1


class _Room(Places):
    """The places at all addresses; its size moves with them."""

    __slots__ = ("_openings", "_used")

    def __init__(self, label: str, openings: Openings) -> None:
        self._openings = openings
        self._used = 0
        super().__init__(label, 0)

    @property
    def used(self) -> int:
        """How many permits are out."""
        return self._used

    @used.setter
    def used(self, used: int) -> None:
        self._openings.expect(used - self._used)
        self._used = used

    @property
    def size(self) -> int:
        """What is in use at the addresses, and what could be."""
        return self._openings.calls + self._openings.room

    @size.setter
    def size(self, size: int) -> None:
        """Nobody but the addresses decides."""


class Addresses:
    """The addresses of one policy's provider, for the calls of one scope. `on_room` is told when a call has ended."""

    __slots__ = ("_on_room", "_turn", "_ways", "openings")

    def __init__(self, openings: Openings, ways: Sequence[Way], *, on_room: Callable[[], None]) -> None:
        self.openings = openings
        self._ways = tuple(ways)
        self._on_room = on_room
        self._turn = 0

    def __repr__(self) -> str:
        return f"<Addresses {self._ways}>"

    def lets_go(self, now: float) -> bool:
        """Whether a breaker would let a call go to any of them."""
        return any(way.breaker is None or way.breaker.lets_go(now) for way in self._ways)

    @property
    def shut(self) -> bool:
        """Whether all breakers are open: nobody who waits could go anywhere soon."""
        return all(way.shut for way in self._ways)

    def stays_open(self, now: float, seconds: float) -> bool:
        """Whether all breakers are open, and will be longer than this."""
        return all(way.breaker is not None and way.breaker.stays_open(now, seconds) for way in self._ways)

    def retry_after(self, now: float) -> float:
        """Returns seconds until a call may pass again somewhere."""
        return min(0.0 if way.breaker is None else way.breaker.retry_after(now) for way in self._ways)

    def enter(self, now: float, failed: Collection[Peer] = ()) -> Stay:
        """Chooses the address for a call whose turn it is: the least loaded that has room; ties take turns.

        One at which the call has `failed` comes after the others. Where none has room (a breaker has opened since the
        call got its permit) one whose breaker lets it go is chosen, and if there is none, the first to return.
        """
        ways, turn = self._ways, self._turn
        best, least = 0, (3, True, inf)
        for step in range(len(ways)):
            index = (turn + step) % len(ways)
            rank = self._rank(ways[index], failed, now)
            if rank < least:
                best, least = index, rank
        self._turn = best + 1
        stay = Stay(self, best, ways[best])
        if self.openings.came():
            self._on_room()
        return stay

    @staticmethod
    def _rank(way: Way, failed: Collection[Peer], now: float) -> tuple[int, bool, float]:
        site, breaker = way.site, way.breaker
        tried = site.peer in failed
        if breaker is not None and not breaker.lets_go(now):
            return 2, False, breaker.retry_after(now)
        return int(way.room <= 0), tried, site.in_use

    def left(self) -> None:
        """A call has gone from its address."""
        self.openings.left()
        self._on_room()


class Stay:
    """One call at its address, the one with this `index`; `end` gives its place back, once."""

    __slots__ = ("_addresses", "_ceiling", "_ended", "_site", "index")

    def __init__(self, addresses: Addresses, index: int, way: Way) -> None:
        self._addresses = addresses
        self.index = index
        self._site = way.site
        ramp = way.breaker.ramp if way.breaker is not None else None
        self._ceiling = ramp.places if ramp is not None and ramp.size is not None else None
        self._ended = False
        way.site.in_use += 1
        if self._ceiling is not None:
            self._ceiling.used += 1

    def __repr__(self) -> str:
        return f"<Stay at {self._site!r}{' ended' * self._ended}>"

    def end(self) -> None:
        """The call has gone."""
        if self._ended:
            return
        self._ended = True
        self._site.in_use -= 1
        if self._ceiling is not None:
            self._ceiling.used -= 1
        self._addresses.left()
