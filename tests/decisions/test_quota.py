"""Buckets: never more is given than they hold, nothing is lost or made, and what is large or late waits its turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.quota import MINUTE, Bucket

NOW = 1000.0
SOON = 1e-6


def a_bucket(per_minute: float = 600.0, *, burst: float = 5.0, most: float = inf, reserved: float = 0.0) -> Bucket:
    bucket = Bucket("alpha tpm", NOW)
    bucket.reconfigure(per_minute, NOW, burst=burst, most=most, reserved=reserved)
    return bucket


def a_used_bucket(per_minute: float = 600.0, *, burst: float = 5.0, reserved: float = 0.0) -> Bucket:
    """One that has given its first request, of nothing."""
    bucket = a_bucket(per_minute, burst=burst, reserved=reserved)
    bucket.take(0.0, NOW)
    return bucket


def goes(bucket: Bucket, amount: float, now: float, *, urgent: bool = False) -> bool:
    """Takes the amount if it may go now."""
    if bucket.never(amount) or bucket.wait(amount, now, urgent=urgent) > 0.0:
        return False
    bucket.take(amount, now)
    return True


def test_a_new_bucket_holds_its_first_request_and_nothing_more() -> None:
    bucket = a_bucket()
    assert bucket.wait(50.0, NOW) == 0.0
    bucket.take(50.0, NOW)
    assert bucket.level(NOW) == 0.0
    assert bucket.wait(1.0, NOW) == pytest.approx(0.1)


def test_a_first_request_larger_than_the_bucket_leaves_it_in_debt() -> None:
    bucket = a_bucket()
    assert goes(bucket, 170.0, NOW)
    assert bucket.level(NOW) == 50.0 - 170.0


def test_it_refills_by_time_up_to_its_burst() -> None:
    bucket = a_used_bucket()
    assert bucket.level(NOW + 2.0) == pytest.approx(20.0)
    assert bucket.level(NOW + 100.0) == 50.0


def test_a_bucket_holds_one_request_at_least() -> None:
    bucket = a_used_bucket(per_minute=6.0, burst=1.0)
    assert bucket.capacity == 1.0
    assert bucket.wait(1.0, NOW) == pytest.approx(10.0)


def test_who_waits_as_long_as_told_goes() -> None:
    bucket = a_used_bucket()
    now = NOW + bucket.wait(30.0, NOW)
    assert goes(bucket, 30.0, now)


def test_debt_delays_the_next() -> None:
    bucket = a_used_bucket()
    bucket.give(-70.0, NOW)
    assert bucket.level(NOW) == -70.0
    assert bucket.part(NOW) == 0.0
    assert bucket.wait(10.0, NOW) == pytest.approx(8.0)


def test_what_comes_back_serves_the_next() -> None:
    bucket = a_used_bucket()
    assert goes(bucket, 40.0, NOW + 4.0)
    bucket.give(30.0, NOW + 4.0)
    assert goes(bucket, 30.0, NOW + 4.0)


def test_what_is_larger_than_the_bucket_waits_until_it_is_full_and_leaves_it_in_debt() -> None:
    bucket = a_used_bucket()
    assert bucket.wait(120.0, NOW) == pytest.approx(5.0)
    assert not goes(bucket, 120.0, NOW + 4.9)
    assert goes(bucket, 120.0, NOW + 5.0)
    assert bucket.level(NOW + 5.0) == pytest.approx(-70.0)
    assert bucket.wait(1.0, NOW + 5.0) == pytest.approx(7.1)


def test_more_than_a_minute_of_the_fleet_never_goes() -> None:
    bucket = a_bucket(most=6000.0)
    assert not bucket.never(6000.0)
    assert bucket.never(6000.1)


def test_where_nothing_is_allowed_nothing_goes() -> None:
    bucket = a_bucket(0.0)
    assert bucket.never(1.0)
    assert bucket.wait(1.0, NOW) == inf
    assert bucket.part(NOW) == 0.0


def test_the_reserve_is_for_urgent_calls_alone() -> None:
    bucket = a_used_bucket(reserved=0.2)
    full = NOW + 5.0
    assert bucket.wait(41.0, full) == pytest.approx(0.0)
    assert goes(bucket, 40.0, full)
    assert bucket.wait(1.0, full) == pytest.approx(0.1)
    assert goes(bucket, 10.0, full, urgent=True)


def test_what_is_larger_than_the_unreserved_part_goes_when_the_bucket_is_full() -> None:
    bucket = a_used_bucket(reserved=0.2)
    assert not goes(bucket, 45.0, NOW + 4.9)
    assert goes(bucket, 45.0, NOW + 5.0)


def test_a_hint_lowers_and_never_raises() -> None:
    bucket = a_used_bucket()
    bucket.hint(7.0, NOW + 5.0)
    assert bucket.level(NOW + 5.0) == 7.0
    bucket.hint(4000.0, NOW + 5.0)
    assert bucket.level(NOW + 5.0) == 7.0


def test_a_new_rate_counts_from_now_on() -> None:
    bucket = a_used_bucket()
    bucket.reconfigure(6000.0, NOW + 1.0, burst=5.0, most=inf)
    assert bucket.level(NOW + 1.0) == pytest.approx(10.0)
    assert bucket.level(NOW + 2.0) == pytest.approx(110.0)


def test_a_thousand_reloads_refill_nothing() -> None:
    bucket = a_used_bucket()
    bucket.give(-100.0, NOW)
    for _ in range(1000):
        bucket.reconfigure(600.0, NOW, burst=5.0, most=inf)
        bucket.reconfigure(60_000.0, NOW, burst=50.0, most=inf, reserved=0.5)
    assert bucket.level(NOW) == -100.0


def test_a_reload_that_takes_everything_and_gives_it_again_refills_nothing() -> None:
    bucket = a_used_bucket()
    bucket.level(NOW + 3.0)
    bucket.reconfigure(0.0, NOW + 3.0, burst=5.0, most=inf)
    bucket.reconfigure(600.0, NOW + 4.0, burst=5.0, most=inf)
    assert bucket.level(NOW + 4.0) == 0.0


def test_time_that_stands_still_or_runs_back_refills_nothing() -> None:
    bucket = a_used_bucket()
    assert bucket.level(NOW + 1.0) == pytest.approx(10.0)
    assert bucket.level(NOW - 50.0) == pytest.approx(10.0)
    assert bucket.level(NOW + 1.0) == pytest.approx(10.0)


AMOUNTS = st.floats(0.0, 200.0) | st.sampled_from([0.0, 1.0, 49.0, 50.0, 51.0])
GAPS = st.floats(0.0, 10.0) | st.just(0.0)
STEPS = st.lists(
    st.tuples(GAPS, st.sampled_from(["take", "urgent", "settle", "more", "hint", "reload"]), AMOUNTS), max_size=80
)


@dataclass
class Ledger:
    """What a bucket has given, kept apart from it. Levels by `Bucket`, sums by hand."""

    bucket: Bucket
    out: list[float] = field(default_factory=list)
    given: float = 0.0

    def step(self, what: str, amount: float, now: float) -> None:
        match what:
            case "take" | "urgent":
                before = self.bucket.level(now)
                if goes(self.bucket, amount, now, urgent=what == "urgent"):
                    kept = 0.0 if what == "urgent" else self.bucket.reserved
                    assert before >= min(amount + kept, self.bucket.capacity) * (1 - 1e-6)
                    self.out.append(amount)
                    self.given += amount
            case "settle" if self.out:
                reserved = self.out.pop()
                back = min(amount, reserved)
                self.bucket.give(back, now)
                self.given -= back
            case "more" if self.out:
                self.out.pop()
                self.bucket.give(-amount, now)
                self.given += amount
            case "hint":
                self.bucket.hint(amount, now)
            case "reload":
                self.bucket.reconfigure(600.0, now, burst=5.0, most=inf, reserved=self.bucket.reserved / 50.0)


@given(STEPS, st.sampled_from([0.0, 0.2, 1.0]))
def test_never_more_is_given_than_the_bucket_holds(steps: list[tuple[float, str, float]], reserved: float) -> None:
    """At each step; and over all of them no more than the burst and the time's worth, beside debts still to be paid."""
    ledger = Ledger(a_used_bucket(reserved=reserved))
    now = NOW
    for gap, what, amount in steps:
        now += gap
        ledger.step(what, amount, now)
        level = ledger.bucket.level(now)
        assert level <= ledger.bucket.capacity
        assert ledger.given + level <= (now - NOW) * ledger.bucket.rate + SOON
        assert 0.0 <= ledger.bucket.part(now) <= 1.0


@given(st.lists(st.tuples(GAPS, AMOUNTS), max_size=60))
def test_nothing_is_lost_while_the_bucket_is_never_full(calls: list[tuple[float, float]]) -> None:
    bucket = a_used_bucket(burst=1e6)
    now, given_out = NOW, 0.0
    for gap, amount in calls:
        now += gap
        if goes(bucket, amount, now):
            given_out += amount
    assert bucket.level(now) + given_out == pytest.approx((now - NOW) * bucket.rate, abs=1e-6)


@given(st.lists(st.tuples(AMOUNTS, st.booleans()), min_size=1, max_size=200), st.floats(0.0, 6.0))
def test_any_number_at_the_same_moment_share_what_is_there(calls: list[tuple[float, bool]], seconds: float) -> None:
    bucket = a_used_bucket(reserved=0.2)
    now = NOW + seconds
    left = bucket.level(now)
    gone = [amount for amount, urgent in calls if goes(bucket, amount, now, urgent=urgent)]
    if bucket.level(now) >= -SOON:
        assert sum(gone) <= left * (1 + 1e-6) + SOON
    else:
        # Only one that is larger than the bucket leaves it in debt, and only from a full one.
        assert left == pytest.approx(bucket.capacity)
        assert max(gone) > bucket.capacity


@given(st.floats(0.001, 100_000.0), st.floats(0.0, 1e6), st.floats(0.0, 500.0), st.booleans())
def test_the_wait_is_true(per_minute: float, amount: float, debt: float, urgent: bool) -> None:
    bucket = a_used_bucket(per_minute, reserved=0.3)
    bucket.give(-debt, NOW)
    wait = bucket.wait(amount, NOW, urgent=urgent)
    if wait > SOON:
        assert bucket.wait(amount, NOW + wait * 0.999, urgent=urgent) > 0.0
    assert bucket.wait(amount, NOW + wait + SOON, urgent=urgent) == pytest.approx(0.0, abs=wait * 1e-6 + SOON)


@given(GAPS, st.lists(st.tuples(GAPS, st.floats(0.0, 60_000.0), st.floats(0.0, 1.0)), max_size=30))
def test_reloads_alone_never_raise_a_level_beyond_what_time_gave(
    first: float, reloads: list[tuple[float, float, float]]
) -> None:
    bucket = a_used_bucket()
    now = NOW + first
    for gap, per_minute, reserved in reloads:
        now += gap
        before = bucket.level(now)
        bucket.reconfigure(per_minute, now, burst=5.0, most=inf, reserved=reserved)
        assert bucket.level(now) <= before
        assert bucket.rate == per_minute / MINUTE


def test_it_says_what_it_holds() -> None:
    assert repr(a_used_bucket()) == "<Bucket alpha tpm 0/50, 600 a minute>"
