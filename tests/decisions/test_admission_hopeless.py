"""Waits that are refused at entry: only when they are hopeless, as what they would have ended as, with a true time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.forecast import HOPELESS
from proxy.decisions.holds import FEWEST_HOLDS, MOST_HOLDS
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Refusal, Waiter
from proxy.decisions.shortage import MARGIN
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import NOW, Desk, a_key, a_line, a_ring, a_room, an_ask

FOREVER = 1e9


def served(desk: Desk, permits: list[Permit], *, hold: float, times: int) -> None:
    """Lets calls of one hold come one after the other, while somebody waits."""
    for _ in range(times):
        waiter = desk.waits()
        desk.now += hold
        permits.pop(0).release(desk.now)
        assert waiter.permit is not None
        desk.admission.goes_on(waiter)
        permits.append(waiter.permit)


def a_busy_desk(hold: float, *, times: int = FEWEST_HOLDS) -> tuple[Desk, list[Permit]]:
    desk = Desk(Places("provider", 1))
    permits = [desk.goes()]
    served(desk, permits, hold=hold, times=times)
    return desk, permits


def test_a_hopeless_wait_is_refused_at_entry_as_a_queue_timeout_that_says_so() -> None:
    desk, _ = a_busy_desk(30.0)
    desk.waits()
    refusal = desk.refused(an_ask(queue=10.0))
    assert refusal == Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=60.0, detail=HOPELESS)
    desk.waits(an_ask(queue=20.0))


def test_the_first_in_the_queue_is_never_hopeless_because_a_place_may_come_free_at_any_moment() -> None:
    desk, _ = a_busy_desk(30.0)
    desk.waits(an_ask(queue=0.3))


def test_the_deadline_makes_a_wait_hopeless_too() -> None:
    desk, _ = a_busy_desk(30.0)
    desk.waits()
    assert desk.refused(an_ask(queue=40.0, deadline_at=desk.now + 5.0)).reason is Reason.QUEUE_TIMEOUT
    desk.waits(an_ask(queue=40.0, deadline_at=desk.now + 50.0))


def test_too_few_calls_have_ended_to_call_a_wait_hopeless() -> None:
    desk, _ = a_busy_desk(30.0, times=FEWEST_HOLDS - 1)
    desk.waits()
    desk.waits(an_ask(queue=0.1))


def test_when_the_provider_becomes_faster_waits_have_hope_again() -> None:
    desk, permits = a_busy_desk(30.0, times=MOST_HOLDS)
    first = desk.waits()
    assert desk.refused(an_ask(queue=10.0)).reason is Reason.QUEUE_TIMEOUT
    permits.pop().release(desk.now)
    assert first.permit is not None
    permits.append(first.permit)
    served(desk, permits, hold=0.1, times=MOST_HOLDS // 2 + 1)
    desk.waits()
    desk.waits(an_ask(queue=10.0))


def test_a_limit_that_has_changed_is_learned_anew() -> None:
    desk, _ = a_busy_desk(30.0)
    desk.waits()
    desk.line.limits[0].reconfigure(2)
    desk.admission.pump(desk.now)
    for _ in range(3):
        desk.waits(an_ask(queue=0.1))


def test_permits_that_came_back_unused_do_not_make_holds_look_short() -> None:
    desk, permits = a_busy_desk(30.0)
    for _ in range(MOST_HOLDS):
        gone, stays = desk.waits(an_ask(queue=99.0)), desk.waits(an_ask(queue=99.0))
        permits.pop().release(desk.now + 30.0)
        desk.now += 30.0
        desk.admission.leave(gone, desk.now)
        assert stays.permit is not None
        desk.admission.goes_on(stays)
        permits.append(stays.permit)
    desk.waits()
    assert desk.refused(an_ask(queue=10.0)).retry_after == pytest.approx(60.0)


def test_who_may_not_wait_at_all_is_refused_at_once() -> None:
    desk = Desk(Places("provider", 1))
    desk.goes()
    assert desk.refused(an_ask(queue=0.0)) == Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=1.0)
    assert desk.refused(an_ask(deadline_at=desk.now)).reason is Reason.QUEUE_TIMEOUT


def test_a_key_that_rests_longer_than_both_waits_together_is_told_though_a_permit_is_missing_first() -> None:
    desk = Desk(Places("provider", 0), ring=a_ring(key := a_key("k")))
    assert desk.line.ring is not None
    desk.line.ring.judge(key, Outcome(OutcomeKind.RATE_LIMITED, retry_after=50.0), desk.now, used=key.credential)
    assert desk.refused(an_ask(queue=10.0, quota_wait=30.0)) == Refusal(reason=Reason.KEYS_RESTING, retry_after=50.0)
    desk.waits(an_ask(queue=20.0, quota_wait=30.0))


# With equal holds it is exact.


@dataclass(slots=True)
class World:
    """Calls of one hold at three targets of two providers; those that are called hopeless wait all the same."""

    dice: random.Random
    hold: float
    lines: list[Line]
    admission: Admission = field(default_factory=Admission)
    now: float = NOW
    ends: list[tuple[float, int, Permit]] = field(default_factory=list)
    standing: list[tuple[Waiter, float]] = field(default_factory=list)
    hopeless: int = 0
    calls: int = 0

    def runs(self, permit: Permit) -> None:
        self.calls += 1
        heapq.heappush(self.ends, (self.now + self.hold, self.calls, permit))

    def comes(self) -> None:
        """One more call; `allowed` is what it may wait if it was refused, 0 if it was not."""
        line, klass, seconds = self.dice.choice(self.lines), self.dice.choice([0, 1, 1, 2]), self.dice.uniform(0.01, 20)
        answer, allowed = self.admission.enter(line, an_ask(klass, queue=seconds), self.now), 0.0
        if isinstance(answer, Refusal):
            assert answer.detail == HOPELESS
            allowed = seconds
            self.hopeless += 1
            answer = self.admission.enter(line, an_ask(klass, queue=FOREVER), self.now)
        assert not isinstance(answer, Refusal)
        if isinstance(answer, Permit):
            self.runs(answer)
        else:
            self.standing.append((answer, allowed))

    def passes(self, seconds: float) -> None:
        """Ends what ends meanwhile, each at its time."""
        until = self.now + seconds
        while self.ends and self.ends[0][0] <= until:
            self.now, _, permit = heapq.heappop(self.ends)
            permit.release(self.now)
            for entry in [entry for entry in self.standing if entry[0].permit is not None]:
                self.standing.remove(entry)
                self.goes(*entry)
        self.now = until

    def goes(self, waiter: Waiter, allowed: float) -> None:
        assert waiter.permit is not None
        assert self.now - waiter.since >= MARGIN * allowed
        self.admission.goes_on(waiter)
        self.runs(waiter.permit)


def hopeless_calls(seed: int) -> int:
    """Runs a world with half as many calls again as it can serve; returns how many of them were called hopeless."""
    dice = random.Random(seed)
    alpha, beta, model = (Places(name, dice.randint(1, 4)) for name in ("alpha", "beta", "model"))
    process = Places("process", dice.choice([3, 5, 99]))
    rooms = a_room("alpha", most=60), a_room("beta", most=60)
    lines = [
        a_line(rooms[0], process, alpha, name="alpha/n"),
        a_line(rooms[0], process, alpha, model, name="alpha/m"),
        a_line(rooms[1], process, beta, name="beta/m"),
    ]
    world = World(dice, hold=dice.uniform(0.2, 10.0), lines=lines)
    rate = 1.5 * min(process.size, alpha.size + beta.size) / world.hold
    for _ in range(300):
        if world.admission.waiting < 50:
            world.comes()
        world.passes(dice.expovariate(rate))
    world.passes(FOREVER)
    assert world.admission.waiting == 0
    assert all(places.used == 0 for places in (alpha, beta, model, process))
    return world.hopeless


def test_with_equal_holds_nobody_is_called_hopeless_who_could_go_within_twice_its_time() -> None:
    assert sum(map(hopeless_calls, range(60))) > 1000, "without refusals this would say nothing"
