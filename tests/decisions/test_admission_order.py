"""The order in which admission lets calls go: by class and arrival, over all targets, and nobody is passed for good."""

from __future__ import annotations

from proxy.decisions.places import Places
from proxy.decisions.queues import Refusal
from proxy.outcome import Reason
from tests.decisions.waiting_room import Desk, a_line, a_room, an_ask


def test_of_all_targets_who_came_first_goes_first_when_what_all_need_comes_back() -> None:
    """A target that lacks a place of its own too loses no turn by it: it is passed only while it could not go."""
    process, model = Places("process", 2), Places("model", 1)
    desk = Desk(process, model)
    other = a_line(a_room("beta", most=9), process, name="beta/m")
    own, others = desk.goes(), desk.goes(line=other)
    first = desk.waits()
    second, third = desk.waits(line=other), desk.waits(line=other)
    others.release(desk.now)
    assert (first.permit, second.permit is not None) == (None, True)
    own.release(desk.now)
    assert (first.permit is not None, third.permit) == (True, None)


def test_who_lacks_two_things_goes_as_soon_as_both_are_there_whoever_comes_meanwhile() -> None:
    process, model = Places("process", 1), Places("model", 1)
    desk = Desk(process, model)
    other = a_line(a_room("beta", most=99), process, name="beta/m")
    permit = desk.goes(line=other)
    model.reconfigure(0)
    first = desk.waits()
    for _ in range(5):
        waiter = desk.waits(line=other)
        permit.release(desk.now)
        assert waiter.permit is not None
        permit = waiter.permit
    model.reconfigure(1)
    desk.admission.pump(desk.now)
    last = desk.waits(line=other)
    permit.release(desk.now)
    assert (first.permit is not None, last.permit) == (True, None)


def test_a_line_that_is_bound_by_less_lets_its_waiters_go_at_the_next_pump() -> None:
    desk = Desk(Places("provider", 1), Places("model", 0))
    waiters = [desk.waits(), desk.waits()]
    desk.line.reconfigure(desk.line.limits[:1], None)
    desk.admission.pump(desk.now)
    assert [waiter.permit is not None for waiter in waiters] == [True, False]


def test_who_is_told_when_to_come_back_is_told_how_long_those_before_will_take() -> None:
    desk = Desk(Places("provider", 1), room=a_room(most=2))
    permit = desk.goes()
    for _ in range(2):
        waiter = desk.waits()
        desk.now += 4.0
        permit.release(desk.now)
        assert waiter.permit is not None
        permit = waiter.permit
    late, _ = desk.waits(), desk.waits(an_ask(queue=99.0))
    assert desk.refused().retry_after == 12.0
    desk.passes(10.0)
    assert late.refusal == Refusal(reason=Reason.QUEUE_TIMEOUT, retry_after=12.0)
