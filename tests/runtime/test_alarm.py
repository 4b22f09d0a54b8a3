"""The alarm: one timer for the earliest time that was asked for."""

from __future__ import annotations

from proxy.runtime.alarm import SOONEST_SECONDS, Alarm
from tests.fakes import FakeClock


class Bell:
    """An alarm, and when it rang; `again` are times that are asked for while it rings."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.rang: list[float] = []
        self.again: list[float] = []
        self.alarm = Alarm(self.ring, self.clock)

    def ring(self, now: float) -> None:
        self.rang.append(now)
        if self.again:
            self.alarm.set(self.again.pop(0))


def test_it_rings_once_at_the_time_that_was_asked_for() -> None:
    bell = Bell()
    bell.alarm.set(1005.0)
    bell.clock.advance(4.9)
    assert bell.rang == []
    bell.clock.advance(60.0)
    assert bell.rang == [1005.0]
    assert bell.clock.next_due is None


def test_of_several_times_the_earliest_counts() -> None:
    bell = Bell()
    for when in (1005.0, 1003.0, 1007.0, 1003.0):
        bell.alarm.set(when)
    bell.clock.advance(60.0)
    assert bell.rang == [1003.0]


def test_a_time_that_is_over_is_rung_a_moment_later_and_never_at_once() -> None:
    bell = Bell()
    for when in (990.0, 1000.0, 1000.0005):
        bell.alarm.set(when)
    assert bell.rang == []
    bell.clock.advance(1.0)
    assert bell.rang == [1000.0 + SOONEST_SECONDS]


def test_who_rings_may_ask_for_another_time_at_once() -> None:
    bell = Bell()
    bell.again = [1002.0, 0.0]
    bell.alarm.set(1001.0)
    bell.clock.advance(60.0)
    assert bell.rang == [1001.0, 1002.0, 1002.0 + SOONEST_SECONDS]


def test_stopped_it_rings_no_more_until_it_is_set_again() -> None:
    bell = Bell()
    bell.alarm.set(1001.0)
    bell.alarm.stop()
    bell.alarm.stop()
    assert bell.clock.next_due is None
    bell.alarm.set(1002.0)
    bell.clock.advance(60.0)
    assert bell.rang == [1002.0]
