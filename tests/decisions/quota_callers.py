"""What may happen to the callers of a `World`, and what must hold whatever does. Nothing ticks: alarms do."""

from __future__ import annotations

from collections import Counter
from math import inf

from proxy.decisions.admission import MOST_PASSING
from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.exchange import Credential
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.ledger import ROUNDING, Rate
from tests.decisions.quota_world import RATES, SIZES, Guest, World
from tests.decisions.waiting_room import MOMENT

OPENED = Refusal(reason=Reason.BREAKER_OPEN, retry_after=30.0)
MOST_RINGS = 100
"""Alarms within one step; more of them would be a storm."""


class Callers(World):
    """Those who come, wait, hold and leave."""

    def __init__(self) -> None:
        super().__init__()
        self.standing: list[Guest] = []
        self.held: list[Permit] = []
        self.secrets = 0
        self.counts: Counter[str] = Counter()

    def enter(self, number: int, ask: Ask) -> None:
        """One more call."""
        line = self.lines[number]
        answer = self.admission.enter(line, ask, self.now)
        if isinstance(answer, Permit):
            self.counts["at once"] += 1
            self.taken(answer)
            same = [g for g in self.waiting if g.waiter.line is line and g.waiter.klass <= ask.klass]
            assert not same, "a newcomer went before those of its target"
            self.in_order((ask.klass, inf, 0), line)
            self.held.append(answer)
        elif isinstance(answer, Waiter):
            guest = Guest(answer, ask.klass, self.now)
            answer.wake = lambda: self.woken(guest)
            self.waiting.append(guest)
            self.standing.append(guest)
        else:
            self.counts[answer.reason] += 1
            assert (answer.reason is Reason.CONTEXT_TOO_LONG) is self.too_large(line, ask.tokens)
        self.ring_alarms(self.now)

    def woken(self, guest: Guest) -> None:
        """It has got a permit or a refusal."""
        guest.woken += 1
        self.waiting.remove(guest)
        waiter = guest.waiter
        if waiter.permit is None:
            assert waiter.refusal is not None
            self.counts[f"{waiter.refusal.reason} in the queue"] += 1
            return
        self.counts["served"] += 1
        self.counts["promoted"] += waiter.klass != guest.klass
        self.taken(waiter.permit)
        self.in_turn(waiter)
        self.in_order((waiter.klass, *self.turn), waiter.line)

    def in_turn(self, waiter: Waiter) -> None:
        """Of its own tenant nobody came before it, but who needs more tokens and waits for them not long."""
        for other in self.waiting:
            one = other.waiter
            if one.line is waiter.line and one.klass == waiter.klass and one.tenant == waiter.tenant:
                passed = one.sequence < waiter.sequence
                self.counts["passed"] += passed
                assert not passed or self.needs_quota(waiter.line.queues[waiter.klass])

    def in_order(self, place: tuple[int, float, int], line: Line) -> None:
        """Nobody of a higher class could have gone instead, and nobody was passed who was passed for long enough."""
        for guest in self.waiting:
            if guest.queue.waiters.next is not guest.waiter or guest.place >= place:
                continue
            assert not self.blocks(guest, line), "passed for too long"
            if guest.waiter.klass < place[0] and self.could_go(guest.waiter):
                assert self.stands_behind(guest), "a lower class went first"

    def leave(self, pick: int) -> None:
        """A task is cancelled, while it waits or after the hand-over."""
        guest = self.standing.pop(pick % len(self.standing))
        if guest in self.waiting:
            self.waiting.remove(guest)
        self.admission.leave(guest.waiter, self.now)
        self.ring_alarms(self.now)

    def take_up(self, pick: int) -> None:
        """A task runs again and finds what it has got."""
        guest = self.standing[pick % len(self.standing)]
        if guest not in self.waiting:
            self.standing.remove(guest)
            self.admission.goes_on(guest.waiter)
            if guest.waiter.permit is not None:
                self.held.append(guest.waiter.permit)

    def release(self, pick: int, used: float | None) -> None:
        """A call ends: with a part of what was reserved or more; None: it never reached its provider."""
        permit = self.held.pop(pick % len(self.held))
        self.used[permit] = (True, used * permit.tokens) if used is not None else (False, 0.0)
        request, tokens = self.used[permit]
        permit.settle(request=request, tokens=tokens)
        permit.release(self.now)
        permit.release(self.now)
        self.ring_alarms(self.now)

    # What happens to them

    def passes(self, seconds: float) -> None:
        """Time, from alarm to alarm: nothing else looks."""
        self.ring_alarms(self.now + seconds)

    def ring_alarms(self, until: float) -> None:
        for _ in range(MOST_RINGS):
            if not self.alarms or min(self.alarms) > until:
                self.now = max(self.now, until)
                return
            self.now = max(min(self.alarms), self.now + MOMENT)
            self.alarms.clear()
            self.admission.tick(self.now)
        raise AssertionError("a storm of alarms")

    def breaker_opens(self, number: int) -> None:
        line = self.lines[number]
        for waiter in tuple(line.handed):
            self.admission.goes_on(waiter)
        self.admission.flush(line, OPENED, self.now)
        assert not any(guest.waiter.line is line for guest in self.waiting)
        self.ring_alarms(self.now)

    def key_ends(self, number: int, *, rests: float | None) -> None:
        """A key rests so long, or is parked."""
        key = self.keys[number]
        limited = Outcome(OutcomeKind.RATE_LIMITED, retry_after=rests)
        rejected = Outcome(OutcomeKind.CREDENTIAL_REJECTED, key_fault=True)
        self.ring.judge(key, rejected if rests is None else limited, self.now, used=key.credential)

    def restore(self) -> None:
        """A reload: all limits are as they were, and all keys have new secrets."""
        self.secrets += 1
        for key in self.keys:
            key.renew(Credential(key_id=key.id, header=(b"x-api-key", b"new")), str(self.secrets))
        for label, size in SIZES.items():
            self.places[label].reconfigure(size)
        for name, rate in RATES.items():
            self.books[name].change(rate, self.now)
            self.limited[name] = True
        self.bind()
        self.reloaded()

    def hinted(self, name: str, part: float) -> None:
        """A provider says that so much is left at most."""
        ledger = self.books[name]
        ledger.hint(part * ledger.capacity, self.now)

    def adapts(self, size: int) -> None:
        """The adaptive limit moves; growth is followed by a permit that comes back."""
        self.places["adaptive"].reconfigure(size)
        self.admission.pump(self.now, [self.places["adaptive"]])
        self.ring_alarms(self.now)

    def rate_changes(self, name: str, factor: float, *, reserved: float, bound: bool) -> None:
        """A reload changes a bucket's rate, or binds nobody by it any more."""
        rate = RATES[name]
        per_minute = (rate.per_minute or 0.0) * factor
        self.books[name].change(Rate(per_minute=per_minute, reserved=reserved, most=per_minute), self.now)
        self.limited[name] = bound
        self.bind()
        self.reloaded()

    def limit_changes(self, label: str, size: int) -> None:
        self.places[label].reconfigure(size)
        self.reloaded()

    def reloaded(self) -> None:
        self.admission.pump(self.now)
        self.ring_alarms(self.now)

    # What always holds

    def check(self) -> None:
        """Everything."""
        for ledger in self.books.values():
            ledger.check(self.now)
        self.check_places()
        self.check_counters()
        self.check_waiters()
        self.check_passing()
        for guest in self.standing:
            assert guest.woken == (guest not in self.waiting)
        assert self.admission.out == set(self.out)

    def check_places(self) -> None:
        """Every place in use belongs to a permit that is out, also those of a reserve."""
        own = [key.places for key in self.keys if key.places is not None]
        for places in (*self.places.values(), *own):
            assert places.used == sum(bound.count(places) for bound in self.out.values()), places
            for reserve in places.reserves:
                mine = [p for p in self.out if places in p.limits and reserve.group in p.line.groups[p.klass]]
                assert 0 <= reserve.used <= len(mine)

    def check_counters(self) -> None:
        for room in self.rooms:
            inside = [guest.waiter for guest in self.waiting if guest.waiter.line.room is room]
            assert (room.waiting, room.bytes) == (len(inside), sum(waiter.bytes for waiter in inside))
            assert room.pressing == sum(waiter.klass < 2 for waiter in inside)
            assert room.running == sum(permit.line.room is room for permit in self.out)
            assert room.idle(self.now) is self.idle(room)
        assert self.admission.waiting == len(self.waiting)
        for line in self.lines:
            for klass, waiters in enumerate(line.waiters):
                mine = [g.waiter for g in self.waiting if g.waiter.line is line and g.waiter.klass == klass]
                assert list(waiters) == sorted(mine, key=lambda waiter: waiter.sequence)

    def check_waiters(self) -> None:
        """Nobody waits who could go, or whose time is over, or for nothing."""
        for guest in self.waiting:
            waiter, queue = guest.waiter, guest.queue
            assert self.now < waiter.expires_at + MOMENT, "its time is over"
            assert waiter.klass < 2 or self.now < waiter.promote_at + MOMENT, "it is to be promoted"
            assert self.now - guest.since < waiter.limits.queue + waiter.limits.quota_wait + MOMENT
            assert queue.shortage is not None
            assert queue in queue.shortage.members
            if queue.waiters.next is waiter:
                assert not self.could_go(waiter) or self.stands_behind(guest), f"{waiter} could go"

    def check_passing(self) -> None:
        """Nor does anybody who may pass: the place that it lacked may have come back, which the next tick notes."""
        if any(self.could_pass(guest) for guest in self.waiting):
            self.admission.tick(self.now)
            assert not any(self.could_pass(guest) for guest in self.waiting)

    def could_pass(self, guest: Guest) -> bool:
        return self.may_pass(guest) and self.could_go(guest.waiter) and not self.stands_behind(guest)

    def may_pass(self, guest: Guest) -> bool:
        """Whether it is one of the first who need fewer tokens than the first of those who lack them."""
        queue, waiter = guest.queue, guest.waiter
        if queue.shortage is None or not self.needs_quota(queue):
            return False
        first = queue.shortage.first()
        if first is None or self.now - first.waiters.next.lack_since > 1.0 - ROUNDING:
            return False
        return waiter.tokens < first.waiters.next.tokens and waiter in queue.waiters.in_turn(MOST_PASSING)

    def go_home(self) -> None:
        """All leave: nothing is left in use, nobody waits, buckets fill again."""
        while self.standing:
            self.leave(0)
        while self.held:
            self.release(0, None)
        assert not self.out
        assert all(places.used == 0 and not any(one.used for one in places.reserves) for places in self.places.values())
        assert (self.admission.waiting, self.admission.out) == (0, set())
        assert repr(self.admission) == "<Admission 0 waiting in 0 lines>"
        assert not any(line.handed or any(line.waiters) for line in self.lines)
        assert all(room.running == room.waiting == room.pressing == 0 for room in self.rooms)
        self.restore()
        self.now += 1e6
        for ledger in self.books.values():
            assert ledger.bucket.level(self.now) == ledger.capacity
