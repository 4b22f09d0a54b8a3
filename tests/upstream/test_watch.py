from __future__ import annotations

import pytest

from proxy.outcome import OutcomeKind
from proxy.upstream.watch import Watch
from tests.fakes import FakeClock

FIRST, IDLE, TOTAL = OutcomeKind.FIRST_BYTE_TIMEOUT, OutcomeKind.IDLE_TIMEOUT, OutcomeKind.TOTAL_TIMEOUT


class Ended:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def guarded(clock: FakeClock) -> tuple[Watch, Ended]:
    watch, ended = Watch(clock), Ended()
    watch.guard(ended)
    return watch, ended


def test_a_limit_that_passes_ends_the_connection_once_and_is_named() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST)
    clock.advance(4.9)
    assert (ended.count, watch.expired) == (0, None)
    clock.advance(100.0)
    assert (ended.count, watch.expired) == (1, FIRST)


def test_the_exchange_s_deadline_binds_where_it_is_earlier() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST, deadline_at=3.0)
    clock.advance(3.0)
    assert (ended.count, watch.expired) == (1, TOTAL)


def test_a_later_phase_may_end_later() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST)
    clock.advance(4.0)
    watch.arm(34.0, IDLE)
    clock.advance(29.9)
    assert ended.count == 0
    clock.advance(0.1)
    assert (ended.count, watch.expired) == (1, IDLE)


def test_a_later_phase_may_end_earlier() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(100.0, FIRST)
    watch.arm(2.0, IDLE)
    clock.advance(2.0)
    assert (ended.count, watch.expired) == (1, IDLE)


@pytest.mark.parametrize("pieces", [1, 50])
def test_moving_the_due_time_needs_no_new_timer(pieces: int) -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(30.0, IDLE)
    for _ in range(pieces):
        clock.advance(20.0)
        watch.due = clock.now() + 30.0
    assert ended.count == 0
    clock.advance(29.9)
    assert ended.count == 0
    clock.advance(0.1)
    assert (ended.count, watch.expired) == (1, IDLE)


def test_between_attempts_nothing_is_ended_and_the_next_one_begins_afresh() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST)
    clock.advance(5.0)
    watch.rest()
    assert (ended.count, watch.expired) == (1, FIRST)
    watch.guard(ended)
    assert not watch.expired
    watch.arm(12.0, IDLE)
    clock.advance(6.9)
    assert ended.count == 1
    clock.advance(0.1)
    assert (ended.count, watch.expired) == (2, IDLE)


def test_a_limit_of_an_attempt_that_has_ended_does_not_end_the_next_one() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST)
    clock.advance(1.0)
    watch.rest()
    watch.guard(ended)
    watch.arm(31.0, FIRST)
    clock.advance(29.9)
    assert ended.count == 0
    clock.advance(0.1)
    assert ended.count == 1


def test_a_watch_at_rest_ends_nothing() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST)
    watch.rest()
    clock.advance(10.0)
    assert (ended.count, watch.expired) == (0, None)


def test_a_watch_whose_connection_has_ended_leaves_no_timer() -> None:
    clock = FakeClock(0.0)
    watch, ended = guarded(clock)
    watch.arm(5.0, FIRST)
    watch.cancel()
    watch.cancel()
    assert clock.next_due is None
    clock.advance(10.0)
    assert (ended.count, watch.expired) == (0, None)
