"""Addresses: the least loaded that may go is chosen, each is ejected by itself, and one line waits for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.addresses import Addresses, Hall, Openings, Site, Stay, Way
from proxy.decisions.admission import Admission
from proxy.decisions.breaker import Breaker, BreakerSettings, BreakerState
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask, Line, Waiter
from proxy.decisions.room import QueueSettings, Room
from proxy.decisions.verdict import Verdict

ASK = Ask(limits=WaitLimits(queue=100.0, quota_wait=100.0))
SETTINGS = BreakerSettings(consecutive=1, open_first=5.0, open_cap=5.0, probes=2)


@dataclass(slots=True, eq=False)
class Choice:
    """Some addresses of one target, with a line that waits for all of them."""

    number: int = 2
    most: int = 2
    guarded: bool = True
    now: float = 1000.0
    admission: Admission = field(default_factory=Admission)
    openings: Openings = field(default_factory=lambda: Openings("addresses alpha", Hall()))

    sites: list[Site] = field(init=False)
    breakers: list[Breaker] = field(init=False)
    addresses: Addresses = field(init=False)
    line: Line = field(init=False)
    stays: list[Stay] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sites = [Site((f"host{index}", 80), self.most) for index in range(self.number)]
        self.breakers = [self._breaker() for _ in self.sites]
        pairs = zip(self.sites, self.breakers, strict=True)
        ways = [Way(site=site, breaker=breaker if self.guarded else None) for site, breaker in pairs]
        self.addresses = Addresses(self.openings, ways, on_room=self.pump)
        self.openings.reconfigure(ways)
        room = Room("alpha")
        room.reconfigure(QueueSettings(max=100), share=self.most)
        self.line = Line("alpha/m", room)
        self.line.reconfigure((self.openings.places,), None)

    def _breaker(self) -> Breaker:
        breaker = Breaker(SETTINGS, first_byte=30.0, jitter=lambda: 0.0)
        breaker.reconfigure(SETTINGS, first_byte=30.0, share=self.most)
        breaker.rewire(lambda change: self.pump(), self.pump)
        return breaker

    def pump(self) -> None:
        """What the runtime does when there may be more room."""
        self.admission.pump(self.now, (self.openings.places,))

    def passes(self, seconds: float) -> None:
        """Time goes by, and is noted."""
        self.now += seconds
        for breaker in self.breakers:
            breaker.tick(self.now)

    def trip(self, index: int) -> None:
        """A call at this address fails."""
        ticket = self.breakers[index].acquire(self.now, stream=False)
        assert ticket is not None
        ticket.end(Verdict.FAILURE, self.now)

    def heal(self, index: int) -> None:
        """The probes of this address are good."""
        for _ in range(SETTINGS.probes):
            ticket = self.breakers[index].acquire(self.now, stream=False)
            assert ticket is not None
            ticket.end(Verdict.SUCCESS, self.now)

    def enter(self, *failed: int) -> int:
        """Chooses for a call that stays; returns which address."""
        stay = self.addresses.enter(self.now, {self.sites[index].peer for index in failed})
        self.stays.append(stay)
        return stay.index

    def ask(self) -> Permit | Waiter:
        """Asks admission."""
        answer = self.admission.enter(self.line, ASK, self.now)
        assert isinstance(answer, Permit | Waiter)
        return answer

    @property
    def load(self) -> list[int]:
        return [site.in_use for site in self.sites]


def test_the_least_loaded_is_chosen_and_ties_take_turns() -> None:
    choice = Choice(number=3, most=9)
    assert [choice.enter() for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    for stay in (choice.stays[1], choice.stays[4]):
        stay.end()
    assert [choice.enter() for _ in range(2)] == [1, 1]
    assert choice.load == [2, 2, 2]


def test_an_address_whose_breaker_is_open_is_left_out_and_the_other_takes_all() -> None:
    choice = Choice(most=5)
    choice.trip(0)
    assert [choice.enter() for _ in range(3)] == [1, 1, 1]
    assert choice.addresses.lets_go(choice.now)
    assert choice.addresses.retry_after(choice.now) == 0.0


def test_a_retry_goes_where_the_call_has_not_failed_while_there_is_room() -> None:
    choice = Choice(most=2)
    assert [choice.enter(0), choice.enter(0)] == [1, 1]
    assert choice.enter(0, 1) == 0, "failed everywhere: the least loaded"
    assert choice.enter(0) == 0, "no room elsewhere"


def test_without_breakers_only_the_load_decides() -> None:
    choice = Choice(guarded=False)
    assert [choice.enter() for _ in range(4)] == [0, 1, 0, 1]
    assert choice.addresses.lets_go(choice.now)
    assert not choice.addresses.stays_open(choice.now, 0.0)
    assert choice.addresses.retry_after(choice.now) == 0.0


def test_when_all_are_open_the_first_to_return_is_named_and_chosen() -> None:
    choice = Choice()
    choice.trip(1)
    choice.passes(2.0)
    choice.trip(0)
    assert not choice.addresses.lets_go(choice.now)
    assert choice.addresses.retry_after(choice.now) == pytest.approx(3.0)
    assert choice.addresses.stays_open(choice.now, 2.9)
    assert not choice.addresses.stays_open(choice.now, 3.1)
    assert choice.enter() == 1


def test_the_limit_for_all_is_what_each_has_room_for() -> None:
    choice = Choice(most=3)
    places = choice.openings.places
    assert (places.used, places.size) == (0, 6)
    choice.enter()
    choice.trip(1)
    assert places.size == 3, "one that it has, and two more at the address that is left"
    choice.passes(6.0)
    assert choice.breakers[1].state is BreakerState.HALF_OPEN
    assert places.size == 5, "and as many as there are probes"


def test_who_waits_goes_to_whichever_address_comes_free() -> None:
    choice = Choice(most=1)
    permits = [choice.ask(), choice.ask()]
    assert [choice.enter(), choice.enter()] == [0, 1]
    first, second = choice.ask(), choice.ask()
    assert isinstance(first, Waiter)
    assert isinstance(second, Waiter)
    choice.stays[1].end()
    assert first.permit is None, "the permit itself is still out"
    permit = permits[1]
    assert isinstance(permit, Permit)
    permit.release(choice.now)
    assert first.permit is not None
    assert second.permit is None, "one place, one turn, though nobody has an address yet"
    assert choice.enter() == 1


def test_a_breaker_that_opens_takes_nobody_his_turn_while_another_address_is_there() -> None:
    choice = Choice(most=1)
    permits = [choice.ask(), choice.ask()]
    assert [choice.enter(), choice.enter()] == [0, 1]
    waiter = choice.ask()
    assert isinstance(waiter, Waiter)
    choice.trip(0)
    permit = permits[1]
    assert isinstance(permit, Permit)
    choice.stays[1].end()
    permit.release(choice.now)
    assert waiter.permit is not None
    assert choice.enter() == 1


def test_what_runs_at_an_address_that_is_ejected_takes_no_room_from_the_others() -> None:
    choice = Choice(most=2)
    permits = [choice.ask() for _ in range(4)]
    assert [choice.enter() for _ in range(4)] == [0, 1, 0, 1]
    choice.trip(0)
    waiter = choice.ask()
    assert isinstance(waiter, Waiter)
    choice.stays[1].end()
    permit = permits[1]
    assert isinstance(permit, Permit)
    permit.release(choice.now)
    assert waiter.permit is not None
    assert choice.enter() == 1
    assert choice.load == [2, 2]


def test_an_address_that_comes_back_rises_under_its_own_ceiling() -> None:
    choice = Choice(most=10)
    choice.trip(0)
    choice.passes(6.0)
    choice.heal(0)
    assert choice.breakers[0].room == 2
    assert [choice.enter() for _ in range(6)].count(0) == 2, "the least loaded, but only so far"
    choice.passes(5.0)
    assert choice.breakers[0].room == 4
    choice.passes(5.0)
    assert choice.openings.places.size == 20


def test_waiters_go_to_an_address_as_its_probes_and_its_ceiling_let_them() -> None:
    choice = Choice(number=2, most=4)
    choice.trip(0)
    for _ in range(4):
        assert isinstance(choice.ask(), Permit)
        assert choice.enter() == 1
    waiters = [choice.ask() for _ in range(4)]
    assert [isinstance(waiter, Waiter) and waiter.permit is None for waiter in waiters] == [True] * 4
    choice.passes(6.0)
    assert [isinstance(waiter, Waiter) and waiter.permit is None for waiter in waiters] == [False, False, True, True]


def test_a_place_is_given_back_once() -> None:
    choice = Choice()
    choice.enter()
    choice.stays[0].end()
    choice.stays[0].end()
    assert choice.load == [0, 0]
    assert choice.openings.calls == 0


@given(st.data())
def test_no_address_has_more_than_it_may_and_nothing_is_lost(data: st.DataObject) -> None:
    """Calls come, go and wait, breakers open and time goes by, in any order."""
    choice = Choice(number=data.draw(st.integers(2, 4)), most=data.draw(st.integers(1, 3)))
    running: list[tuple[Permit, Stay]] = []
    waiting: list[Waiter] = []

    def goes(permit: Permit) -> None:
        stay = choice.addresses.enter(choice.now)
        running.append((permit, stay))
        assert choice.load[stay.index] <= choice.most

    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["come", "come", "end", "trip", "time"])):
            case "come":
                answer = choice.ask()
                goes(answer) if isinstance(answer, Permit) else waiting.append(answer)
            case "end" if running:
                permit, stay = running.pop(data.draw(st.integers(0, len(running) - 1)))
                stay.end()
                permit.release(choice.now)
            case "trip":
                able = [i for i, breaker in enumerate(choice.breakers) if breaker.lets_go(choice.now)]
                if len(able) > 1:
                    choice.trip(data.draw(st.sampled_from(able)))
            case _:
                choice.passes(data.draw(st.floats(0.1, 20.0)))
        for waiter in [waiter for waiter in waiting if waiter.permit is not None]:
            waiting.remove(waiter)
            choice.admission.goes_on(waiter)
            assert waiter.permit is not None
            goes(waiter.permit)
        assert not waiting or choice.openings.places.used >= choice.openings.places.size, "somebody waits beside room"
    for permit, stay in running:
        stay.end()
        permit.release(choice.now)
    assert sum(choice.load) <= len([waiter for waiter in waiting if waiter.permit is not None])


def test_each_says_in_a_debugger_how_it_stands() -> None:
    choice = Choice(number=1)
    choice.enter()
    assert repr(choice.sites[0]) == "<Site host0:80 1/2>"
    assert repr(choice.openings) == "<Openings 0/2>"
    assert repr(choice.stays[0]) == "<Stay at <Site host0:80 1/2>>"
    assert repr(choice.addresses).startswith("<Addresses (Way(")
