"""Who waits where, for what, and until when: the books of admission, without its decisions."""

from __future__ import annotations

from math import inf

import pytest

from proxy.decisions.keys import Lack
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Waiter
from proxy.decisions.shortage import Thing
from proxy.decisions.standing import Standing
from proxy.outcome import Reason
from tests.decisions.waiting_room import NOW, a_bucket, a_line, a_room, an_ask, patient, sized

P1, P2 = 1, 2


class Books:
    """A standing with two lines of one room."""

    def __init__(self) -> None:
        self.standing = Standing()
        self.room = a_room()
        self.places, self.bucket = Places("provider", 0), a_bucket(60.0)
        self.line = a_line(self.room, self.places, tokens=(self.bucket,))
        self.other = a_line(self.room, self.places, name="alpha/n")

    def join(self, ask: Ask | None = None, *, line: Line | None = None, lack: Lack = Lack.PERMIT) -> Waiter:
        things: dict[Lack, Thing] = {Lack.PERMIT: self.places, Lack.QUOTA: self.bucket, Lack.IDLE: self.room}
        shortage = self.standing.shortage(things[lack])
        return self.standing.join(line or self.line, ask or an_ask(), lack, shortage, NOW)


def test_a_newcomer_stands_last_and_counts_in_its_room() -> None:
    books = Books()
    first, second = books.join(an_ask(bytes=3)), books.join(an_ask(bytes=4))
    assert list(books.line.queues[P1].waiters) == [first, second]
    assert (books.standing.waiting, books.room.waiting, books.room.bytes, books.room.pressing) == (2, 2, 7, 2)
    assert first.sequence < second.sequence


def test_a_queue_lacks_one_thing_whatever_its_newcomers_were_found_to_lack() -> None:
    books = Books()
    first, second = books.join(), books.join(lack=Lack.QUOTA)
    queue = books.line.queues[P1]
    assert (queue.lack, first.lack, second.lack) == (Lack.PERMIT, Lack.PERMIT, Lack.PERMIT)
    assert queue.shortage is books.standing.shortage(books.places)


def test_who_leaves_is_nowhere_any_more() -> None:
    books = Books()
    waiter = books.join(an_ask(bytes=5))
    books.standing.leave(waiter)
    assert (books.standing.waiting, books.room.waiting, books.room.bytes, books.room.pressing) == (0, 0, 0, 0)
    assert books.standing.lacked([books.places]) == []
    assert books.line.queues[P1].shortage is None
    assert repr(books.standing) == "<Standing 0 waiting in 0 lines>"


def test_what_a_queue_lacks_now_decides_which_clock_of_all_its_waiters_runs() -> None:
    books = Books()
    waiters = [books.join(an_ask(queue=5.0, quota_wait=20.0)) for _ in range(2)]
    assert books.standing.next_at == NOW + 5.0
    books.standing.lacks(books.line.queues[P1], Lack.QUOTA, books.standing.shortage(books.bucket), NOW + 4.0)
    assert [waiter.expires_at for waiter in waiters] == [NOW + 24.0] * 2
    books.standing.lacks(books.line.queues[P1], Lack.PERMIT, books.standing.shortage(books.places), NOW + 10.0)
    assert [waiter.expires_at for waiter in waiters] == [NOW + 11.0] * 2
    assert books.standing.lacked([books.bucket, books.places]) == [books.standing.shortage(books.places)]


def test_a_clock_that_has_run_out_stays_so_whatever_is_lacked_now() -> None:
    books = Books()
    waiter = books.join(an_ask(queue=5.0, quota_wait=20.0))
    books.standing.lacks(books.line.queues[P1], Lack.QUOTA, books.standing.shortage(books.bucket), NOW + 5.0)
    assert [late for late, _ in books.standing.late(NOW + 5.0)] == [waiter]


def test_where_part_of_a_thing_may_do_for_those_behind_a_new_member_is_looked_at_once() -> None:
    books = Books()
    books.join()
    books.standing.lacks(books.line.queues[P1], Lack.QUOTA, books.standing.shortage(books.bucket), NOW)
    assert books.standing.to_look_at() == [books.standing.shortage(books.bucket)]
    assert books.standing.to_look_at() == []
    books.standing.lacks(books.line.queues[P1], Lack.PERMIT, books.standing.shortage(books.places), NOW)
    assert books.standing.to_look_at() == [], "of a whole place nobody can have a part"


def test_those_who_wait_for_idle_capacity_are_looked_at_when_the_last_higher_waiter_leaves() -> None:
    books = Books()
    idle = books.join(patient(), lack=Lack.IDLE)
    higher = [books.join(an_ask(klass), line=books.other) for klass in (0, 1)]
    books.standing.leave(higher[0])
    assert books.standing.to_look_at() == []
    books.standing.leave(higher[1])
    assert books.standing.to_look_at() == [books.standing.shortage(books.room)]
    books.standing.leave(idle)


def test_promotion_keeps_the_order_and_what_was_waited_already() -> None:
    books = Books()
    higher = books.join(an_ask(P1))
    low = [books.join(patient(promote_after=after)) for after in (5.0, 3.0, 9.0)]
    assert books.standing.next_at == NOW + 3.0
    books.standing.promote(NOW + 2.9)
    assert [waiter.klass for waiter in low] == [P2, P2, P2]
    books.standing.promote(NOW + 5.0)
    assert [waiter.klass for waiter in low] == [P1, P1, P2]
    assert list(books.line.queues[P1].waiters) == [higher, *low[:2]]
    assert list(books.line.queues[P2].waiters) == low[2:]
    assert books.room.pressing == 3
    assert (low[0].expires_at, low[0].promote_at) == (NOW + 600.0, inf)
    assert books.standing.next_at == NOW + 9.0


def test_who_is_promoted_first_in_its_line_stands_where_it_stood_until_somebody_looks() -> None:
    books = Books()
    books.join(patient(promote_after=1.0), lack=Lack.IDLE)
    books.standing.promote(NOW + 1.0)
    shortage = books.standing.shortage(books.room)
    assert shortage.members == {books.line.queues[P1]}
    assert not shortage.certain(NOW + 1.0), "it is not idle, but that is not what a P1 needs"


@pytest.mark.parametrize("lack", [Lack.PERMIT, Lack.QUOTA])
def test_whose_time_is_over_is_told_by_what_it_lacks(lack: Lack) -> None:
    books = Books()
    late = books.join(sized(1.0, queue=2.0, quota_wait=2.0), lack=lack)
    stays = books.join(sized(1.0, queue=4.0, quota_wait=4.0), lack=lack)
    assert books.standing.late(NOW + 1.9) == []
    ((found, refusal),) = books.standing.late(NOW + 2.0)
    assert found is late
    assert refusal.reason is (Reason.QUEUE_TIMEOUT if lack is Lack.PERMIT else Reason.QUOTA_EXHAUSTED)
    books.standing.leave(late)
    assert books.standing.next_at == NOW + 4.0
    assert books.standing.late(NOW + 3.0) == []
    assert [waiter for waiter, _ in books.standing.late(NOW + 4.0)] == [stays]


def test_everybody_lacks_nothing_for_a_moment_when_the_policy_changes_and_old_shortages_are_forgotten() -> None:
    books = Books()
    waiters = [books.join(), books.join(line=books.other, lack=Lack.QUOTA)]
    old = books.standing.shortage(books.bucket)
    everybody = books.standing.everybody(NOW)
    assert everybody.members == {waiter.line.queues[P1] for waiter in waiters}
    assert books.standing.lacked([books.places, books.bucket]) == []
    assert books.standing.all_lacked() == []
    assert books.standing.shortage(books.bucket) is not old


def test_how_long_a_place_was_held_outlives_a_change_of_the_policy() -> None:
    books = Books()
    books.join()
    shortage = books.standing.shortage(books.places)
    shortage.hold_ended(5.0, NOW)
    books.standing.everybody(NOW)
    assert books.standing.shortage(books.places) is shortage
