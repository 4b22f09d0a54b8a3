"""How many calls a breaker would let go, asked before anybody holds a ticket."""

from __future__ import annotations

from math import inf

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.verdict import Verdict
from tests.decisions.target import HALF_OPEN, Target

SETTINGS = BreakerSettings(consecutive=1, open_first=30.0, open_cap=30.0, probes=3)


def opened(*, share: int = 0) -> Target:
    target = Target(SETTINGS)
    target.breaker.reconfigure(SETTINGS, first_byte=30.0, share=share)
    end(target, Verdict.FAILURE)
    return target


def end(target: Target, verdict: Verdict) -> None:
    ticket = target.breaker.acquire(target.now, stream=False)
    assert ticket is not None
    ticket.end(verdict, target.now)


def test_a_closed_one_has_room_without_end() -> None:
    target = Target(SETTINGS)
    assert target.breaker.room == inf
    assert target.breaker.lets_go(target.now)
    assert not target.breaker.stays_open(target.now, 0.0)


def test_an_open_one_has_none_until_its_time_is_over() -> None:
    target = opened()
    assert target.breaker.room == 0
    assert not target.breaker.lets_go(target.now)
    assert target.breaker.stays_open(target.now, 29.0)
    assert not target.breaker.stays_open(target.now, 37.0)
    target.now += 37.0
    assert target.breaker.lets_go(target.now)
    assert not target.breaker.stays_open(target.now, 0.0)


def test_a_half_open_one_has_as_much_as_it_has_probes() -> None:
    target = opened()
    target.now += 37.0
    assert target.state is HALF_OPEN
    tickets = []
    for room in (3, 2, 1):
        assert target.breaker.room == room
        tickets.append(target.breaker.acquire(target.now, stream=False))
    assert target.breaker.room == 0
    assert not target.breaker.lets_go(target.now)
    assert tickets[0] is not None
    tickets[0].end(Verdict.SUCCESS, target.now)
    assert target.breaker.room == 0, "one success fewer is wanted"


def test_under_a_ceiling_there_is_no_more_than_that() -> None:
    target = opened(share=23)
    target.now += 37.0
    assert target.state is HALF_OPEN
    for _ in range(3):
        end(target, Verdict.SUCCESS)
    assert target.breaker.room == 3
    target.now += 5.0
    target.breaker.tick(target.now)
    target.breaker.ramp.places.used = 4
    assert target.breaker.room == 13 - 4
    assert target.breaker.lets_go(target.now), "a ceiling is waited for, not refused at"
