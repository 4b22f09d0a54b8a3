"""Admission with everything that can bind a call, and books of all of it, kept by hand.

Two providers. Alpha has places with parts kept for P0 and for a lane, an adaptive limit, buckets of its own, a model
with more of them, and two keys, one of them metered; beta has little.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from proxy.decisions.admission import PASSING_SECONDS, Admission
from proxy.decisions.keys import Key, Lack
from proxy.decisions.permits import Permit
from proxy.decisions.places import URGENT, Places
from proxy.decisions.queues import Line, Queue, Waiter
from proxy.decisions.quota import Bucket
from proxy.decisions.room import IDLE_AFTER_SECONDS, Room
from tests.decisions.ledger import ROUNDING, Ledger, Rate
from tests.decisions.waiting_room import NOW, a_key, a_line, a_ring, a_room

SHARE = 5
IDLE_BELOW = 0.7 * SHARE
LANE = "lane chat/100"
SIZES = {"process": 6, "alpha": SHARE, "adaptive": SHARE, "m1": 3, "beta": 2}
RATES = {
    "alpha rpm": Rate(per_minute=240.0, reserved=0.2, most=240.0),
    "alpha tpm": Rate(per_minute=1800.0, reserved=0.2, most=1800.0),
    "m1 rpm": Rate(per_minute=150.0, most=150.0),
    "m1 tpm": Rate(per_minute=900.0, reserved=0.2, most=900.0),
    "a1 rpm": Rate(per_minute=120.0, most=120.0),
    "a1 tpm": Rate(per_minute=600.0, most=600.0),
}


@dataclass(slots=True, eq=False)
class Guest:
    """Somebody who was told to wait, as one of this class. `woken` counts how often it was called."""

    waiter: Waiter
    klass: int
    since: float
    woken: int = 0

    @property
    def queue(self) -> Queue:
        return self.waiter.line.queues[self.waiter.klass]

    @property
    def place(self) -> tuple[int, float, int]:
        """Where its queue stands among those of its provider."""
        return self.waiter.klass, *self.queue.turn


class BookedAdmission(Admission):
    """Enters what comes back into the books before anybody gets it."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def returned(self, permit: Permit, now: float) -> None:
        """Enters it."""
        self.world.settled(permit)
        super().returned(permit, now)

    def _hand(self, waiter: Waiter, permit: Permit) -> None:
        self.world.turn = waiter.line.queues[waiter.klass].turn
        super()._hand(waiter, permit)


class World:
    """All cores, who waits and who holds a permit, and the books."""

    def __init__(self) -> None:
        self.now = NOW
        self.admission = BookedAdmission(self)
        self.alarms: list[float] = []
        self.admission.alarm = self.alarms.append
        self.books = {name: Ledger(Bucket(name, NOW), rate, NOW) for name, rate in RATES.items()}
        self.ledgers = {ledger.bucket: ledger for ledger in self.books.values()}
        self.places = {label: Places(label, size) for label, size in SIZES.items()}
        self.places["alpha"].reserve([(URGENT, 0.2), (LANE, 0.2)])
        self.places["m1"].reserve([(URGENT, 0.34)])
        self.keys = (a_key("a1", size=4), a_key("a2", size=2))
        self.ring = a_ring(*self.keys)
        self.rooms = (
            a_room("alpha", share=SHARE, most=8, most_bytes=10_000),
            a_room("beta", share=SHARE, most=8, most_bytes=10_000),
        )
        self.lines = (
            a_line(self.rooms[0], name="alpha/m1"),
            a_line(self.rooms[0], name="alpha/m1 short", lanes=[LANE]),
            a_line(self.rooms[0], name="alpha/m2"),
            a_line(self.rooms[1], name="beta/m"),
        )
        self.limited = dict.fromkeys(RATES, True)
        self.bind()
        self.waiting: list[Guest] = []
        self.turn = 0.0, 0
        self.out: dict[Permit, tuple[Places, ...]] = {}
        self.used: dict[Permit, tuple[bool, float]] = {}
        self.high_ended_at = dict.fromkeys(self.rooms, -inf)

    def bind(self) -> None:
        """Binds the lines and the key as the policy now says."""
        alpha = [self.places[label] for label in ("process", "alpha", "adaptive")]
        for line in self.lines[:2]:
            line.reconfigure(
                (*alpha, self.places["m1"]),
                self.ring,
                requests=self.buckets("alpha rpm", "m1 rpm"),
                tokens=self.buckets("alpha tpm", "m1 tpm"),
            )
        self.lines[2].reconfigure(
            tuple(alpha), self.ring, requests=self.buckets("alpha rpm"), tokens=self.buckets("alpha tpm")
        )
        self.lines[3].reconfigure((self.places["process"], self.places["beta"]), None)
        key = self.keys[0]
        requests, tokens = self.buckets("a1 rpm"), self.buckets("a1 tpm")
        key.reconfigure(weight=1.0, places=key.places, requests=requests, tokens=tokens)

    def buckets(self, *names: str) -> tuple[Bucket, ...]:
        return tuple(self.books[name].bucket for name in names if self.limited[name])

    # The books

    def amounts(self, permit: Permit) -> Iterator[tuple[Ledger, float, bool]]:
        """What a permit took, from whom, and whether these are tokens."""
        for bucket in permit.buckets:
            ledger, tokens = self.ledgers[bucket], bucket.label.endswith("tpm")
            yield ledger, permit.tokens if tokens else 1.0, tokens

    def taken(self, permit: Permit) -> None:
        """Somebody has got a permit: it binds what the line is bound by, and everything was there."""
        line, key, urgent = permit.line, permit.key, permit.klass == 0
        assert (key is None) is (line.ring is None)
        assert set(permit.buckets) == {*line.requests, *line.tokens, *(key.requests if key else ()), *self.of_key(key)}
        bound = (*line.limits, *((key.places,) if key is not None and key.places is not None else ()))
        assert permit.limits == bound
        for places in bound:
            assert places.used <= places.size
            others = [one for one in places.reserves if one.group not in line.groups[permit.klass]]
            kept = sum(max(one.size - one.used, 0) for one in others)
            assert places.size - places.used >= kept, "a place that is kept for others was taken"
        for ledger, amount, _ in self.amounts(permit):
            ledger.take(amount, self.now, urgent=urgent)
        self.out[permit] = bound

    @staticmethod
    def of_key(key: Key | None) -> tuple[Bucket, ...]:
        return key.tokens if key is not None else ()

    def settled(self, permit: Permit) -> None:
        """A permit has come back: used, or as it was taken."""
        request, used = self.used.pop(permit, (True, permit.tokens))
        if permit.taken_at == inf:
            request, used = False, 0.0
        for ledger, _, tokens in self.amounts(permit):
            ledger.give(permit.tokens - used if tokens else float(not request), self.now)
        del self.out[permit]
        if permit.klass < 2:
            self.high_ended_at[permit.line.room] = self.now

    # Who could go, counted by hand

    def could_go(self, waiter: Waiter) -> bool:
        """Whether everything that binds it is there."""
        line, klass = waiter.line, waiter.klass
        if klass == 2 and not self.idle(line.room):
            return False
        groups = line.groups[klass]
        if not all(places.free(groups) for places in line.limits):
            return False
        if not self.enough(line.requests, line.tokens, waiter):
            return False
        return line.ring is None or any(
            key.usable
            and key.rests_until <= self.now
            and (key.places is None or key.places.free(groups))
            and self.enough(key.requests, key.tokens, waiter)
            for key in self.keys
        )

    def enough(self, requests: tuple[Bucket, ...], tokens: tuple[Bucket, ...], waiter: Waiter) -> bool:
        urgent = waiter.klass == 0
        needs = [(bucket, 1.0) for bucket in requests] + [(bucket, waiter.tokens) for bucket in tokens]
        return all(self.ledgers[bucket].enough(amount, self.now, urgent=urgent) for bucket, amount in needs)

    def too_large(self, line: Line, tokens: float) -> bool:
        """Whether a bucket can never carry so much, or no key that is there."""
        if any(tokens > self.ledgers[bucket].most for bucket in line.tokens if bucket.capacity):
            return True
        keys = [key for key in self.keys if key.usable] if line.ring is not None else []
        never = [bucket for key in keys for bucket in key.tokens if not bucket.capacity or tokens > bucket.most]
        return bool(keys) and len(never) == len(keys)

    def idle(self, room: Room) -> bool:
        """Rule 8 of `policy.md`."""
        if any(guest.waiter.line.room is room and guest.waiter.klass < 2 for guest in self.waiting):
            return False
        out = [permit for permit in self.out if permit.line.room is room]
        ran = any(permit.klass < 2 for permit in out) or self.now < self.high_ended_at[room] + IDLE_AFTER_SECONDS
        return not ran or len(out) < IDLE_BELOW

    def needs_quota(self, queue: Queue) -> bool:
        """Whether tokens would let it go: of a bucket, or of a key while others have no place."""
        if queue.lack is not Lack.PERMIT or queue.shortage is None or queue.shortage.thing is not self.ring:
            return queue.lack is Lack.QUOTA
        roomy = (key for key in self.ring.keys if key.places is None or key.places.free(queue.groups))
        return any(key.usable and bool(key.requests or key.tokens) for key in roomy)

    def blocks(self, guest: Guest, line: Line) -> bool:
        """Whether nobody behind it may take of what it lacks any more: it was passed for long enough."""
        queue, waiter = guest.queue, guest.waiter
        if queue.waiters.next is not waiter or queue.shortage is None or not self.needs_quota(queue):
            return False
        if self.now - waiter.lack_since <= PASSING_SECONDS + ROUNDING:
            return False
        return queue.shortage.thing in (*line.requests, *line.tokens, line.ring)

    def stands_behind(self, guest: Guest) -> bool:
        """Whether it may not take of what others wait for longer."""
        line = guest.waiter.line
        before = [one for one in self.waiting if one.place <= guest.place and one is not guest]
        return any(self.blocks(one, line) for one in before)
