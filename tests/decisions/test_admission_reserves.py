"""Reserves in admission: what is kept of places and buckets for P0, and of places for the short answers of a lane."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.admission import PASSING_SECONDS
from proxy.decisions.keys import Lack
from proxy.decisions.permits import Permit
from proxy.decisions.places import URGENT, Places
from proxy.decisions.queues import Line
from tests.decisions.waiting_room import Desk, a_bucket, a_key, a_line, a_ring, a_room, an_ask, patient, sized

P0, P1 = range(2)
A_SHARE = 10


def a_provider(*limits: Places) -> Desk:
    """A provider that has room for everybody, and is idle."""
    return Desk(*limits, room=a_room(share=100, most=1000, most_bytes=10_000))


def reserved(places: Places, part: float) -> Places:
    places.reserve([(URGENT, part)])
    return places


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60), st.integers(0, 9))
def test_lower_classes_never_take_what_is_kept_for_p0(steps: list[tuple[int, bool]], kept: int) -> None:
    places = reserved(Places("provider", A_SHARE), kept / A_SHARE)
    desk, out = a_provider(places), list[Permit]()
    for klass, ends in steps:
        if ends and out:
            out.pop(0).release(desk.now)
        else:
            permit = desk.admission.enter(desk.line, patient(klass), desk.now)
            out += [permit] if isinstance(permit, Permit) else []
        out += handed(desk.line)
        low = sum(permit.klass > P0 for permit in out)
        assert low <= A_SHARE - kept
        assert places.used == len(out) <= A_SHARE


def handed(line: Line) -> list[Permit]:
    """Those who were let go from the queue."""
    found = [waiter.permit for waiter in line.handed if waiter.permit is not None]
    line.handed.clear()
    return found


def test_p0_takes_from_its_reserve_first_and_leaves_the_rest_to_all() -> None:
    desk = a_provider(reserved(Places("provider", 4), 0.5))
    desk.goes(an_ask(P0))
    desk.goes(an_ask(P0))
    desk.goes(an_ask(P1))
    desk.goes(an_ask(P1))
    desk.waits(an_ask(P0))


def test_what_is_kept_passes_a_p1_that_waits_to_a_p0_and_not_to_a_p1_that_comes() -> None:
    desk = a_provider(reserved(Places("provider", 2), 0.5))
    desk.goes(an_ask(P1))
    waiter = desk.waits(an_ask(P1))
    desk.waits(an_ask(P1))
    desk.goes(an_ask(P0))
    assert waiter.permit is None


def test_p1_may_empty_a_bucket_down_to_what_is_kept_for_p0_and_p0_all_of_it() -> None:
    bucket = a_bucket(600.0, reserved=0.2)
    desk = Desk(tokens=(bucket,))
    desk.now += 60.0
    assert bucket.level(desk.now) == 50.0
    desk.goes(sized(40.0))
    desk.waits(sized(1.0))
    desk.goes(sized(10.0, P0))
    assert desk.waits(sized(1.0, P0)).lack is Lack.QUOTA


# Lanes


def test_long_calls_leave_a_lane_its_places_and_its_calls_use_those_for_all_too() -> None:
    places = Places("provider", 4)
    places.reserve([("lane chat/100", 0.5)])
    desk = a_provider(places)
    short = a_line(desk.room, places, name="alpha/short", lanes=["lane chat/100"])
    for _ in range(2):
        desk.goes()
    long = desk.waits()
    permits = [desk.goes(line=short) for _ in range(2)]
    waiter = desk.waits(line=short)
    permits[0].release(desk.now)
    assert (long.permit, waiter.permit is not None) == (None, True)


def test_a_lanes_own_place_is_filled_by_later_short_calls_though_long_ones_wait_before_them() -> None:
    places = Places("provider", 2)
    places.reserve([("lane chat/100", 0.5)])
    desk = a_provider(places)
    short = a_line(desk.room, places, name="alpha/short", lanes=["lane chat/100"])
    own, common = desk.goes(line=short), desk.goes(line=short)
    long, later = desk.waits(), desk.waits(line=short)
    own.release(desk.now)
    assert (long.permit, later.permit is not None) == (None, True)
    common.release(desk.now)
    assert long.permit is not None


def test_urgent_calls_of_a_lane_may_use_both_reserves() -> None:
    places = Places("provider", 3)
    places.reserve([(URGENT, 0.34), ("lane chat/100", 0.34)])
    desk = a_provider(places)
    short = a_line(desk.room, places, name="alpha/short", lanes=["lane chat/100"])
    for _ in range(3):
        desk.goes(an_ask(P0), line=short)
    assert [reserve.used for reserve in places.reserves] == [1, 1]


def test_long_calls_leave_a_lane_its_places_of_every_key_however_long_they_wait() -> None:
    key = a_key("a1", size=2)
    assert key.places is not None
    key.places.reserve([("lane chat/100", 0.5)])
    desk = Desk(Places("provider", 9), ring=a_ring(key))
    short = a_line(desk.room, *desk.line.limits, ring=desk.line.ring, name="alpha/short", lanes=["lane chat/100"])
    desk.goes()
    long = desk.waits()
    own = desk.goes(line=short)
    later = desk.waits(line=short)
    desk.passes(PASSING_SECONDS + 1)
    own.release(desk.now)
    assert (long.permit, later.permit is not None) == (None, True)


def test_a_line_may_stand_for_another_lane() -> None:
    places = Places("provider", 2)
    places.reserve([("lane chat/100", 0.5)])
    desk = a_provider(places)
    desk.goes()
    waiter = desk.waits()
    desk.line.serve(["lane chat/100"])
    desk.admission.pump(desk.now)
    assert waiter.permit is not None
