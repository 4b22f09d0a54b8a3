"""Where calls wait: bounds, clocks by what is lacking, permits."""

from __future__ import annotations

import pytest

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Lack
from proxy.decisions.places import Places
from proxy.decisions.queues import Permit, QueueSettings, Room, Waiter
from tests.decisions.waiting_room import NOW, a_key, a_line, a_room, an_ask


def nobody(now: float) -> None:
    """Nothing waits for what comes back."""


@pytest.mark.parametrize(("most", "share", "expected"), [(0, 1, 8), (0, 4, 8), (0, 10, 20), (3, 10, 3), (0, 0, 8)])
def test_a_room_holds_twice_the_share_unless_the_policy_says_a_number(most: int, share: int, expected: int) -> None:
    room = Room("alpha")
    room.reconfigure(QueueSettings(max=most), share=share)
    assert room.max_waiters == expected
    assert room.max_bytes == 64 * 1024 * 1024


def test_who_comes_later_is_told_how_long_those_before_will_take() -> None:
    room = a_room(share=2)
    assert room.expected_wait() == 1.0
    room.hold_seconds, room.waiting = 4.0, 3
    assert room.expected_wait() == 8.0


def test_a_permit_takes_a_place_in_every_limit_that_binds_it_and_gives_each_back_once() -> None:
    limits = [Places(name, 4) for name in ("process", "provider", "model")]
    key = a_key("k", size=4)
    assert key.places is not None
    returned: list[float] = []
    permit = Permit(a_line(a_room(), *limits), key, NOW, returned.append)
    assert [places.used for places in (*limits, key.places)] == [1, 1, 1, 1]
    for later in (1.0, 2.0, 3.0):
        permit.release(NOW + later)
    assert [places.used for places in (*limits, key.places)] == [0, 0, 0, 0]
    assert returned == [NOW + 1.0]
    assert "released" in repr(permit)


def test_a_permit_gives_back_where_it_took_though_the_policy_has_changed() -> None:
    old, new = Places("old", 4), Places("new", 4)
    key = a_key("k", size=4)
    line = a_line(a_room(), old)
    permit = Permit(line, key, NOW, nobody)
    old_key_places = key.places
    assert old_key_places is not None
    key.places = None
    line.reconfigure((new,), None)
    permit.release(NOW)
    assert (old.used, new.used, old_key_places.used) == (0, 0, 0)


def test_holds_are_averaged_over_the_last_ones() -> None:
    room = a_room()
    line = a_line(room)
    for _ in range(50):
        Permit(line, None, NOW, nobody).release(NOW + 3.0)
    assert room.hold_seconds == pytest.approx(3.0, rel=0.01)


def a_waiter(lack: Lack, *, deadline_at: float = float("inf")) -> Waiter:
    ask = an_ask(queue=2.0, quota_wait=5.0, deadline_at=deadline_at)
    return Waiter(a_line(a_room()), lack, ask, NOW, 1)


@pytest.mark.parametrize(("lack", "seconds"), [(Lack.PERMIT, 2.0), (Lack.KEY, 5.0)])
def test_a_waiter_is_timed_by_what_it_lacks(lack: Lack, seconds: float) -> None:
    assert a_waiter(lack).expires_at == NOW + seconds
    assert a_waiter(lack, deadline_at=NOW + 1.0).expires_at == NOW + 1.0


def test_each_lack_has_a_clock_of_its_own_that_goes_on_when_it_returns() -> None:
    waiter = a_waiter(Lack.PERMIT)
    waiter.lacks(Lack.KEY, NOW + 1.5)
    assert waiter.expires_at == NOW + 6.5
    waiter.lacks(Lack.PERMIT, NOW + 4.0)
    assert waiter.expires_at == NOW + 4.5
    waiter.lacks(Lack.KEY, NOW + 4.25)
    assert waiter.expires_at == NOW + 4.25 + 2.5


def test_lacking_the_same_still_changes_nothing() -> None:
    waiter = a_waiter(Lack.PERMIT)
    waiter.lacks(Lack.PERMIT, NOW + 1.0)
    assert waiter.expires_at == NOW + 2.0
    assert waiter.limits == WaitLimits(queue=2.0, quota_wait=5.0)


def test_before_a_newcomer_stands_who_waits_in_its_class_or_a_higher_one() -> None:
    line = a_line(a_room())
    low = Waiter(line, Lack.PERMIT, an_ask(2), NOW, 1)
    high = Waiter(line, Lack.PERMIT, an_ask(0), NOW, 2)
    line.waiters[2].append(low)
    assert [line.first_waiter(klass) for klass in range(3)] == [None, None, low]
    line.waiters[0].append(high)
    assert [line.first_waiter(klass) for klass in range(3)] == [high, high, high]
    assert repr(line) == "<Line alpha/m 2 waiting>"
