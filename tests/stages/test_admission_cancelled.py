"""A hundred thousand callers that leave at any moment: nothing is lost, nobody is stuck, order is kept.

Real tasks go through the real stages of four targets; which of them leaves, what ends, and what changes meanwhile (the
limits, down to nothing and back, keys that rest, breakers that open) is drawn. Tasks are cancelled before their first
step, in the queue, after a permit was handed to them and before they run, and at every await of the call itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from math import inf

from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Refusal, Waiter
from proxy.decisions.room import QueueSettings
from proxy.exchange import Exchange, Facts
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stages.admission import AdmissionStage
from tests.decisions.waiting_room import a_key, a_line, a_ring, a_room
from tests.fakes import Ask, FakeClock, FakeReply, answered, make_request

CANCELS = 100_000
CROWD = 90
WAITS = WaitLimits(queue=1.0, quota_wait=2.0)
OPENED = Refusal(reason=Reason.BREAKER_OPEN, retry_after=30.0)
LIMITED = Outcome(OutcomeKind.RATE_LIMITED, status=429, retry_after=0.5)


class CountingAdmission(Admission):
    """Counts the permits that come back, and who leaves when."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def returned(self, permit: Permit, now: float) -> None:
        """Counts."""
        self.counts["unused" if permit.taken_at == inf else "used"] += 1
        super().returned(permit, now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Counts."""
        self.counts["left the queue" if waiter.permit is None else "left when handed a permit"] += 1
        super().leave(waiter, now)


class Place:
    """Four targets of three providers under one limit, and the callers at their doors."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = FakeClock()
        self.admission = CountingAdmission()
        sizes = {"process": 12, "alpha": 6, "m1": 3, "beta": 4, "gamma": 2}
        self.sizes = {Places(label, size): size for label, size in sizes.items()}
        process, alpha, m1, beta, gamma = self.sizes
        self.keys = a_key("a1", size=4), a_key("a2")
        ring = self.ring = a_ring(*self.keys)
        self.rooms = [a_room(name, most=40, most_bytes=10_000) for name in ("alpha", "beta", "gamma")]
        self.lines = [
            a_line(self.rooms[0], process, alpha, m1, ring=ring, name="alpha/m1"),
            a_line(self.rooms[0], process, alpha, ring=ring, name="alpha/m2"),
            a_line(self.rooms[1], process, beta, name="beta/m"),
            a_line(self.rooms[2], process, gamma, name="gamma/m"),
        ]
        self.stages = [AdmissionStage(self.admission, line, limits=WAITS, clock=self.clock) for line in self.lines]
        self.request = make_request(Ask(body=b"x" * 100))
        self.tasks: list[asyncio.Task[None]] = []
        self.running: list[asyncio.Future[None]] = []
        self.arrivals = 0
        self.last: dict[tuple[int, str], int] = defaultdict(int)
        self.counts = self.admission.counts

    # One caller

    async def come(self, number: int) -> None:
        """One call at a target, from its arrival to its end; its last await is inside the call."""
        facts = Facts(request_id="r", arrived_at=0.0, arrived_ns=0)
        facts.klass = self.dice.choice(("P0", "P1", "P1", "P2"))
        exchange = Exchange(self.request, FakeReply(), facts)
        exchange.payload = self.request.body
        self.arrivals += 1
        arrival = self.arrivals

        async def call(exchange: Exchange) -> Outcome:
            self.in_order(number, arrival, exchange)
            try:
                if self.dice.random() < 0.5:
                    await asyncio.sleep(0)
                ends = asyncio.get_running_loop().create_future()
                self.running.append(ends)
                await ends
            except asyncio.CancelledError:
                self.counts["left the call"] += 1
                raise
            if self.dice.random() < 0.02:
                raise LookupError
            return LIMITED if self.dice.random() < 0.05 else answered()

        outcome = await self.stages[number](exchange, call)
        self.counts[outcome.reason or outcome.kind] += 1

    def in_order(self, number: int, arrival: int, exchange: Exchange) -> None:
        """Of those who waited at one target in one class, who goes has come later than who went before."""
        self.counts["calls"] += 1
        if exchange.facts.events:
            queue = number, exchange.facts.klass
            assert self.last[queue] < arrival
            self.last[queue] = arrival

    # What happens to them

    def start(self, count: int) -> None:
        self.tasks += [asyncio.ensure_future(self.come(self.dice.randrange(4))) for _ in range(count)]

    def cancel(self, count: int) -> int:
        """Some leave, wherever they are."""
        leaving = self.dice.sample(self.tasks, min(count, len(self.tasks)))
        return sum(task.cancel() for task in leaving)

    def end(self, count: int) -> None:
        """Some calls end."""
        self.dice.shuffle(self.running)
        for _ in range(min(count, len(self.running))):
            ends = self.running.pop()
            if not ends.done():
                ends.set_result(None)

    def change(self) -> None:
        """The policy changes, or a breaker opens, or a key rests, or time passes."""
        now = self.clock.now()
        match self.dice.randrange(5):
            case 0:
                places = self.dice.choice(list(self.sizes))
                places.reconfigure(self.dice.randint(0, self.sizes[places]))
                self.admission.pump(now)
            case 1:
                self.restore()
            case 2:
                self.admission.flush(self.dice.choice(self.lines), OPENED, now)
            case 3:
                key = self.dice.choice(self.keys)
                self.ring.judge(key, LIMITED, now, used=key.credential)
            case _:
                self.clock.advance(self.dice.choice([0.05, 0.3, 1.5]))
                self.admission.tick(self.clock.now())

    def restore(self) -> None:
        for places, size in self.sizes.items():
            places.reconfigure(size)
        self.rooms[1].reconfigure(QueueSettings(max=self.dice.choice([3, 40]), bytes=10_000), share=4)
        self.admission.pump(self.clock.now())

    def sweep(self) -> None:
        """Forgets the tasks that have ended; every one ended in a way that is allowed."""
        for task in self.tasks:
            if task.done() and not task.cancelled():
                with contextlib.suppress(LookupError):
                    task.result()
        self.tasks = [task for task in self.tasks if not task.done()]

    def holds_what_it_should(self) -> None:
        """Places in use are those of the calls under way and of the permits handed over."""
        process = self.lines[0].limits[0]
        own = [line.limits[1] for line in self.lines[1:]]
        assert process.used == sum(places.used for places in own)
        assert self.admission.waiting == sum(room.waiting for room in self.rooms)

    async def empty(self) -> None:
        """All go home: calls end, keys have rested, who waits is served."""
        self.restore()
        while self.tasks:
            self.end(len(self.running))
            await asyncio.sleep(0)
            self.clock.advance(0.1)
            self.admission.tick(self.clock.now())
            self.sweep()


async def rounds(place: Place, cancels: int) -> int:
    """Lets callers come, go and leave until so many have left."""
    dice, left = place.dice, 0
    while left < cancels:
        place.start(min(30, CROWD - len(place.tasks)))
        for _ in range(dice.choice((0, 1, 1, 2))):
            await asyncio.sleep(0)
        if dice.random() < 0.2:
            place.change()
        place.end(dice.randrange(10))
        left += place.cancel(dice.randrange(40))
        for _ in range(dice.choice((0, 1, 1, 2))):
            await asyncio.sleep(0)
        place.sweep()
        place.holds_what_it_should()
    return left


async def test_after_a_hundred_thousand_cancellations_nothing_is_held_and_nobody_waits() -> None:
    place = Place(seed=1)
    assert await rounds(place, CANCELS) >= CANCELS
    await place.empty()
    counts = place.counts
    assert counts["used"] == counts["calls"], "every permit that went out has come back"
    assert [places.used for places in (*place.sizes, *(key.places for key in place.keys if key.places))] == [0] * 6
    assert place.admission.waiting == 0
    assert [(room.waiting, room.bytes) for room in place.rooms] == [(0, 0)] * 3
    assert not any(line.handed or any(line.waiters) for line in place.lines)
    assert repr(place.admission) == "<Admission 0 waiting in 0 lines>"
    for moment in ("left the queue", "left when handed a permit", "left the call"):
        assert counts[moment] > CANCELS / 50, "without many of each this would say little"
