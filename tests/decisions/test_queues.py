"""Where calls wait: bounds, clocks by what is lacking, permits."""

from __future__ import annotations

from math import inf

import pytest

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Lack
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Waiter
from proxy.decisions.room import QueueSettings, Room
from tests.decisions.waiting_room import NOW, a_key, a_line, a_room, an_ask


def nobody(permit: Permit, now: float) -> None:
    """Nothing waits for what comes back."""


@pytest.mark.parametrize(("most", "share", "expected"), [(0, 1, 8), (0, 4, 8), (0, 10, 20), (3, 10, 3), (0, 0, 8)])
def test_a_room_holds_twice_the_share_unless_the_policy_says_a_number(most: int, share: int, expected: int) -> None:
    room = Room("alpha")
    room.reconfigure(QueueSettings(max=most), share=share)
    assert room.max_waiters == expected
    assert room.max_bytes == 64 * 1024 * 1024


def test_a_permit_takes_a_place_in_every_limit_that_binds_it_and_gives_each_back_once() -> None:
    limits = [Places(name, 4) for name in ("process", "provider", "model")]
    key = a_key("k", size=4)
    assert key.places is not None
    returned: list[tuple[Permit, float]] = []
    permit = Permit(a_line(a_room(), *limits), key, NOW, lambda *what: returned.append(what))
    assert [places.used for places in (*limits, key.places)] == [1, 1, 1, 1]
    for later in (1.0, 2.0, 3.0):
        permit.release(NOW + later)
    assert [places.used for places in (*limits, key.places)] == [0, 0, 0, 0]
    assert returned == [(permit, NOW + 1.0)]
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


def test_a_permit_that_comes_back_unused_says_nothing_of_how_long_one_is_held() -> None:
    line = a_line(a_room(), places := Places("provider", 1))
    permit = Permit(line, None, NOW, nobody)
    permit.give_back(NOW + 1.0)
    permit.release(NOW + 2.0)
    assert (places.used, permit.taken_at) == (0, inf)


def a_waiter(lack: Lack, *, deadline_at: float = inf) -> Waiter:
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


def test_before_a_newcomer_stands_who_waits_in_its_class_or_else_in_the_next_higher_one() -> None:
    line = a_line(a_room())
    first, _, third = line.queues
    third.waiters.append(Waiter(line, Lack.PERMIT, an_ask(2), NOW, 1))
    assert [line.queue_before(klass) for klass in range(3)] == [None, None, third]
    first.waiters.append(Waiter(line, Lack.PERMIT, an_ask(0), NOW, 2))
    assert [line.queue_before(klass) for klass in range(3)] == [first, first, third]
    assert repr(line) == "<Line alpha/m 2 waiting>"
    assert repr(third) == "<Queue 2 of alpha/m, 1 waiting>"


def test_the_narrowest_limit_says_how_many_of_a_queue_can_go_in_so_many_rounds() -> None:
    line = a_line(a_room(), Places("provider", 9), Places("model", 2))
    queue = line.queues[1]
    for number in range(5):
        queue.waiters.append(Waiter(line, Lack.PERMIT, an_ask(), NOW, number))
    assert [queue.going(rounds) for rounds in range(4)] == [0, 2, 4, 5]
    line.reconfigure((), None)
    assert queue.going(1) == 5
