"""Admission in every order of events: permits are conserved, nobody is stuck, order is kept, counters are true.

Three lines share one process limit; two of them also a provider's limit and its keys; one has a model's limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.decisions.admission import Admission
from proxy.decisions.keys import Key
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.decisions.room import QueueSettings
from proxy.exchange import Credential
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import NOW, a_key, a_line, a_ring, a_room, an_ask

OPENED = Refusal(reason=Reason.BREAKER_OPEN, retry_after=30.0)
PICK = st.integers(0, 50)
IDLE = 100
"""A share of which these few calls use next to nothing."""
SECONDS = st.integers(1, 24).map(lambda quarters: quarters / 4)
ASKS = st.builds(
    an_ask,
    st.integers(0, 2),
    bytes=st.sampled_from([0, 10, 40]),
    queue=st.sampled_from([0.25, 2.0, 5.0]),
    quota_wait=st.sampled_from([0.25, 4.0, 8.0]),
    deadline_at=st.sampled_from([NOW + 2.0, NOW + 20.0, float("inf")]),
    tried=st.sampled_from([None, {"a1"}, {"a1", "a2"}]),
)


@dataclass(slots=True, eq=False)
class Guest:
    """Somebody who was told to wait. `woken` counts how often it was called."""

    waiter: Waiter
    line: Line
    ask: Ask
    since: float
    woken: int = 0


class Admissions(RuleBasedStateMachine):
    """Callers come, wait, leave, hold and release, while keys rest and the policy changes."""

    @initialize()
    def begin(self) -> None:
        self.now = NOW
        self.secrets = 0
        self.admission = Admission()
        self.process, self.alpha, self.beta, self.model = (
            Places(label, size) for label, size in (("process", 4), ("alpha", 3), ("beta", 2), ("model", 2))
        )
        self.keys = (a_key("a1", size=2), a_key("a2"))
        self.ring = a_ring(*self.keys)
        self.rooms = tuple(a_room(name, share=IDLE, most=6, most_bytes=100) for name in ("alpha", "beta"))
        self.lines = (
            a_line(self.rooms[0], self.process, self.alpha, self.model, ring=self.ring, name="alpha/m"),
            a_line(self.rooms[0], self.process, self.alpha, ring=self.ring, name="alpha/n"),
            a_line(self.rooms[1], self.process, self.beta, name="beta/m"),
        )
        self.queue: list[Guest] = []
        self.standing: list[Guest] = []
        self.held: list[Permit] = []
        self.released: list[Permit] = []
        self.out: dict[Permit, tuple[Places, ...]] = {}
        self.holds: list[float] = []

    def places(self) -> list[Places]:
        own = [key.places for key in self.keys if key.places is not None]
        return [self.process, self.alpha, self.beta, self.model, *own]

    def could_go(self, line: Line, klass: int) -> bool:
        """Whether everything that binds the line has a place, counted by hand; P2 waits while others do."""
        if klass == 2 and any(guest.line.room is line.room and guest.ask.klass < 2 for guest in self.queue):
            return False
        if any(places.used >= places.size for places in line.limits):
            return False
        return line.ring is None or any(
            not key.parked and key.rests_until <= self.now and (key.places is None or key.places.used < key.places.size)
            for key in self.keys
        )

    def taken(self, permit: Permit, line: Line) -> None:
        """Somebody has got a permit: it binds what the line is bound by now, and nothing is over its size."""
        own = permit.key.places if permit.key is not None else None
        bound = (*line.limits, *((own,) if own is not None else ()))
        assert (permit.key is None) is (line.ring is None)
        assert all(places.used <= places.size for places in bound)
        self.out[permit] = bound

    def woken(self, guest: Guest) -> None:
        guest.woken += 1
        if guest.waiter.permit is not None:
            self.taken(guest.waiter.permit, guest.line)
            self.goes_in_order(guest)
        self.queue.remove(guest)

    def goes_in_order(self, guest: Guest) -> None:
        """Nobody of its line stood before it, and nobody of another line who could have gone."""
        for other in self.queue:
            if other is guest:
                continue
            before = (other.ask.klass, other.waiter.sequence) < (guest.ask.klass, guest.waiter.sequence)
            assert not (before and (other.line is guest.line or self.could_go(other.line, other.ask.klass)))

    # What callers do

    @rule(number=st.integers(0, 2), ask=ASKS)
    def enter(self, number: int, ask: Ask) -> None:
        line = self.lines[number]
        ahead = [guest for guest in self.queue if guest.line is line and guest.ask.klass <= ask.klass]
        could = self.could_go(line, ask.klass)
        answer = self.admission.enter(line, ask, self.now)
        assert isinstance(answer, Permit) is (could and not ahead)
        if isinstance(answer, Permit):
            self.taken(answer, line)
            self.held.append(answer)
        elif isinstance(answer, Waiter):
            guest = Guest(answer, line, ask, self.now)
            answer.wake = lambda: self.woken(guest)
            self.queue.append(guest)
            self.standing.append(guest)
        else:
            self.refused_for_a_reason(answer, line, ask)

    def refused_for_a_reason(self, refusal: Refusal, line: Line, ask: Ask) -> None:
        usable = [key.rests_until for key in self.keys if not key.parked]
        left = ask.deadline_at - self.now
        # Lower classes take no room from higher ones.
        before = [g.ask for g in self.queue if g.line.room is line.room and g.ask.klass <= ask.klass]
        full = len(before) >= line.room.max_waiters
        full |= sum(one.bytes for one in before) + ask.bytes > line.room.max_bytes
        match refusal.reason:
            case Reason.KEYS_UNUSABLE:
                assert line.ring is not None
                assert not usable
            case Reason.KEYS_RESTING:
                assert line.ring is not None
                assert min(usable) - self.now > min(ask.limits.quota_wait, left)
                assert refusal.retry_after == min(usable) - self.now
            case Reason.QUEUE_FULL:
                assert full
            case _:
                assert refusal.reason is Reason.QUEUE_TIMEOUT
                assert not full
                assert left <= 0 or self.placeless(line, ask, seconds=min(ask.limits.queue, left))

    def placeless(self, line: Line, ask: Ask, *, seconds: float) -> bool:
        """Whether many stand before a newcomer and permits were held for long: what a refusal at entry needs."""
        ahead = sum(guest.line.room is line.room or guest.line.limits[0] in line.limits for guest in self.queue)
        return ahead > 0 and max(self.holds, default=0.0) > 2 * seconds / ahead

    @precondition(lambda self: self.standing)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        """Its task is cancelled, while it waits or after the hand-over."""
        guest = self.standing.pop(pick % len(self.standing))
        if guest in self.queue:
            self.queue.remove(guest)
        if guest.waiter.permit is not None:
            del self.out[guest.waiter.permit]
        self.admission.leave(guest.waiter, self.now)

    @precondition(lambda self: self.standing)
    @rule(pick=PICK)
    def take_up(self, pick: int) -> None:
        """Its task runs again and finds what it has got."""
        guest = self.standing[pick % len(self.standing)]
        if guest not in self.queue:
            self.standing.remove(guest)
            if guest.waiter.permit is not None:
                self.held.append(guest.waiter.permit)

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        permit = self.held.pop(pick % len(self.held))
        del self.out[permit]
        self.holds.append(self.now - permit.taken_at)
        permit.release(self.now)
        self.released.append(permit)

    @precondition(lambda self: self.released)
    @rule(pick=PICK)
    def release_twice(self, pick: int) -> None:
        self.released[pick % len(self.released)].release(self.now)

    # What happens to them

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.admission.tick(self.now)
        for guest in self.queue:
            limits = guest.ask.limits
            assert self.now < guest.ask.deadline_at
            assert self.now - guest.since < limits.queue + limits.quota_wait

    @rule(number=st.integers(0, 2))
    def breaker_opens(self, number: int) -> None:
        line = self.lines[number]
        waiting = [guest for guest in self.queue if guest.line is line]
        for waiter in tuple(line.handed):
            self.admission.goes_on(waiter)
        self.admission.flush(line, OPENED, self.now)
        assert all(guest.waiter.refusal == OPENED for guest in waiting)

    @rule(number=st.integers(0, 1), seconds=st.sampled_from([0.5, 3.0, 60.0]))
    def key_rests(self, number: int, seconds: float) -> None:
        self.judged(self.keys[number], Outcome(OutcomeKind.RATE_LIMITED, retry_after=seconds))

    @rule(number=st.integers(0, 1))
    def key_is_parked(self, number: int) -> None:
        self.judged(self.keys[number], Outcome(OutcomeKind.CREDENTIAL_REJECTED, key_fault=True))

    def judged(self, key: Key, outcome: Outcome) -> None:
        self.ring.judge(key, outcome, self.now, used=key.credential)

    @rule(number=st.integers(0, 1))
    def secret_changes(self, number: int) -> None:
        self.secrets += 1
        key, secret = self.keys[number], str(self.secrets)
        key.renew(Credential(key_id=key.id, header=(b"x-api-key", secret.encode())), secret)
        self.admission.pump(self.now)

    @rule(number=PICK, size=st.integers(0, 5))
    def limit_changes(self, number: int, size: int) -> None:
        every = self.places()
        every[number % len(every)].reconfigure(size)
        self.admission.pump(self.now)

    @rule(bound=st.booleans())
    def policy_drops_or_adds_a_limit(self, bound: bool) -> None:
        own = (self.model,) if bound else ()
        self.lines[0].reconfigure((self.process, self.alpha, *own), self.ring)
        self.keys[0].places = Places("key a1", 2) if bound and self.keys[0].places is None else self.keys[0].places
        self.rooms[0].reconfigure(QueueSettings(max=6 if bound else 2, bytes=100), share=IDLE)
        self.admission.pump(self.now)

    # What always holds

    @invariant()
    def every_place_in_use_belongs_to_a_permit_that_is_out(self) -> None:
        for places in self.places():
            assert places.used == sum(bound.count(places) for bound in self.out.values()), places

    @invariant()
    def nobody_waits_who_could_go(self) -> None:
        assert not [guest.line for guest in self.queue if self.could_go(guest.line, guest.ask.klass)]

    @invariant()
    def counters_equal_the_queues(self) -> None:
        for room in self.rooms:
            inside = [guest for guest in self.queue if guest.line.room is room]
            assert room.waiting == len(inside)
            assert room.bytes == sum(guest.ask.bytes for guest in inside)
        assert self.admission.waiting == len(self.queue)
        for line in self.lines:
            for klass, waiters in enumerate(line.waiters):
                mine = [g.waiter for g in self.queue if g.line is line and g.ask.klass == klass]
                assert list(waiters) == mine

    @invariant()
    def everybody_is_woken_once(self) -> None:
        for guest in self.standing:
            assert guest.woken == (0 if guest in self.queue else 1)

    def teardown(self) -> None:
        """All go home: nothing is left in use, nobody in the queues."""
        if not hasattr(self, "admission"):
            return
        while self.standing:
            self.leave(0)
        while self.held:
            self.release(0)
        assert all(places.used == 0 for places in self.places())
        assert self.admission.waiting == 0
        assert repr(self.admission) == "<Admission 0 waiting in 0 lines>"
        assert not any(any(line.waiters) for line in self.lines)


TestAdmissions = Admissions.TestCase
TestAdmissions.settings = settings(max_examples=200, stateful_step_count=60)
