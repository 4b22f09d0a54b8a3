"""Keys in admission: taken together with the permit, and waited for here."""

from __future__ import annotations

import pytest

from proxy.decisions.keys import Lack
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Refusal
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import NOW, Desk, a_key, a_line, a_ring, an_ask

REJECTED = Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=401, key_fault=True)


def resting(desk: Desk, *, seconds: float) -> None:
    ring = desk.line.ring
    assert ring is not None
    for key in ring.keys:
        ring.judge(key, Outcome(OutcomeKind.RATE_LIMITED, retry_after=seconds), desk.now, used=key.credential)


def test_the_key_is_taken_together_with_the_permit() -> None:
    desk = Desk(Places("provider", 2), ring=a_ring(key := a_key("k", size=1)))
    permit = desk.goes()
    assert permit.key is key
    desk.waits()
    permit.release(desk.now)


def test_a_rest_that_ends_in_time_is_waited_for_in_admission() -> None:
    desk = Desk(places := Places("provider", 1), ring=a_ring(a_key("k")))
    resting(desk, seconds=5.0)
    waiter = desk.waits()
    assert places.used == 0
    desk.passes(4.9)
    assert waiter.permit is None
    desk.passes(0.1)
    assert waiter.permit is not None


@pytest.mark.parametrize("ask", [an_ask(quota_wait=0.3), an_ask(deadline_at=NOW + 4.0)], ids=["quota_wait", "deadline"])
def test_a_rest_that_is_too_long_is_refused_at_entry_with_the_soonest_return(ask: Ask) -> None:
    desk = Desk(Places("provider", 1), ring=a_ring(a_key("k")))
    resting(desk, seconds=5.0)
    assert desk.refused(ask) == Refusal(reason=Reason.KEYS_RESTING, retry_after=5.0)


def test_a_rest_that_grows_while_somebody_waits_ends_as_keys_resting() -> None:
    desk = Desk(Places("provider", 1), ring=a_ring(a_key("k")))
    resting(desk, seconds=5.0)
    waiter = desk.waits(an_ask(quota_wait=6.0))
    desk.passes(1.0)
    resting(desk, seconds=50.0)
    desk.passes(5.0)
    assert waiter.refusal == Refusal(reason=Reason.KEYS_RESTING, retry_after=45.0)


def test_parked_keys_are_refused_at_once_at_entry_and_in_the_queue() -> None:
    desk = Desk(places := Places("provider", 0), ring=a_ring(key := a_key("k")))
    waiter = desk.waits()
    assert desk.line.ring is not None
    desk.line.ring.judge(key, REJECTED, desk.now, used=key.credential)
    places.reconfigure(1)
    desk.admission.pump(desk.now)
    assert waiter.refusal == Refusal(reason=Reason.KEYS_UNUSABLE, retry_after=None)
    assert desk.refused().reason is Reason.KEYS_UNUSABLE


def test_waiting_for_a_permit_and_then_for_a_key_has_two_clocks() -> None:
    desk = Desk(Places("provider", 1), ring=a_ring(a_key("k")))
    permit = desk.goes()
    waiter = desk.waits(an_ask(queue=2.0, quota_wait=3.0))
    desk.passes(1.5)
    resting(desk, seconds=60.0)
    permit.release(desk.now)
    desk.passes(2.9)
    assert waiter.refusal is None
    desk.passes(0.1)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.KEYS_RESTING


def test_the_clock_of_everybody_in_the_queue_follows_what_is_missing() -> None:
    desk = Desk(Places("provider", 1), ring=a_ring(a_key("k")))
    permit = desk.goes()
    waiters = [desk.waits(an_ask(queue=2.0)) for _ in range(3)]
    desk.passes(1.5)
    resting(desk, seconds=10.0)
    permit.release(desk.now)
    desk.passes(9.0)
    assert [waiter.refusal for waiter in waiters] == [None, None, None]


def test_a_tried_key_is_avoided_while_another_is_free() -> None:
    desk = Desk(Places("provider", 9), ring=a_ring(a_key("a"), a_key("b")))
    assert {permit.key.id for permit in (desk.goes(an_ask(tried={"a"})) for _ in range(4)) if permit.key} == {"b"}


def test_a_newcomer_does_not_take_the_key_for_which_another_target_waits_though_no_tick_has_come() -> None:
    desk = Desk(Places("provider", 9), ring=a_ring(a_key("k", size=1)))
    other = a_line(desk.room, *desk.line.limits, ring=desk.line.ring, name="alpha/n")
    resting(desk, seconds=5.0)
    first = desk.waits()
    desk.now += 5.0
    second = desk.waits(line=other)
    assert (first.permit is not None, second.permit) == (True, None)


def test_at_expiry_keys_that_no_waiting_can_mend_are_what_is_told() -> None:
    desk = Desk(Places("provider", 0), ring=a_ring(key := a_key("k")))
    waiter = desk.waits(an_ask(queue=1.0))
    assert desk.line.ring is not None
    desk.line.ring.judge(key, REJECTED, desk.now, used=key.credential)
    desk.passes(1.0)
    assert waiter.refusal == Refusal(reason=Reason.KEYS_UNUSABLE, retry_after=None)


def test_a_newcomer_whose_keys_are_all_parked_is_refused_at_once_though_a_permit_is_missing_too() -> None:
    desk = Desk(Places("provider", 0), ring=a_ring(key := a_key("k")))
    assert desk.line.ring is not None
    desk.line.ring.judge(key, REJECTED, desk.now, used=key.credential)
    assert desk.refused().reason is Reason.KEYS_UNUSABLE


def test_keys_at_their_own_limits_are_waited_for_as_permits_and_go_in_their_order() -> None:
    keys = a_key("a", size=1), a_key("b", size=1)
    desk = Desk(Places("provider", 9), ring=a_ring(*keys))
    permits = [desk.goes(), desk.goes()]
    first, second = desk.waits(an_ask(queue=1.0)), desk.waits()
    assert first.lack is Lack.PERMIT
    permits[0].release(desk.now)
    assert (first.permit is not None, second.permit) == (True, None)
