"""Turns between tenants: equal cost for equal wants, first come first served within one, and nobody starves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.decisions import fair
from proxy.decisions.fair import FairQueue


@dataclass(slots=True, eq=False)
class Somebody:
    tenant: str
    cost: float
    sequence: int


class Door:
    """A queue, and who was served, in their order."""

    def __init__(self) -> None:
        self.turns = fair.Turns()
        self.queue: FairQueue[Somebody] = FairQueue(self.turns)
        self.arrivals = 0
        self.served: list[Somebody] = []

    def come(self, tenant: str, *costs: float) -> list[Somebody]:
        """Some of one tenant come."""
        new = []
        for cost in costs:
            self.arrivals += 1
            new.append(Somebody(tenant, cost, self.arrivals))
            self.queue.append(new[-1])
        return new

    def serve(self, count: int = 1) -> str:
        """Serves those whose turn it is; returns their tenants."""
        for _ in range(count):
            self.served.append(self.queue.next)
            self.queue.remove(self.served[-1], served=True)
        return "".join(one.tenant for one in self.served[-count:])


def test_one_tenant_is_first_come_first_served_whatever_the_costs() -> None:
    door = Door()
    came = door.come("a", 9.0, 1.0, 500.0, 1.0)
    door.serve(4)
    assert door.served == came


def test_tenants_take_turns_whatever_they_have_queued() -> None:
    door = Door()
    door.come("a", *[1.0] * 1000)
    door.come("b", *[1.0] * 10)
    assert door.serve(20) == "ab" * 10
    assert door.serve(3) == "aaa"


def test_who_comes_while_another_floods_waits_for_one_of_it_at_most() -> None:
    door = Door()
    door.come("a", *[1.0] * 1000)
    door.serve(500)
    door.come("b", *[1.0] * 10)
    assert "b" in door.serve(2)
    assert door.serve(18).count("b") == 9


def test_turns_are_shared_by_tokens_and_not_by_calls() -> None:
    door = Door()
    door.come("a", *[1000.0] * 50)
    door.come("b", *[100.0] * 500)
    assert door.serve(110).count("a") == 10


def test_who_had_nothing_queued_has_saved_nothing_up() -> None:
    """A tenant that was away takes turns from now on; it does not catch up on what others had meanwhile."""
    door = Door()
    door.come("a", *[1.0] * 100)
    door.come("b", 1.0)
    door.serve(80)
    door.come("b", *[1.0] * 20)
    assert door.serve(20).count("b") <= 11


def test_who_comes_again_and_again_one_at_a_time_gets_no_more_than_its_part() -> None:
    door = Door()
    door.come("a", *[1.0] * 200)
    for _ in range(100):
        if all(one.tenant != "b" for one in door.queue):
            door.come("b", 1.0)
        door.serve()
    assert Counter(one.tenant for one in door.served) == {"a": 50, "b": 50}


def test_who_leaves_without_being_served_has_used_nothing_of_its_part() -> None:
    door = Door()
    gone = door.come("a", *[1.0] * 5)
    door.come("b", *[1.0] * 3)
    last = door.come("a", 1.0)
    for one in gone:
        door.queue.remove(one, served=False)
    assert door.serve(4) == "babb"
    assert last[0] in door.served


def test_tenants_that_nobody_has_seen_before_do_not_starve_those_who_were_served_once() -> None:
    door = Door()
    door.come("a", 1.0, 1.0)
    door.come("new 0", 1.0)
    for number in range(1, 100):
        door.serve()
        door.come(f"new {number}", 1.0)
    assert [one.sequence for one in door.served if one.tenant == "a"] == [1, 2]
    assert door.served.index(door.served[0]) == 0
    assert [one.tenant for one in door.served].index("a", 1) <= 5


def test_a_large_one_gets_its_turn_though_small_ones_of_new_tenants_never_cease() -> None:
    door = Door()
    door.come("a", 50.0, 50.0)
    for number in range(300):
        door.come(f"new {number}", 1.0)
        door.serve()
    assert [one.tenant for one in door.served].count("a") == 2


def test_after_something_large_a_newcomer_does_not_stand_behind_all_small_ones() -> None:
    door = Door()
    door.come("a", 10_000.0)
    door.come("b", *[10.0] * 1000)
    assert door.serve() == "a"
    door.come("c", 10.0)
    assert "c" in door.serve(3)


def test_tenants_are_forgotten_once_they_start_like_anybody_new() -> None:
    door = Door()
    door.come("a", *[1.0] * 10_000)
    for number in range(2000):
        door.come(f"new {number}", 1.0)
        door.serve(2)
    assert len(door.turns._ends) < 50
    door.serve(len(door.queue))
    assert (door.turns._ends, repr(door.queue)) == ({}, "<FairQueue 0 of 0 tenants>")


def test_what_a_tenant_gets_in_one_queue_counts_in_those_that_share_its_turns() -> None:
    door, other = Door(), Door()
    other.queue = FairQueue(door.turns)
    door.come("a", *[1.0] * 4)
    door.come("b", *[1.0] * 4)
    other.come("a", *[1.0] * 4)
    other.serve(2)
    assert door.serve(4) == "bbab"
    assert other.queue.turn == (3.0, 3)
    assert [one.sequence for one in other.queue.before("b", 1.0)] == [3]
    door.serve(len(door.queue))
    other.serve(len(other.queue))
    assert (door.turns.starts, repr(door.turns)) == ({}, "<Turns of 0 tenants>")


def test_all_stand_in_the_order_of_their_arrival_for_who_asks_who_is_there() -> None:
    door = Door()
    first, second = door.come("a", 5.0), door.come("b", 1.0)
    third = door.come("a", 1.0)
    assert list(door.queue) == [*first, *second, *third]
    assert door.queue.oldest == 1
    door.queue.remove(first[0], served=False)
    assert door.queue.oldest == 2


def test_the_first_few_are_told_in_the_order_in_which_they_would_go() -> None:
    door = Door()
    door.come("a", 10.0, 10.0, 10.0)
    door.come("b", 1.0, 1.0)
    told = door.queue.in_turn(4)
    assert [one.tenant for one in told] == ["a", "b", "b", "a"]
    assert door.serve(4) == "abba"
    assert door.served == told


def test_before_a_newcomer_stand_its_own_and_of_others_what_is_fair() -> None:
    door = Door()
    flood = door.come("a", *[1.0] * 100)
    own = door.come("b", 1.0, 1.0)
    assert door.queue.before("a", 1.0) == [*flood, *own]
    assert door.queue.before("b", 1.0) == [*own, *flood[:3]]
    assert door.queue.before("c", 1.0) == [flood[0], own[0]]


COSTS = st.sampled_from([1.0, 2.0, 7.0, 40.0])
MOST_COST = 40.0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), COSTS), min_size=1, max_size=120),
    st.lists(st.integers(0, 3), max_size=120),
)
def test_while_two_have_something_waiting_they_get_equal_cost_but_for_two_calls(
    calls: list[tuple[str, float]], services: list[int]
) -> None:
    """Start-time fair queueing's bound: between any two moments, for two tenants that wait all the time."""
    door = Door()
    had: list[dict[str, float]] = [dict.fromkeys("abc", 0.0)]
    waits: list[set[str]] = [set()]
    for number, (tenant, cost) in enumerate(calls):
        door.come(tenant, cost)
        for _ in range(min(services[number] if number < len(services) else 0, len(door.queue))):
            waits.append({one.tenant for one in door.queue})
            door.serve()
            last = door.served[-1]
            had.append({**had[-1], last.tenant: had[-1][last.tenant] + last.cost})
    for a, b in (("a", "b"), ("b", "c"), ("a", "c")):
        began = 0
        for moment in range(1, len(had)):
            if not {a, b} <= waits[moment]:
                began = moment
                continue
            for start in range(began, moment):
                got = [had[moment][one] - had[start][one] for one in (a, b)]
                assert abs(got[0] - got[1]) <= 2 * MOST_COST


class Turns(RuleBasedStateMachine):
    """Any order of coming, leaving and being served, against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.door = Door()
        self.there: list[Somebody] = []

    @rule(tenant=st.sampled_from("abcd"), cost=COSTS)
    def come(self, tenant: str, cost: float) -> None:
        self.there += self.door.come(tenant, cost)

    @precondition(lambda self: self.there)
    @rule()
    def serve(self) -> None:
        self.door.serve()
        gone = self.door.served[-1]
        assert gone is next(one for one in self.there if one.tenant == gone.tenant)
        self.there.remove(gone)

    @precondition(lambda self: self.there)
    @rule(pick=st.integers(0, 50), served=st.booleans())
    def leave(self, pick: int, served: bool) -> None:
        """Also from the middle, and with what was waited for: who needs less may pass."""
        gone = self.there.pop(pick % len(self.there))
        self.door.queue.remove(gone, served=served)

    @invariant()
    def everybody_is_there_once(self) -> None:
        queue = self.door.queue
        assert list(queue) == self.there
        assert len(queue) == len(self.there)
        if self.there:
            assert queue.oldest == self.there[0].sequence
            assert queue.in_turn(1) == [queue.next]
            assert sorted(one.sequence for one in queue.in_turn(99)) == [one.sequence for one in self.there]


TestTurns = Turns.TestCase
