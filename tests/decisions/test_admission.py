"""Admission by example; `test_admission_model.py` has all interleavings."""

from __future__ import annotations

from proxy.decisions.admission import Admission
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Refusal, Waiter
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import NOW, Desk, a_key, a_line, a_ring, a_room, an_ask


def test_who_finds_a_place_goes_at_once_and_the_share_is_never_exceeded() -> None:
    desk = Desk(places := Places("provider", 3))
    for _ in range(3):
        desk.goes()
    desk.waits()
    assert places.used == 3


def test_a_permit_needs_a_place_in_every_limit() -> None:
    limits = [Places("process", 9), Places("provider", 2), Places("model", 1)]
    desk = Desk(*limits)
    desk.goes()
    desk.waits()
    assert [places.used for places in limits] == [1, 1, 1]


def test_a_share_of_zero_queues_and_then_says_queue_timeout() -> None:
    desk = Desk(Places("provider", 0))
    waiter = desk.waits()
    desk.passes(10.0)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.QUEUE_TIMEOUT


def test_without_any_limit_nobody_waits() -> None:
    desk = Desk()
    assert [desk.goes().key for _ in range(50)] == [None] * 50


def test_a_release_hands_the_place_to_the_first_who_waits() -> None:
    desk = Desk(places := Places("provider", 1))
    permit = desk.goes()
    first, second = desk.waits(), desk.waits()
    permit.release(desk.now)
    assert first.permit is not None
    assert second.permit is None
    assert places.used == 1


def test_the_waiter_is_woken_once() -> None:
    desk = Desk(Places("provider", 1))
    permit = desk.goes()
    waiter, woken = desk.waits(), []
    waiter.wake = lambda: woken.append(waiter.permit)
    permit.release(desk.now)
    desk.passes(100.0)
    assert woken == [waiter.permit]


def test_a_permit_handed_to_a_caller_who_has_left_goes_to_the_next() -> None:
    desk = Desk(places := Places("provider", 1))
    permit = desk.goes()
    gone, stays = desk.waits(), desk.waits()
    permit.release(desk.now)
    desk.admission.leave(gone, desk.now)
    assert stays.permit is not None
    assert places.used == 1
    stays.permit.release(desk.now)
    assert places.used == 0


def test_a_caller_who_leaves_the_queue_makes_room_for_others() -> None:
    desk = Desk(Places("provider", 0), room=a_room(most=1, most_bytes=100))
    waiter = desk.waits(an_ask(bytes=100))
    desk.admission.leave(waiter, desk.now)
    assert (desk.room.waiting, desk.room.bytes, desk.admission.waiting) == (0, 0, 0)
    desk.waits(an_ask(bytes=100))


def test_leaving_after_a_refusal_changes_nothing() -> None:
    desk = Desk(Places("provider", 0))
    waiter = desk.waits(an_ask(queue=1.0))
    desk.passes(1.0)
    desk.admission.leave(waiter, desk.now)
    assert desk.admission.waiting == 0


def test_higher_classes_go_first_and_within_a_class_who_came_first() -> None:
    desk = Desk(Places("provider", 1))
    permit = desk.goes()
    order = [desk.waits(an_ask(klass)) for klass in (2, 1, 0, 1, 0)]
    served = []
    for _ in order:
        permit.release(desk.now)
        waiter = next(w for w in order if w.permit is not None and w not in served)
        served.append(waiter)
        assert waiter.permit is not None
        permit = waiter.permit
    assert [order.index(waiter) for waiter in served] == [2, 4, 1, 3, 0]


def test_a_newcomer_never_overtakes_a_waiter_of_its_line() -> None:
    """A place has come free by a reload; until somebody pumps, the first who waits has the right to it."""
    desk = Desk(places := Places("provider", 0))
    first = desk.waits()
    places.reconfigure(1)
    desk.waits()
    desk.admission.pump(desk.now)
    assert first.permit is not None


def test_a_newcomer_of_a_higher_class_goes_before_a_waiter_of_a_lower_one() -> None:
    desk = Desk(places := Places("provider", 0))
    desk.waits(an_ask(1))
    places.reconfigure(1)
    desk.goes(an_ask(0))


def test_lines_that_share_a_provider_go_by_arrival() -> None:
    provider = Places("provider", 1)
    desk = Desk(provider)
    other = a_line(desk.room, provider, name="alpha/n")
    permit = desk.goes()
    first, second = desk.waits(line=other), desk.waits()
    permit.release(desk.now)
    assert (first.permit is not None, second.permit is not None) == (True, False)


def test_who_waits_for_one_model_blocks_no_other_model() -> None:
    provider, model = Places("provider", 4), Places("model", 1)
    desk = Desk(provider, model)
    other = a_line(desk.room, provider, name="alpha/n")
    desk.goes()
    desk.waits()
    desk.goes(line=other)


def test_who_waits_for_one_providers_quota_occupies_no_place_of_all_providers() -> None:
    process = Places("process", 1)
    desk = Desk(process, ring=a_ring(key := a_key("k")))
    other = a_line(a_room("beta"), process, name="beta/m")
    assert desk.line.ring is not None
    desk.line.ring.judge(key, Outcome(OutcomeKind.RATE_LIMITED, retry_after=5.0), desk.now, used=key.credential)
    desk.waits()
    assert process.used == 0
    desk.goes(line=other)


def test_a_full_room_refuses_at_once_with_a_time() -> None:
    desk = Desk(Places("provider", 0), room=a_room(most=2))
    desk.waits()
    desk.waits()
    refusal = desk.refused()
    assert refusal.reason is Reason.QUEUE_FULL
    assert refusal.retry_after is not None
    assert refusal.retry_after >= 1.0


def test_a_room_is_bounded_by_bytes_too() -> None:
    desk = Desk(Places("provider", 0), room=a_room(most_bytes=100))
    desk.waits(an_ask(bytes=60))
    assert desk.refused(an_ask(bytes=41)).reason is Reason.QUEUE_FULL
    desk.waits(an_ask(bytes=40))


def test_a_full_room_is_a_matter_of_its_own_provider() -> None:
    desk = Desk(Places("provider", 0), room=a_room(most=1))
    other = a_line(a_room("beta", most=1), Places("beta", 0), name="beta/m")
    desk.waits()
    desk.waits(line=other)


def test_who_waits_for_a_permit_is_refused_after_queue() -> None:
    desk = Desk(Places("provider", 0))
    waiter = desk.waits(an_ask(queue=0.3))
    desk.passes(0.25)
    assert waiter.refusal is None
    desk.passes(0.05)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.QUEUE_TIMEOUT
    assert waiter.refusal.retry_after is not None


def test_at_the_deadline_the_refusal_names_what_was_missing() -> None:
    desk = Desk(Places("provider", 0))
    waiter = desk.waits(an_ask(queue=10.0, deadline_at=NOW + 1.0))
    desk.passes(1.0)
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.QUEUE_TIMEOUT


def test_a_place_that_comes_free_at_the_last_moment_is_given() -> None:
    desk = Desk(places := Places("provider", 0))
    waiter = desk.waits(an_ask(queue=1.0))
    places.reconfigure(1)
    desk.passes(1.0)
    assert waiter.permit is not None


def test_a_limit_below_use_admits_nobody_until_use_has_fallen() -> None:
    desk = Desk(places := Places("provider", 3))
    permits = [desk.goes() for _ in range(3)]
    places.reconfigure(1)
    waiter = desk.waits()
    for permit in permits[:2]:
        permit.release(desk.now)
        assert waiter.permit is None
    permits[2].release(desk.now)
    assert waiter.permit is not None


def test_a_higher_limit_lets_waiters_go() -> None:
    desk = Desk(places := Places("provider", 0))
    waiters = [desk.waits() for _ in range(3)]
    places.reconfigure(2)
    desk.admission.pump(desk.now)
    assert [waiter.permit is not None for waiter in waiters] == [True, True, False]


def test_when_a_breaker_opens_its_line_is_released_at_once_and_no_other() -> None:
    desk = Desk(provider := Places("provider", 0))
    other = a_line(desk.room, provider, name="alpha/n")
    waiters = [desk.waits(an_ask(klass)) for klass in range(3)]
    stays = desk.waits(line=other)
    refusal = Refusal(reason=Reason.BREAKER_OPEN, retry_after=30.0)
    desk.admission.flush(desk.line, refusal, desk.now)
    assert [waiter.refusal for waiter in waiters] == [refusal] * 3
    assert stays.refusal is None
    assert (desk.room.waiting, desk.admission.waiting) == (1, 1)


def test_when_a_breaker_opens_who_was_handed_a_permit_but_has_not_gone_on_gives_it_back() -> None:
    places = Places("provider", 1)
    desk = Desk(places)
    permit = desk.goes()
    waiter = desk.waits()
    permit.release(desk.now)
    assert (waiter.permit is not None, places.used) == (True, 1)
    refusal = Refusal(reason=Reason.BREAKER_OPEN, retry_after=30.0)
    desk.admission.flush(desk.line, refusal, desk.now)
    assert (waiter.permit, waiter.refusal, places.used) == (None, refusal, 0)


def test_when_a_breaker_opens_who_has_gone_on_keeps_its_permit() -> None:
    places = Places("provider", 1)
    desk = Desk(places)
    permit = desk.goes()
    waiter = desk.waits()
    permit.release(desk.now)
    desk.admission.goes_on(waiter)
    desk.admission.flush(desk.line, Refusal(reason=Reason.BREAKER_OPEN, retry_after=30.0), desk.now)
    assert (waiter.permit is not None, waiter.refusal, places.used) == (True, None, 1)


def test_representations_say_who_waits() -> None:
    desk = Desk(Places("provider", 1))
    answers: list[Permit | Waiter] = [desk.goes(), desk.waits()]
    assert repr(answers) == "[<Permit of alpha>, <Waiter 1 of alpha/m, lacks a permit>]"
    assert repr(desk.admission) == "<Admission 1 waiting in 1 lines>"
    assert repr(desk.room) == "<Room alpha 1/8 waiting>"
    assert repr(Admission()) == "<Admission 0 waiting in 0 lines>"
