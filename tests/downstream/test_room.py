"""Who goes so that one more can come: properties of the choice, on guests that only rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from proxy.downstream.room import LOOK_AGAIN_SECONDS, Rank, Room


@dataclass(slots=True, eq=False)
class Guest:
    """A connection as the room sees it."""

    room: Room[Guest]
    standing: Rank | None
    unread: bool = False
    ended: bool = False
    asked: int = 0

    def rank(self, now: float) -> Rank | None:
        self.asked += 1
        return self.standing

    def end_now(self) -> None:
        assert not self.ended
        self.ended = True


RANKS = st.none() | st.tuples(st.integers(0, 2), st.floats(0, 100))


def filled(
    most: int, standings: list[tuple[Rank | None, bool]], *, now: Callable[[], float] = lambda: 0.0
) -> tuple[Room[Guest], list[Guest]]:
    room: Room[Guest] = Room(most, now=now)
    guests = [Guest(room, standing, unread) for standing, unread in standings]
    for guest in guests:
        room.append(guest)
    return room, guests


@given(st.lists(st.tuples(RANKS, st.booleans()), min_size=1, max_size=30))
def test_the_lowest_that_may_go_goes_and_nobody_else(standings: list[tuple[Rank | None, bool]]) -> None:
    room, guests = filled(len(standings), standings)
    kind = min((guest.standing[0] for guest in guests if guest.standing is not None), default=None)
    first = [guest for guest in guests if guest.standing is not None and guest.standing[0] == kind]
    first.sort(key=lambda guest: guest.standing or (0, 0.0))
    expected = next((guest for guest in first[:8] if not guest.unread), None)
    assert room.relieve() is (expected is not None)
    assert [guest for guest in guests if guest.ended] == ([expected] if expected else [])
    assert len(room) == len(guests) - (expected is not None)


@given(st.lists(RANKS, min_size=1, max_size=200), st.integers(1, 200))
def test_all_that_may_go_go_in_their_order_and_the_others_never(standings: list[Rank | None], asked: int) -> None:
    room, guests = filled(len(standings), [(standing, False) for standing in standings])
    order = []
    for _ in range(asked):
        before = {guest for guest in guests if guest.ended}
        if not room.relieve():
            break
        (gone,) = {guest for guest in guests if guest.ended} - before
        order.append(gone.standing)
    ranks = sorted(standing for standing in standings if standing is not None)
    assert order == ranks[: len(order)]
    assert len(order) == min(asked, len(ranks))
    assert room.sent_away == len(order)


def test_who_was_to_go_and_has_asked_meanwhile_stays() -> None:
    room, guests = filled(128, [((0, float(age)), False) for age in range(128)])
    assert room.relieve()
    guests[1].standing = None
    assert room.relieve()
    assert [guest.ended for guest in guests[:4]] == [True, False, True, False]


def test_there_is_a_place_below_the_bound_and_the_next_to_go_makes_one() -> None:
    room, guests = filled(3, [((0, 0.0), False), ((1, 0.0), False)])
    assert room.has_place()
    assert not any(guest.ended for guest in guests)
    assert not room.has_place(1)
    assert room.relieve()
    assert [guest.ended for guest in guests] == [True, False]


def test_who_leaves_makes_room_and_says_so_even_twice() -> None:
    left: list[int] = []
    room, guests = filled(2, [(None, False), (None, False)])
    room.on_leave = lambda: left.append(len(room))
    assert not room.has_place()
    room.remove(guests[0])
    assert room.has_place()
    room.remove(guests[0])
    assert left == [1, 1]
    assert list(room) == [guests[1]]


def test_where_all_are_busy_they_are_asked_now_and_then_only_however_many_knock() -> None:
    times = [5.0]
    room, guests = filled(4, [(None, False)] * 4, now=lambda: times[0])
    assert not any(room.relieve() for _ in range(100))
    assert [guest.asked for guest in guests] == [1] * 4
    guests[2].standing = (1, 0.0)
    assert not room.relieve()
    times[0] += LOOK_AGAIN_SECONDS
    assert room.relieve()
    assert [guest.ended for guest in guests] == [False, False, True, False]
