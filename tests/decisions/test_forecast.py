"""Forecasts: who waits in vain is told so at once, and when to come again is never too early."""

from __future__ import annotations

import pytest

from proxy.decisions.forecast import back_at, never, quota_wait, too_large
from proxy.decisions.keys import Lack
from proxy.decisions.queues import Line, Refusal
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import NOW, Desk, a_bucket, a_key, a_line, a_ring, a_room, sized

REJECTED = Outcome(OutcomeKind.CREDENTIAL_REJECTED, key_fault=True)
LIMITED = Outcome(OutcomeKind.RATE_LIMITED, retry_after=5.0)


def slow() -> Desk:
    """A desk with one token a second, sixty at most, and none at first."""
    return Desk(tokens=(a_bucket(60.0, burst=60.0),))


def metered(*per_minute: float | None) -> Line:
    """A line with keys that each have so many tokens a minute, of a fleet of one."""
    keys = [a_key(str(number)) for number in range(len(per_minute))]
    for key, rate in zip(keys, per_minute, strict=True):
        key.reconfigure(weight=1.0, places=None, tokens=() if rate is None else (a_bucket(rate, most=rate),))
    return a_line(a_room(), ring=a_ring(*keys))


def judge(line: Line, number: int, outcome: Outcome) -> None:
    """A key of the line meets this."""
    assert line.ring is not None
    key = line.ring.keys[number]
    line.ring.judge(key, outcome, NOW, used=key.credential)


def told(refusal: Refusal | None) -> tuple[Reason, float]:
    """Why, and when to come again."""
    assert refusal is not None
    assert refusal.retry_after is not None
    return refusal.reason, round(refusal.retry_after, 6)


def test_who_is_refused_late_is_told_to_come_after_those_who_stay() -> None:
    desk = slow()
    running = desk.goes(sized(0.0))
    stays, late = desk.waits(sized(20.0, quota_wait=100.0)), desk.waits(sized(20.0, quota_wait=45.0))
    running.settle(request=True, tokens=30.0)
    running.release(desk.now)
    desk.passes(45.0)
    assert told(late.refusal) == (Reason.QUOTA_EXHAUSTED, 25.0)
    desk.passes(5.0)
    assert stays.permit is not None
    desk.passes(20.0)
    desk.goes(sized(20.0))


def test_who_leaves_at_the_same_time_stands_before_nobody() -> None:
    desk = slow()
    running = desk.goes(sized(0.0))
    late = [desk.waits(sized(20.0, quota_wait=45.0)) for _ in range(2)]
    running.settle(request=True, tokens=40.0)
    running.release(desk.now)
    desk.passes(45.0)
    assert [told(waiter.refusal) for waiter in late] == [(Reason.QUOTA_EXHAUSTED, 15.0)] * 2


def test_those_who_wait_for_another_model_of_the_same_bucket_stand_before_a_newcomer() -> None:
    desk = slow()
    other = a_line(desk.room, name="alpha/other", tokens=desk.line.tokens)
    desk.waits(sized(40.0, quota_wait=100.0), other)
    assert told(desk.refused(sized(20.0, quota_wait=30.0))) == (Reason.QUOTA_EXHAUSTED, 60.0)
    desk.waits(sized(20.0, quota_wait=60.0))
    assert desk.refused(sized(1.0, 0, quota_wait=0.5)).retry_after == pytest.approx(1.0), "P0 is before them all"


def test_the_same_holds_for_requests() -> None:
    desk = Desk(requests=(a_bucket(60.0, burst=10.0),))
    for _ in range(int(desk.line.requests[0].level(NOW))):
        desk.goes()
    desk.line.requests[0].hint(0.0, NOW)
    other = a_line(desk.room, name="alpha/other", requests=desk.line.requests)
    for _ in range(3):
        desk.waits(None, other)
    assert desk.refused(sized(0.0, quota_wait=3.5)).retry_after == pytest.approx(4.0)


def test_what_no_key_that_works_can_carry_is_too_large() -> None:
    line = metered(100.0, None)
    assert too_large(line, 500.0) is None
    judge(line, 1, REJECTED)
    refusal = too_large(line, 500.0)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after) == (Reason.CONTEXT_TOO_LONG, None)
    assert too_large(line, 100.0) is None


def test_where_no_key_works_nothing_is_too_large() -> None:
    line = metered(100.0)
    judge(line, 0, REJECTED)
    assert too_large(line, 500.0) is None
    refusal = never(line, Lack.NO_KEY, 500.0)
    assert refusal is not None
    assert refusal.reason is Reason.KEYS_UNUSABLE


def test_the_first_key_that_has_rested_and_has_quota_is_waited_for() -> None:
    line = metered(60.0, 60.0)
    assert quota_wait(line, 1, 3.0, NOW) == pytest.approx(3.0)
    judge(line, 0, LIMITED)
    assert quota_wait(line, 1, 3.0, NOW) == pytest.approx(3.0)
    judge(line, 1, LIMITED)
    assert quota_wait(line, 1, 3.0, NOW) == pytest.approx(5.0)
    assert back_at(line, Lack.KEY, 1, 3.0, NOW) == pytest.approx(NOW + 5.0)
