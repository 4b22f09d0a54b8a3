"""What is said of calls that observing let go: whether they would have waited, and long enough to be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import KeyRing
from proxy.decisions.observing import Tally, would_do
from proxy.decisions.permits import Permit
from proxy.decisions.places import URGENT, Places
from proxy.decisions.queues import Line, Waiter
from proxy.decisions.taking import least_busy
from proxy.observer import Would
from tests.decisions.waiting_room import NOW, a_bucket, a_key, a_line, a_ring, a_room, an_ask

QUEUE = 10.0


def taken(used: int, size: int, label: str = "provider alpha") -> Places:
    places = Places(label, size)
    places.used = used
    return places


def would(
    *limits: Places, ring: KeyRing | None = None, hold: float = 0.0, queue: float = QUEUE, most: int = 8
) -> Would | None:
    tally = Tally()
    tally.held(hold)
    return would_do(a_line(a_room(most=most), *limits, ring=ring), tally, WaitLimits(queue=queue, quota_wait=30.0), NOW)


def test_a_call_that_has_a_place_in_all_limits_would_just_go() -> None:
    assert would(taken(3, 4), taken(0, 1)) is None
    assert would() is None


@pytest.mark.parametrize("limits", [(taken(4, 4), taken(0, 9)), (taken(0, 9), taken(5, 4))])
def test_a_call_that_lacks_one_place_would_wait(limits: tuple[Places, ...]) -> None:
    assert would(*limits) is Would.WAIT


def test_calls_above_the_limit_stand_for_the_queue() -> None:
    assert would(taken(4 + 7, 4)) is Would.WAIT
    assert would(taken(4 + 8, 4)) is Would.QUEUE_FULL


def test_a_wait_that_would_be_too_long_would_end_in_a_refusal() -> None:
    assert would(taken(4 + 3, 4), hold=9.0) is Would.WAIT
    assert would(taken(4 + 3, 4), hold=11.0) is Would.QUEUE_TIMEOUT
    assert would(taken(4, 4), queue=0.0) is Would.QUEUE_TIMEOUT


def asked(line: Line, klass: int, *, tokens: float = 0.0, hold: float = 0.0) -> Would | None:
    tally = Tally()
    tally.held(hold)
    return would_do(line, tally, WaitLimits(queue=QUEUE, quota_wait=30.0), NOW, klass=klass, tokens=tokens)


def test_what_is_kept_for_others_is_no_place() -> None:
    share = taken(2, 4)
    share.reserve([(URGENT, 0.25), ("lane chat/100", 0.25)])
    line = a_line(a_room(), share)
    short = a_line(a_room(), share, lanes=["lane chat/100"])
    assert [asked(one, klass) for one in (line, short) for klass in (0, 1)] == [None, Would.WAIT, None, None]
    assert asked(line, 1, hold=19.0) is Would.WAIT
    assert asked(line, 1, hold=21.0) is Would.QUEUE_TIMEOUT
    share.reserve([(URGENT, 1.0)])
    assert [asked(line, klass) for klass in (0, 1)] == [None, Would.QUEUE_TIMEOUT]


def test_what_is_kept_of_a_key_for_others_is_no_place() -> None:
    key = a_key("a1", size=2)
    assert key.places is not None
    key.places.reserve([(URGENT, 0.5)])
    key.places.used = 1
    line = a_line(a_room(), ring=a_ring(key))
    assert [asked(line, klass) for klass in (0, 1)] == [None, Would.WAIT]


def test_p2_would_wait_for_idle_capacity() -> None:
    room = a_room(share=4)
    line = a_line(room)
    assert asked(line, 2) is None
    for _ in range(3):
        room.starts(1)
    assert [asked(line, klass) for klass in (1, 2)] == [None, Would.WAIT]


def test_what_is_larger_than_a_minute_of_the_fleet_would_be_too_long() -> None:
    line = a_line(a_room(), tokens=(a_bucket(600.0, most=600.0),))
    assert asked(line, 1, tokens=600.0) is Would.WAIT
    assert asked(line, 1, tokens=601.0) is Would.CONTEXT_TOO_LONG


def test_quota_that_comes_too_late_would_be_exhausted() -> None:
    bucket = a_bucket(60.0, burst=60.0)
    line = a_line(a_room(), requests=(bucket,))
    assert asked(line, 1) is Would.WAIT
    bucket.take(30.0, NOW)
    assert asked(line, 1) is Would.QUOTA_EXHAUSTED


def test_where_nothing_is_granted_every_call_would_time_out() -> None:
    assert would(taken(0, 0)) is Would.QUEUE_TIMEOUT


def test_full_keys_count_only_when_no_other_is_free() -> None:
    full, other = a_key("a", size=1), a_key("b", size=1)
    assert full.places is not None
    assert other.places is not None
    full.places.used = 2
    assert would(ring=a_ring(full, other)) is None
    other.places.used = 1
    assert would(ring=a_ring(full, other)) is Would.WAIT
    other.parked = True
    assert would(ring=a_ring(full, other), hold=6.0) is Would.QUEUE_TIMEOUT
    full.rests_until = NOW + 1
    assert would(ring=a_ring(full, other)) is None, "a call that lacks a key waits for it, observed or not"


def test_a_key_without_a_share_of_its_own_is_never_full() -> None:
    full = a_key("a", size=0)
    assert would(ring=a_ring(full, a_key("b"))) is None


def test_the_key_that_is_least_above_its_share_goes_on() -> None:
    keys = [a_key(name, size=size) for name, size in (("a", 1), ("b", 3), ("c", 2))]
    for key in keys:
        assert key.places is not None
        key.places.used = 4
    ring = a_ring(*keys)
    assert least_busy(ring, None, NOW).id == "b"
    assert least_busy(ring, {"b"}, NOW).id == "c"
    assert least_busy(ring, {"a", "b", "c"}, NOW).id == "b"
    keys[1].rests_until = NOW + 1
    assert least_busy(ring, None, NOW).id == "c"


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=100))
def test_the_mean_hold_lies_between_the_shortest_and_the_longest(holds: list[float]) -> None:
    tally = Tally()
    for hold in holds:
        tally.held(hold)
    assert min(holds) * 0.999 <= tally.hold_seconds <= max(holds) * 1.001


@given(st.lists(st.sampled_from(Would)))
def test_every_call_counts_once(seen: list[Would]) -> None:
    tally = Tally()
    for one in seen:
        tally.count(one)
    assert tally.counts == {one: seen.count(one) for one in Would}


@given(st.integers(0, 3), st.lists(st.sampled_from(["enforced", "observed", "ends", "leaves"]), max_size=60))
def test_beside_each_other_who_is_observed_never_waits_and_who_is_not_never_goes_above_the_share(
    share: int, steps: list[str]
) -> None:
    admission, places, room = Admission(), Places("provider alpha", share), a_room(most=100)
    enforced = a_line(room, places)
    apart = Line("alpha/m", room, observes=True)
    apart.reconfigure((places,), None)
    out: list[Permit] = []
    waiting: list[Waiter] = []
    for step in steps:
        before = places.used
        if step == "ends" and out:
            out.pop(0).release(NOW)
        elif step == "leaves" and waiting:
            admission.leave(waiting.pop(), NOW)
        elif step in ("enforced", "observed"):
            line = apart if step == "observed" else enforced
            answer = admission.enter_at_once(line, None, NOW) or admission.enter(line, an_ask(), NOW)
            assert isinstance(answer, Permit if step == "observed" or before < share else Waiter)
            if isinstance(answer, Permit):
                out.append(answer)
            elif isinstance(answer, Waiter):
                waiting.append(answer)
        out += [waiter.permit for waiter in waiting if waiter.permit is not None]
        waiting = [waiter for waiter in waiting if waiter.permit is None]
        assert places.used == len(out)
        assert not waiting or places.used >= share
    for permit in out:
        permit.release(NOW)
    assert places.used == sum(waiter.permit is not None for waiter in waiting)
