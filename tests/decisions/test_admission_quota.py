"""Quotas in admission by example: what is refused at once, and that Retry-After is true; the model has the rest."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.forecast import back_at, too_large
from proxy.decisions.keys import Key, KeyRing, Lack
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Refusal
from proxy.decisions.quota import Bucket
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.decisions.waiting_room import NOW, Desk, a_bucket, a_key, a_line, a_ring, a_room, sized

SOON = 1e-6
AMOUNTS = st.sampled_from([1.0, 4.0, 20.0, 60.0, 300.0])
RATES = st.sampled_from([30.0, 60.0, 600.0])
BUCKETS = st.tuples(RATES, st.sampled_from([0.0, 0.2, 1.0]), st.floats(0.0, 100.0))
KEYS = st.lists(st.tuples(RATES, RATES, st.floats(0.0, 40.0), st.floats(0.0, 40.0)), min_size=1, max_size=3)


def limited(ring: KeyRing, key: Key, seconds: float) -> None:
    ring.judge(key, Outcome(OutcomeKind.RATE_LIMITED, retry_after=seconds), NOW, used=key.credential)


def metered(key_id: str, *, requests: float | None = None, tokens: float | None = None) -> Key:
    """A key with buckets of so much a minute."""
    key = a_key(key_id)
    own = () if requests is None else (a_bucket(requests),), () if tokens is None else (a_bucket(tokens, most=tokens),)
    key.reconfigure(weight=1.0, places=None, requests=own[0], tokens=own[1])
    return key


def slow(*limits: Places, most: int = 0) -> Desk:
    """One token a second, sixty at most, and none at first."""
    return Desk(*limits, tokens=(a_bucket(60.0, burst=60.0),), room=a_room(most=most))


# Too large


def test_more_than_the_fleet_may_use_in_a_minute_is_refused_by_name_however_the_call_comes() -> None:
    bucket = a_bucket(600.0, most=1200.0, label="tpm of alpha")
    desk = Desk(Places("provider", 1), tokens=(bucket,))
    desk.now += 60.0
    assert desk.admission.enter_at_once(desk.line, None, desk.now, tokens=1201.0) is None
    refusal = desk.refused(sized(1201.0))
    assert (refusal.reason, refusal.retry_after) == (Reason.CONTEXT_TOO_LONG, None)
    assert "about 1201 tokens, more than the 1200" in refusal.detail
    assert "tpm of alpha" in refusal.detail
    desk.goes(sized(1200.0))


def test_the_first_request_of_a_new_bucket_is_no_exception() -> None:
    bucket = Bucket("tpm of alpha", NOW)
    bucket.reconfigure(600.0, NOW, burst=5.0, most=600.0)
    desk = Desk(tokens=(bucket,))
    assert desk.admission.enter_at_once(desk.line, None, desk.now, tokens=601.0) is None
    assert desk.refused(sized(601.0)).reason is Reason.CONTEXT_TOO_LONG


def test_what_no_key_can_carry_is_refused_and_what_one_can_goes_with_that_one() -> None:
    desk = Desk(ring=a_ring(metered("small", tokens=60.0), metered("large", tokens=600.0)))
    desk.now += 60.0
    refusal = desk.refused(sized(601.0))
    assert refusal.reason is Reason.CONTEXT_TOO_LONG
    assert "any key" in refusal.detail
    permit = desk.goes(sized(500.0))
    assert permit.key is not None
    assert permit.key.id == "large"


def test_a_waiter_that_a_reload_has_made_too_large_is_refused_and_holds_nobody_up() -> None:
    bucket = a_bucket(600.0, most=600.0)
    desk = Desk(tokens=(bucket,))
    large, small = desk.waits(sized(50.0)), desk.waits(sized(5.0))
    bucket.reconfigure(30.0, desk.now, burst=60.0, most=30.0)
    desk.passes(2.0)
    assert large.refusal is not None
    assert large.refusal.reason is Reason.CONTEXT_TOO_LONG
    desk.passes(9.0)
    assert small.permit is not None


def test_where_nothing_is_allowed_no_prompt_is_called_too_long() -> None:
    desk = Desk(tokens=(a_bucket(0.0, most=0.0),))
    assert too_large(desk.line, 5.0) is None
    refusal = desk.refused(sized(5.0))
    assert (refusal.reason, refusal.retry_after) == (Reason.QUOTA_EXHAUSTED, None)
    assert "allows no requests or no tokens" in refusal.detail


# Refused at once


def test_a_wait_that_is_longer_than_allowed_is_refused_with_its_length() -> None:
    desk = slow()
    assert desk.refused(sized(31.0)) == Refusal(reason=Reason.QUOTA_EXHAUSTED, retry_after=31.0)
    desk.waits(sized(30.0))


def test_those_who_go_before_count_with_their_estimates() -> None:
    desk = slow()
    desk.waits(sized(20.0))
    assert desk.refused(sized(15.0)).retry_after == 35.0
    desk.waits(sized(10.0))


def test_lower_classes_and_what_other_tenants_have_beyond_their_part_do_not() -> None:
    desk = slow(most=99)
    desk.waits(sized(10.0, 2, tenant="a", quota_wait=999.0, queue=999.0))
    for _ in range(20):
        desk.waits(sized(10.0, tenant="a", quota_wait=999.0))
    assert desk.refused(sized(10.0, 0, quota_wait=0.0)).retry_after == 10.0
    assert desk.refused(sized(10.0, tenant="a", quota_wait=0.0)).retry_after == 210.0
    assert desk.refused(sized(10.0, tenant="b", quota_wait=0.0)).retry_after == 20.0


def test_while_a_permit_is_missing_quota_may_take_both_waits_together() -> None:
    desk = slow(Places("provider", 0))
    desk.waits(sized(40.0, queue=10.0, quota_wait=30.0))
    assert desk.refused(sized(41.0, 0, queue=10.0, quota_wait=30.0)).reason is Reason.QUOTA_EXHAUSTED


def test_a_key_that_rests_and_then_lacks_quota_is_worth_a_try_when_it_has_both() -> None:
    key = metered("k", tokens=60.0)
    desk = Desk(ring=(ring := a_ring(key)))
    key.tokens[0].give(-35.0, NOW)
    limited(ring, key, 31.0)
    assert desk.refused(sized(5.0)) == Refusal(reason=Reason.KEYS_RESTING, retry_after=40.0)


def test_a_full_room_says_when_those_who_wait_for_quota_have_gone() -> None:
    desk = slow(most=1)
    desk.waits(sized(20.0))
    assert desk.refused(sized(5.0)) == Refusal(reason=Reason.QUEUE_FULL, retry_after=25.0)


# Who may pass


def test_who_needs_less_passes_the_first_for_a_second_and_then_no_more() -> None:
    desk = slow()
    large = desk.waits(sized(30.0, quota_wait=60.0))
    small = desk.waits(sized(0.75, quota_wait=60.0))
    late = desk.waits(sized(0.75, quota_wait=60.0))
    desk.rings(NOW + 0.8)
    assert (small.permit is not None, late.permit) == (True, None)
    desk.rings(NOW + 30.7)
    assert (large.permit, late.permit) == (None, None), "the second half came too late"
    desk.rings(NOW + 31.4)
    assert (large.permit is not None, late.permit) == (True, None)
    desk.rings(NOW + 31.6)
    assert late.permit is not None


def test_who_waits_for_a_place_takes_no_tokens_from_one_who_has_lacked_them_for_long() -> None:
    model = Places("model", 1)
    desk = slow()
    other = a_line(desk.room, model, name="alpha/n", tokens=desk.line.tokens)
    running = desk.goes(sized(0.0), other)
    large, busy = desk.waits(sized(9.0)), desk.waits(sized(1.0), other)
    desk.passes(5.0)
    running.release(desk.now)
    assert (busy.permit, busy.lack) == (None, Lack.QUOTA)
    desk.passes(4.0)
    assert large.permit is not None
    desk.passes(1.0)
    assert busy.permit is not None


def test_a_newcomer_takes_no_tokens_from_one_of_another_target_who_has_lacked_them_for_long() -> None:
    desk = slow()
    other = a_line(desk.room, name="alpha/n", tokens=desk.line.tokens)
    desk.waits(sized(9.0))
    desk.passes(2.0)
    assert desk.waits(sized(1.0), other).lack is Lack.QUOTA
    desk.goes(sized(1.0, 0), other)


# When to look again


def test_time_brings_back_idle_capacity_quota_and_keys_and_nothing_else() -> None:
    room = a_room(share=0)
    room.starts(1)
    room.ends(1, NOW)
    line = a_line(room, Places("provider", 0), tokens=(a_bucket(600.0),))
    assert back_at(line, Lack.IDLE, 2, 0.0, NOW) == NOW + 1.0
    assert back_at(line, Lack.QUOTA, 1, 20.0, NOW) == NOW + 2.0
    assert back_at(line, Lack.PERMIT, 1, 20.0, NOW) == inf
    assert back_at(line, Lack.QUOTA, 1, 0.0, NOW) == inf, "it is there: others are in the way"


def test_beside_keys_without_a_place_the_next_one_that_has_rested_is_looked_for() -> None:
    full, resting = a_key("full", size=0), a_key("resting")
    ring = a_ring(full, resting)
    limited(ring, resting, 5.0)
    desk = Desk(ring=ring)
    waiter = desk.waits()
    assert waiter.lack is Lack.PERMIT
    desk.rings(NOW + 4.9)
    assert waiter.permit is None
    desk.rings(NOW + 5.1)
    assert waiter.permit is not None


# The truth of Retry-After


def told(desk: Desk, waiting: list[tuple[float, int]], amount: float, klass: int) -> float | None:
    """Lets others wait, and returns when somebody who may not wait at all is told to come back."""
    for tokens, other in waiting:
        desk.admission.enter(desk.line, sized(tokens, other, queue=1e6, quota_wait=1e6), desk.now)
    answer = desk.admission.enter(desk.line, sized(amount, klass, queue=0.0, quota_wait=0.0), desk.now)
    return answer.retry_after if isinstance(answer, Refusal) else None


def all_go_home(desk: Desk) -> None:
    """Everybody leaves, and those who were let go give back what they took."""
    for queue in desk.line.queues:
        for waiter in (*queue.waiters, *desk.line.handed):
            desk.admission.leave(waiter, desk.now)
    for permit in list(desk.admission.out):
        permit.give_back(desk.now)


def quotas(*buckets: tuple[float, float, float], later: float) -> Desk:
    """A desk with a bucket of requests and one of tokens, each in debt, some time ago."""
    made = [a_bucket(per_minute, reserved=reserved) for per_minute, reserved, _ in buckets]
    for bucket, (_, _, debt) in zip(made, buckets, strict=True):
        bucket.give(-debt, NOW)
    desk = Desk(room=a_room(share=99, most=99), requests=(made[0],), tokens=(made[1],))
    desk.now += later
    return desk


WAITING = st.lists(st.tuples(AMOUNTS, st.integers(0, 2)), max_size=6)
DESKS = st.builds(quotas, BUCKETS, BUCKETS, later=st.floats(0.0, 30.0))


@given(DESKS, WAITING, AMOUNTS, st.integers(0, 2))
def test_who_comes_back_as_told_finds_quota_when_the_others_have_left(
    desk: Desk, waiting: list[tuple[float, int]], amount: float, klass: int
) -> None:
    after = told(desk, waiting, amount, klass)
    if after is not None:
        all_go_home(desk)
        desk.now += after + SOON
        desk.goes(sized(amount, klass, queue=0.0, quota_wait=0.0))


@given(BUCKETS, st.booleans(), st.lists(AMOUNTS, max_size=6), AMOUNTS, st.integers(0, 1))
def test_who_comes_back_as_told_finds_quota_after_those_who_stood_before(
    bucket: tuple[float, float, float], counts_tokens: bool, waiting: list[float], amount: float, klass: int
) -> None:
    """They have gone by then, each at its alarm, and it goes at once."""
    desk = quotas(bucket, bucket, later=0.0)
    kept: tuple[tuple[Bucket, ...], ...] = ((), desk.line.tokens) if counts_tokens else (desk.line.requests, ())
    desk.line.reconfigure((), None, requests=kept[0], tokens=kept[1])
    after = told(desk, [(tokens, klass) for tokens in waiting], amount, klass)
    if after is not None:
        desk.rings(desk.now + after + 0.1)
        assert desk.admission.waiting == 0
        desk.goes(sized(amount, klass, queue=0.0, quota_wait=0.0))


@given(KEYS, st.lists(AMOUNTS, max_size=4), AMOUNTS)
def test_who_comes_back_as_told_finds_a_key_when_the_others_have_left(
    keys: list[tuple[float, float, float, float]], waiting: list[float], amount: float
) -> None:
    """Each key rests, is in debt, or both."""
    made = []
    for number, (rpm, tpm, debt, rests) in enumerate(keys):
        key = metered(f"k{number}", requests=rpm, tokens=tpm)
        key.tokens[0].give(-debt, NOW)
        key.rests_until = NOW + rests
        made.append(key)
    desk = Desk(room=a_room(share=99, most=99), ring=a_ring(*made))
    after = told(desk, [(tokens, 1) for tokens in waiting], amount, 1)
    if after is not None:
        all_go_home(desk)
        desk.now += after + SOON
        answer = desk.admission.enter(desk.line, sized(amount, queue=0.0, quota_wait=0.0), desk.now)
        assert isinstance(answer, Permit), answer
