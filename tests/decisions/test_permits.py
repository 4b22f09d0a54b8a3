"""Permits: everything is taken in one step, and settled once, whatever happens in between."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.permits import Permit
from proxy.decisions.places import URGENT, Places
from proxy.decisions.queues import Line
from proxy.decisions.quota import MINUTE
from tests.decisions.waiting_room import NOW, a_bucket, a_key, a_line, a_ring, a_room

TOKENS = 30.0


class Target:
    """A target with two buckets of each kind, of which one is its key's; a second fills them."""

    def __init__(self) -> None:
        self.key = a_key("a", size=5)
        self.requests = a_bucket(600.0), a_bucket(300.0)
        self.tokens = a_bucket(6000.0), a_bucket(3000.0)
        self.key.reconfigure(weight=1.0, places=self.key.places, requests=self.requests[1:], tokens=self.tokens[1:])
        self.room = a_room()
        self.line = a_line(
            self.room, Places("provider", 5), ring=a_ring(self.key), requests=self.requests[:1], tokens=self.tokens[:1]
        )
        self.now = NOW + 60.0
        self.returned: list[Permit] = []

    def permit(self, *, klass: int = 1, tokens: float = TOKENS) -> Permit:
        return Permit(
            self.line, self.key, self.now, lambda permit, now: self.returned.append(permit), klass=klass, tokens=tokens
        )

    def taken(self) -> tuple[list[float], list[float]]:
        """How much of each bucket is taken: of requests, of tokens."""
        return tuple(  # type: ignore[return-value]
            [round(bucket.capacity - bucket.level(self.now), 6) for bucket in buckets]
            for buckets in (self.requests, self.tokens)
        )


def test_it_takes_a_place_a_request_and_its_tokens_of_everything_that_binds_it() -> None:
    target = Target()
    permit = target.permit()
    assert target.taken() == ([1.0, 1.0], [TOKENS, TOKENS])
    assert permit.buckets == (*target.requests, *target.tokens)
    assert [places.used for places in permit.limits] == [1, 1]
    assert target.room.running == 1


def test_unsettled_it_costs_what_was_reserved() -> None:
    target = Target()
    target.permit().release(target.now)
    assert target.taken() == ([1.0, 1.0], [TOKENS, TOKENS])
    assert target.room.running == 0


@pytest.mark.parametrize("used", [0.0, 10.0, TOKENS, 45.0, 500.0])
def test_settled_it_costs_what_was_used_also_when_that_is_more(used: float) -> None:
    target = Target()
    permit = target.permit()
    permit.settle(request=True, tokens=used)
    assert target.taken() == ([1.0, 1.0], [TOKENS, TOKENS]), "nothing comes back before the last byte"
    permit.release(target.now)
    assert target.taken() == ([1.0, 1.0], [used, used])


def test_what_never_reached_the_provider_costs_nothing() -> None:
    target = Target()
    permit = target.permit()
    permit.settle(request=False, tokens=0.0)
    permit.release(target.now)
    assert target.taken() == ([0.0, 0.0], [0.0, 0.0])


def test_what_was_never_used_comes_back_whole_and_was_held_for_no_time_that_counts() -> None:
    target = Target()
    permit = target.permit()
    permit.give_back(target.now)
    assert target.taken() == ([0.0, 0.0], [0.0, 0.0])
    assert permit.taken_at == inf
    assert target.returned == [permit]


@given(st.lists(st.sampled_from(["release", "give_back", "settle"]), max_size=12))
def test_it_is_settled_once_however_often_it_is_told_to(steps: list[str]) -> None:
    target = Target()
    permit, expected = target.permit(), None
    spent = TOKENS
    for step in steps:
        if step == "settle":
            permit.settle(request=True, tokens=10.0)
            spent = 10.0
        elif step == "release":
            permit.release(target.now)
            expected = spent if expected is None else expected
        else:
            permit.give_back(target.now)
            expected = 0.0 if expected is None else expected
    ended = expected is not None
    assert target.taken()[1] == [expected if ended else TOKENS] * 2
    assert len(target.returned) == target.line.limits[0].size - 5 + ended
    assert (target.room.running, target.line.limits[0].used) == ((0, 0) if ended else (1, 1))


def test_it_settles_where_it_took_though_the_policy_and_the_key_are_bound_by_others_now() -> None:
    target = Target()
    permit = target.permit()
    others = a_bucket(6000.0), a_bucket(6000.0)
    target.line.reconfigure((), None, requests=(others[0],), tokens=(others[1],))
    target.key.reconfigure(weight=1.0, places=None)
    levels = [bucket.level(target.now) for bucket in others]
    permit.give_back(target.now)
    assert target.taken() == ([0.0, 0.0], [0.0, 0.0])
    assert [bucket.level(target.now) for bucket in others] == levels


def test_a_reserve_gets_back_what_was_taken_of_it_and_only_that() -> None:
    target = Target()
    places = target.line.limits[0]
    places.reserve([(URGENT, 0.4)])
    urgent = [target.permit(klass=0) for _ in range(3)]
    common = target.permit(klass=1)
    (reserve,) = places.reserves
    assert (reserve.used, places.used) == (2, 4)
    common.release(target.now)
    urgent[2].release(target.now)
    assert (reserve.used, places.used) == (2, 2)
    urgent[0].release(target.now)
    assert (reserve.used, places.used) == (1, 1)


def test_a_reserve_that_a_reload_took_away_meanwhile_changes_nothing_for_the_new_one() -> None:
    target = Target()
    places = target.line.limits[0]
    places.reserve([(URGENT, 0.4)])
    permit = target.permit(klass=0)
    places.reserve([])
    places.reserve([(URGENT, 0.4)])
    permit.release(target.now)
    assert ([reserve.used for reserve in places.reserves], places.used) == ([0], 0)


def test_where_nothing_is_enforced_a_debt_is_never_more_than_a_minute() -> None:
    bucket = a_bucket(600.0)
    line = Line("alpha/m", a_room(), observes=True)
    line.reconfigure((), None, tokens=(bucket,))
    for _ in range(10):
        Permit(line, None, NOW, lambda permit, now: None, tokens=500.0)
    assert bucket.level(NOW) == -bucket.rate * MINUTE


def test_it_says_whose_it_is() -> None:
    target = Target()
    permit = target.permit()
    assert repr(permit) == "<Permit with key a of alpha>"
    permit.release(target.now)
    assert repr(permit) == "<Permit with key a of alpha released>"
