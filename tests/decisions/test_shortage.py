"""Shortages: whose turn it is, whether a newcomer's wait is hopeless, and what it is told."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from proxy.decisions.holds import FEWEST_HOLDS
from proxy.decisions.keys import Lack
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Queue, Waiter
from proxy.decisions.shortage import MARGIN, Shortage, whose_turn
from proxy.outcome import Outcome, OutcomeKind
from tests.decisions.waiting_room import NOW, a_key, a_line, a_ring, a_room, an_ask


def a_crowd(line: Line, *sequences: int, klass: int = 1) -> Queue:
    queue = line.queues[klass]
    for sequence in sequences:
        queue.waiters.append(Waiter(line, Lack.PERMIT, an_ask(klass), NOW, sequence))
    return queue


def a_shortage(places: Places, *, hold: float | None = None, samples: int = FEWEST_HOLDS) -> Shortage[Queue]:
    shortage: Shortage[Queue] = Shortage(places)
    for _ in range(samples if hold is not None else 0):
        shortage.hold_ended(hold or 0.0, NOW)
    return shortage


# Whose turn it is.


def test_the_lowest_class_is_first_and_in_a_class_who_came_first() -> None:
    shortage = a_shortage(Places("provider", 0))
    line, other = a_line(a_room()), a_line(a_room(), name="alpha/n")
    queues = [a_crowd(line, 4, 5), a_crowd(other, 3), a_crowd(other, 9, klass=0), a_crowd(line, 1, klass=2)]
    assert shortage.first() is None
    for queue in queues:
        queue.stand_in(shortage)
    order = []
    while (first := shortage.first()) is not None:
        order.append((first.klass, first.first))
        first.waiters.remove(first.waiters.next, served=True)
        if not first.waiters:
            first.stand_in(None)
    assert order == [(0, 9), (1, 3), (1, 4), (1, 5), (2, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_the_turn_is_right_whatever_queues_have_gone_come_back_or_lost_their_first_waiter(seed: int) -> None:
    """Against looking at everybody; queues go between two shortages."""
    dice = random.Random(seed)
    shortages = [a_shortage(Places("a", 0)), a_shortage(Places("b", 0))]
    queues = [queue for number in range(5) for queue in a_line(a_room(), name=str(number)).queues]
    for sequence in range(300):
        queue = dice.choice(queues)
        if queue.waiters and dice.random() < 0.45:
            queue.waiters.remove(queue.waiters.next, served=True)
            if not queue.waiters:
                queue.stand_in(None)
        else:
            a_crowd(queue.line, sequence, klass=queue.klass)
            queue.stand_in(queue.shortage or dice.choice(shortages))
        if queue.waiters and dice.random() < 0.3:
            queue.stand_in(dice.choice(shortages))
        for shortage in shortages:
            inside = [queue for queue in queues if queue.waiters and queue.shortage is shortage]
            wanted = min(inside, key=lambda queue: (queue.klass, queue.first), default=None)
            assert shortage.first() is wanted
            assert shortage.members == set(inside)


def test_among_the_queues_of_one_provider_tenants_take_turns_wherever_they_stand() -> None:
    room = a_room()
    one, other, elsewhere = a_line(room), a_line(room, name="alpha/n"), a_line(a_room("beta"), name="beta/m")
    for line, tenant, sequences in ((one, "a", (1, 3)), (other, "b", (4, 5)), (elsewhere, "b", (2, 6))):
        for sequence in sequences:
            waiter = Waiter(line, Lack.PERMIT, replace(an_ask(), tenant=tenant), NOW, sequence)
            line.queues[1].waiters.append(waiter)
    places = [a_shortage(Places("provider", 0)), a_shortage(Places("process", 0))]
    for line, shortage in ((one, places[0]), (other, places[1]), (elsewhere, places[1])):
        line.queues[1].stand_in(shortage)
    order = []
    while (first := whose_turn(places)) is not None:
        order.append(first.waiters.next.sequence)
        first.waiters.remove(first.waiters.next, served=True)
        if not first.waiters:
            first.stand_in(None)
    assert order == [1, 2, 4, 3, 5, 6]


# Whether waiting is hopeless.


@pytest.mark.parametrize(("ahead", "hopeless"), [(0, False), (3, False), (4, True), (9, True)])
def test_a_wait_is_hopeless_when_those_before_take_every_place_for_longer(ahead: int, hopeless: bool) -> None:
    """4 places, held for a minute: who has 4 before it goes after a minute at the earliest."""
    places = Places("provider", 4)
    shortage = a_shortage(places, hold=60.0)
    if ahead:
        a_crowd(a_line(a_room(), places), *range(ahead)).stand_in(shortage)
    assert shortage.hopeless(1, 10.0, NOW) is hopeless
    assert not shortage.hopeless(1, 60.0, NOW)


def test_without_enough_holds_no_wait_is_hopeless() -> None:
    places = Places("provider", 1)
    for samples in (0, FEWEST_HOLDS - 1):
        shortage = a_shortage(places, hold=60.0, samples=samples)
        a_crowd(a_line(a_room(), places), *range(8)).stand_in(shortage)
        assert not shortage.hopeless(1, 0.1, NOW)


def test_who_waits_in_a_lower_class_stands_before_nobody() -> None:
    places = Places("provider", 1)
    shortage = a_shortage(places, hold=60.0)
    a_crowd(a_line(a_room(), places), *range(8), klass=2).stand_in(shortage)
    assert not shortage.hopeless(1, 1.0, NOW)
    assert shortage.hopeless(2, 1.0, NOW)


def test_of_a_line_only_as_many_count_as_its_own_limit_would_let_go() -> None:
    """20 wait for a model that may have one call at a time: the others of the provider pass them."""
    places, model = Places("provider", 4), Places("model", 1)
    shortage = a_shortage(places, hold=60.0)
    a_crowd(a_line(a_room(), places, model), *range(20)).stand_in(shortage)
    assert not shortage.hopeless(1, 1.0, NOW)
    a_crowd(a_line(a_room(), places, name="alpha/n"), 20, 21, 22).stand_in(shortage)
    assert shortage.hopeless(1, 1.0, NOW)


def test_nobody_knows_how_long_a_share_of_zero_takes() -> None:
    shortage = a_shortage(Places("provider", 0), hold=60.0)
    assert not shortage.hopeless(1, 0.1, NOW)
    assert shortage.expected_wait(1, NOW) == 60.0


def test_keys_that_are_all_at_their_own_limits_are_places_too() -> None:
    keys = a_key("a", size=2), a_key("b", size=3)
    ring = a_ring(*keys)
    shortage: Shortage[Queue] = Shortage(ring)
    assert (shortage.at_once, shortage.certain(NOW)) == (5, False)
    ring.judge(keys[0], Outcome(OutcomeKind.CREDENTIAL_REJECTED, key_fault=True), NOW, used=keys[0].credential)
    assert shortage.at_once == 3
    ring.reconfigure([*keys, a_key("c")], rest_seconds=60.0)
    assert shortage.at_once == 0, "a key without a limit can be had by anybody, once it has rested"


@pytest.mark.parametrize("seed", range(300))
def test_with_equal_holds_a_wait_that_was_called_hopeless_is_longer_than_twice_what_is_allowed(seed: int) -> None:
    """Calls of several targets share a provider's places, each gives its place to the next by admission's order."""
    dice = random.Random(seed)
    size, hold = dice.randint(1, 6), dice.uniform(0.1, 30.0)
    places = Places("provider", size)
    shortage = a_shortage(places, hold=hold)
    frees = sorted(dice.uniform(0.0, hold) for _ in range(size))
    waiting = dice.randint(0, 30)
    for sequence in range(waiting):
        line = a_line(a_room(), places, name=str(sequence % 3))
        a_crowd(line, sequence).stand_in(shortage)
    for _ in range(waiting):
        frees = sorted([*frees[1:], frees[0] + hold])
    wait = frees[0]
    for seconds in (wait * 0.1, wait * 0.4, wait / MARGIN, wait, wait * 3):
        if shortage.hopeless(1, seconds, NOW):
            assert wait > MARGIN * seconds
    if waiting >= size:
        assert shortage.hopeless(1, wait / 10, NOW), "that one is plain"


# What a newcomer is told.


def test_who_comes_later_is_told_how_long_those_before_will_take_and_a_second_at_least() -> None:
    places = Places("provider", 2)
    shortage = a_shortage(places, hold=4.0, samples=3)
    assert shortage.expected_wait(1, NOW) == 2.0
    a_crowd(a_line(a_room(), places), 1, 2, 3).stand_in(shortage)
    assert shortage.expected_wait(1, NOW) == 8.0
    assert shortage.expected_wait(0, NOW) == 2.0
    assert a_shortage(places).expected_wait(1, NOW) == 1.0
    assert a_shortage(places, hold=0.01).expected_wait(1, NOW) == 1.0
    assert repr(shortage) == "<Shortage of <Places provider 0/2>, 1 queues>"
