"""Classes in admission: P2 runs in idle capacity, and is promoted (`policy.md` rule 8)."""

from __future__ import annotations

from proxy.decisions.keys import Lack
from proxy.decisions.places import Places
from proxy.decisions.room import IDLE_AFTER_SECONDS
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import Desk, a_bucket, a_key, a_line, a_ring, a_room, an_ask, patient, sized

P0, P1, P2 = range(3)
A_SHARE = 10
IDLE = 7
"""Permits in use below this number leave capacity idle."""


def a_provider(*limits: Places, share: int = A_SHARE) -> Desk:
    """A provider that has room for everybody."""
    return Desk(*limits, room=a_room(share=share, most=1000, most_bytes=10_000))


# P2


def test_p2_runs_in_an_idle_provider_up_to_its_part_and_beyond_it_while_nobody_of_a_higher_class_runs() -> None:
    desk = a_provider(Places("provider", A_SHARE))
    for _ in range(A_SHARE):
        desk.goes(patient())
    assert desk.waits(patient()).lack is Lack.PERMIT


def test_beside_higher_classes_p2_runs_only_below_its_part_of_the_share() -> None:
    desk = a_provider(Places("provider", A_SHARE))
    desk.goes(an_ask(P1))
    for _ in range(IDLE - 1):
        desk.goes(patient())
    assert desk.waits(patient()).lack is Lack.IDLE
    desk.goes(an_ask(P1))


def test_all_classes_count_as_permits_in_use() -> None:
    desk = a_provider(Places("provider", A_SHARE))
    permits = [desk.goes(an_ask(klass)) for klass in (P0, P1, P1, P1, P1, P1, P1)]
    waiter = desk.waits(patient())
    permits[0].release(desk.now)
    assert waiter.permit is not None


def test_a_second_after_the_last_higher_call_has_ended_p2_runs_whatever_is_in_use() -> None:
    desk = a_provider(Places("provider", A_SHARE), share=0)
    permit = desk.goes(an_ask(P1))
    waiter = desk.waits(patient())
    desk.passes(30.0)
    permit.release(desk.now)
    desk.passes(IDLE_AFTER_SECONDS * 0.99)
    assert waiter.permit is None
    desk.passes(IDLE_AFTER_SECONDS * 0.02)
    assert waiter.permit is not None


def test_another_higher_call_within_that_second_begins_it_anew() -> None:
    desk = a_provider(Places("provider", A_SHARE), share=0)
    first = desk.goes(an_ask(P0))
    waiter = desk.waits(patient())
    first.release(desk.now)
    desk.passes(0.9)
    desk.goes(an_ask(P1)).release(desk.now)
    desk.passes(0.9)
    assert waiter.permit is None
    desk.passes(0.1)
    assert waiter.permit is not None


def test_while_somebody_of_a_higher_class_waits_for_the_provider_no_p2_runs_though_capacity_is_idle() -> None:
    model = Places("model", 0)
    desk = a_provider(Places("provider", A_SHARE), model)
    other = a_line(desk.room, desk.line.limits[0], name="alpha/n")
    first = desk.waits(an_ask(P1))
    waiter = desk.waits(patient(), line=other)
    assert waiter.lack is Lack.IDLE
    desk.admission.leave(first, desk.now)
    assert waiter.permit is not None


def test_a_higher_class_that_waits_for_another_provider_is_nothing_to_p2() -> None:
    desk = a_provider(Places("provider", A_SHARE))
    other = a_line(a_room("beta"), Places("beta", 0), name="beta/m")
    desk.waits(an_ask(P1), line=other)
    desk.goes(patient())


def test_when_the_last_higher_waiter_goes_p2_goes_after_it_in_the_same_moment() -> None:
    desk = a_provider(Places("provider", A_SHARE), Places("model", 0))
    model = desk.line.limits[1]
    other = a_line(desk.room, desk.line.limits[0], name="alpha/n")
    first, idle = desk.waits(an_ask(P1)), desk.waits(patient(), line=other)
    model.reconfigure(1)
    desk.admission.pump(desk.now, [model])
    assert (first.permit is not None, idle.permit is not None) == (True, True)


def test_when_the_last_higher_waiters_time_is_over_p2_goes_in_the_same_moment() -> None:
    desk = a_provider(Places("provider", A_SHARE), Places("model", 0))
    other = a_line(desk.room, desk.line.limits[0], name="alpha/n")
    first, idle = desk.waits(an_ask(P1, queue=2.0)), desk.waits(patient(), line=other)
    desk.passes(2.0)
    assert (first.refusal is not None, idle.permit is not None) == (True, True)


def test_when_an_opening_breaker_or_a_parked_key_refuses_the_last_higher_waiter_p2_goes_in_the_same_moment() -> None:
    desk = a_provider(Places("provider", A_SHARE), Places("model", 0))
    keyed = a_line(desk.room, Places("keyed", 0), ring=a_ring(key := a_key("k")), name="alpha/keyed")
    other = a_line(desk.room, desk.line.limits[0], name="alpha/n")
    first, idle = desk.waits(an_ask(P0), line=keyed), desk.waits(patient(), line=other)
    assert keyed.ring is not None
    rejected = Outcome(OutcomeKind.CREDENTIAL_REJECTED, key_fault=True)
    keyed.ring.judge(key, rejected, desk.now, used=key.credential)
    keyed.limits[0].reconfigure(1)
    desk.admission.pump(desk.now, [keyed.limits[0]])
    assert first.refusal is not None
    assert first.refusal.reason is Reason.KEYS_UNUSABLE
    assert idle.permit is not None


def test_a_newcomer_of_p2_goes_behind_those_whom_a_second_without_higher_calls_has_let_go() -> None:
    desk = a_provider(Places("provider", 1), share=0)
    other = a_line(desk.room, desk.line.limits[0], name="alpha/n")
    desk.goes(an_ask(P1)).release(desk.now)
    waiter = desk.waits(patient())
    desk.now += IDLE_AFTER_SECONDS
    second = desk.waits(patient(), line=other)
    assert (waiter.permit is not None, second.permit) == (True, None)


def test_p2_of_two_targets_go_by_arrival() -> None:
    desk = a_provider(Places("provider", A_SHARE), share=0)
    other = a_line(desk.room, desk.line.limits[0], name="alpha/n")
    permit = desk.goes(an_ask(P1))
    order = [desk.waits(patient(), line=line) for line in (other, desk.line, other)]
    served: list[int] = []
    for number, waiter in enumerate(order):
        waiter.wake = lambda number=number: served.append(number)  # type: ignore[misc]
    permit.release(desk.now)
    desk.passes(IDLE_AFTER_SECONDS)
    assert served == [0, 1, 2]


# Promotion


def test_a_p2_that_has_waited_long_enough_queues_as_p1_behind_those_who_are_there() -> None:
    desk = a_provider(Places("provider", 1))
    permit = desk.goes(an_ask(P1))
    old = desk.waits(patient(promote_after=5.0))
    desk.passes(1.0)
    before = desk.waits(patient(P1))
    desk.passes(4.0)
    after = desk.waits(patient(P1))
    for waiter in (before, old, after):
        assert waiter.permit is None
        permit.release(desk.now)
        assert waiter.permit is not None
        permit = waiter.permit
    assert [waiter.klass for waiter in (before, old, after)] == [P1, P1, P1]


def test_a_promoted_p2_goes_though_calls_of_higher_classes_never_cease() -> None:
    desk = a_provider(Places("provider", A_SHARE), share=0)
    running = desk.goes(an_ask(P1))
    waiter = desk.waits(patient(promote_after=5.0))
    for _ in range(50):
        desk.passes(0.09)
        desk.goes(an_ask(P1)).release(desk.now)
    assert waiter.permit is None
    desk.passes(0.5)
    assert waiter.permit is not None
    assert not running.released


def test_promotion_needs_no_ticker_its_alarm_is_set() -> None:
    desk = a_provider(Places("provider", A_SHARE), share=0)
    desk.goes(an_ask(P1))
    waiter = desk.waits(patient(promote_after=5.0))
    later = desk.waits(patient(promote_after=7.0))
    desk.rings(desk.now + 5.1)
    assert (waiter.permit is not None, later.permit) == (True, None)
    desk.rings(desk.now + 2.0)
    assert later.permit is not None


def test_promotion_gives_no_more_time() -> None:
    desk = a_provider(Places("provider", 1))
    desk.goes(an_ask(P1))
    waiter = desk.waits(patient(promote_after=300.0))
    desk.passes(300.0)
    assert waiter.klass == P1
    desk.passes(299.0)
    assert waiter.refusal is None
    desk.passes(1.0)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.QUEUE_TIMEOUT


def test_many_are_promoted_in_the_order_in_which_they_came() -> None:
    desk = a_provider(Places("provider", A_SHARE), share=0)
    permit, order = desk.goes(an_ask(P1)), []
    waiters = [desk.waits(patient(promote_after=5.0)) for _ in range(5)]
    for number, waiter in enumerate(waiters):
        waiter.wake = lambda number=number: order.append(number)  # type: ignore[misc]
    desk.passes(5.0)
    assert order == [0, 1, 2, 3, 4]
    permit.release(desk.now)


def test_idle_capacity_and_a_permit_are_waited_for_on_one_clock_and_quota_on_another() -> None:
    provider = Places("provider", 1)
    desk = Desk(provider, tokens=(a_bucket(60.0, burst=60.0),), room=a_room(share=0, most=9))
    permit = desk.goes(an_ask(P0))
    waiter = desk.waits(sized(20.0, P2, quota_wait=10.0))
    seen = [waiter.lack]
    for seconds, size in ((4.0, 0), (2.0, 1), (2.0, 0), (1.0, 0)):
        desk.passes(seconds)
        seen.append(waiter.lack)
        permit.release(desk.now)
        provider.reconfigure(size)
    assert seen == [Lack.IDLE, Lack.IDLE, Lack.PERMIT, Lack.QUOTA, Lack.PERMIT]
    assert waiter.expires_at == desk.now + (10.0 - 4.0 - 4.0)


def test_quota_and_a_rested_key_are_waited_for_on_one_clock() -> None:
    key, bucket = a_key("k"), a_bucket(60.0, burst=60.0)
    desk = Desk(ring=a_ring(key), tokens=(bucket,))
    waiter = desk.waits(sized(9.0, queue=1.0, quota_wait=10.0))
    desk.passes(5.0)
    assert desk.line.ring is not None
    desk.line.ring.judge(key, Outcome(OutcomeKind.RATE_LIMITED, retry_after=50.0), desk.now, used=key.credential)
    desk.passes(4.0)
    assert (waiter.lack, waiter.expires_at) == (Lack.KEY, desk.now + 1.0)
