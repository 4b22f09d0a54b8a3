"""Observers: several are told as one."""

from __future__ import annotations

from proxy.observer import KeyChanged, Observers
from tests.fakes import make_exchange
from tests.scripted import ManualObserver

EVENT = KeyChanged(provider="alpha", key_id="a1", state="resting", seconds=3.0)


def test_every_member_is_told_of_everything() -> None:
    one, other = ManualObserver(), ManualObserver()
    together = Observers([one, other])
    exchange = make_exchange()
    together.ended(exchange)
    together.happened(EVENT)
    assert one.exchanges == other.exchanges == [exchange]
    assert one.events == other.events == [EVENT]


def test_members_may_come_from_an_iterator() -> None:
    one = ManualObserver()
    together = Observers(member for member in [one])
    together.happened(EVENT)
    together.happened(EVENT)
    assert one.events == [EVENT, EVENT]
