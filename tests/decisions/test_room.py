"""A provider's waiting room: what it counts, how many it holds, and when P2 may run."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.room import IDLE_AFTER_SECONDS, QueueSettings, Room
from tests.decisions.waiting_room import NOW, a_room

P0, P1, P2 = range(3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["enters", "leaves", "starts", "ends", "passes"]), st.integers(0, 2), st.integers(0, 9)),
    max_size=80,
)


def test_it_is_bounded_by_waiters_and_by_bytes() -> None:
    room = a_room(most=2, most_bytes=100)
    room.enters(P1, 60)
    assert (room.has_room(P1, 40), room.has_room(P1, 41)) == (True, False)
    room.enters(P1, 0)
    assert not room.has_room(P1, 0)
    room.leaves(P1, 60)
    assert room.has_room(P1, 100)


def test_low_classes_take_no_room_from_high_ones() -> None:
    room = a_room(most=2, most_bytes=100)
    room.enters(P2, 100)
    room.enters(P2, 0)
    assert [room.has_room(klass, 100) for klass in (P0, P1, P2)] == [True, True, False]
    room.enters(P0, 50)
    assert [(room.has_room(klass, 50), room.has_room(klass, 51)) for klass in (P0, P1)] == [(True, False)] * 2
    room.enters(P1, 0)
    assert [room.has_room(klass, 0) for klass in (P0, P1, P2)] == [True, False, False]
    assert (room.waiting, room.bytes) == (4, 150)


def test_it_is_idle_while_nobody_was_ever_there() -> None:
    room = a_room(share=0)
    assert room.idle(NOW)
    assert room.idle_at(NOW) == NOW


def test_a_higher_class_that_runs_makes_it_busy_until_a_second_after_its_end() -> None:
    room = a_room(share=0)
    room.starts(P1)
    assert (room.idle(NOW), room.idle_at(NOW)) == (False, inf)
    room.ends(P1, NOW + 5.0)
    due = NOW + 5.0 + IDLE_AFTER_SECONDS
    assert room.idle_at(NOW + 5.0) == due
    assert (room.idle(due - 0.001), room.idle(due)) == (False, True)


def test_below_its_part_of_the_share_it_is_idle_though_higher_classes_run() -> None:
    room = Room("alpha")
    room.reconfigure(QueueSettings(), share=4, idle_below=0.5)
    room.starts(P0)
    assert room.idle(NOW)
    room.starts(P2)
    assert not room.idle(NOW)


def test_the_part_follows_a_reload() -> None:
    room = a_room(share=0)
    room.starts(P1)
    assert not room.idle(NOW)
    room.reconfigure(QueueSettings(), share=4)
    assert room.idle(NOW)


def test_while_a_higher_class_waits_it_is_not_idle_at_any_time() -> None:
    room = a_room(share=100)
    room.enters(P1, 0)
    assert (room.idle(NOW), room.idle_at(NOW)) == (False, inf)
    room.leaves(P1, 0)
    room.enters(P2, 0)
    assert room.idle(NOW)


@given(STEPS)
def test_rule_8_and_its_counts_in_any_order_of_events(steps: list[tuple[str, int, int]]) -> None:
    room, now, ended_at = a_room(share=4), NOW, -inf
    waits: list[int] = []
    runs: list[int] = []
    for step, klass, tenths in steps:
        if step == "passes":
            now += tenths / 10
        elif step == "enters":
            room.enters(klass, tenths)
            waits.append(klass)
        elif step == "starts":
            room.starts(klass)
            runs.append(klass)
        elif step == "ends" and klass in runs:
            room.ends(klass, now)
            runs.remove(klass)
            ended_at = now if klass < P2 else ended_at
        elif step == "leaves" and klass in waits:
            room.leaves(klass, 0)
            waits.remove(klass)
        higher_waits = any(klass < P2 for klass in waits)
        ran_lately = any(klass < P2 for klass in runs) or now < ended_at + IDLE_AFTER_SECONDS
        assert room.idle(now) is (not higher_waits and (not ran_lately or len(runs) < 0.7 * 4))
        assert (room.waiting, room.running) == (len(waits), len(runs))
        assert (room.idle_at(now) == now) is room.idle(now)
        assert room.idle_at(now) == inf or room.idle(room.idle_at(now))


def test_it_says_how_many_wait() -> None:
    assert repr(a_room(most=3)) == "<Room alpha 0/3 waiting>"
