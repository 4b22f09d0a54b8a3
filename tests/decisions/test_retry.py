"""Again or not, and after how long (rule 7)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.retry import (
    Again,
    Enough,
    RetrySettings,
    Situation,
    attempts_for_tier,
    attempts_in_all,
    backoff_seconds,
    decide,
)
from proxy.outcome import Outcome, OutcomeKind

K = OutcomeKind
SETTINGS = RetrySettings()
NOW = 1000.0
REPEATED = [
    *(Outcome(kind) for kind in (K.UNREACHABLE, K.CONNECT_TIMEOUT, K.DISCONNECTED, K.BAD_ANSWER, K.STREAM_BROKEN)),
    *(Outcome(K.UPSTREAM_ERROR, status=status) for status in (408, 500, 502, 503, 504, 529)),
    Outcome(K.RATE_LIMITED, status=429),
    Outcome(K.ERROR_IN_ANSWER, status=200),
]
FINAL = [
    *(Outcome(K.CALLER_ERROR, status=status) for status in (400, 404, 409, 413, 422, 501, 505)),
    Outcome(K.CREDENTIAL_REJECTED, status=403),
    *(Outcome(kind) for kind in (K.FIRST_BYTE_TIMEOUT, K.ANSWER_TIMEOUT, K.IDLE_TIMEOUT, K.STREAM_TIMEOUT)),
    *(Outcome(kind) for kind in (K.TOTAL_TIMEOUT, K.CLIENT_LEFT, K.DRAINED, K.BUG)),
]

SITUATION = Situation(
    calls=1,
    allowed=3,
    key_choices=0,
    other_key=False,
    own_key=True,
    keys_rest=0.0,
    longest_rest=30.0,
    repeatable=True,
    resendable=True,
    later_tier=False,
    seconds_left=600.0,
    request_id="r1",
)
OUTCOMES = st.builds(
    Outcome,
    st.sampled_from([kind for kind in OutcomeKind if kind not in (K.OK, K.REFUSED, K.ANSWERED)]),
    retry_after=st.one_of(st.none(), st.floats(0, 1000)),
    maybe_executed=st.booleans(),
    should_retry=st.sampled_from([None, None, True, False]),
    key_fault=st.booleans(),
    committed=st.booleans(),
)
SITUATIONS = st.builds(
    Situation,
    calls=st.integers(1, 5),
    allowed=st.integers(1, 5),
    key_choices=st.integers(0, 3),
    other_key=st.booleans(),
    own_key=st.booleans(),
    keys_rest=st.sampled_from([0.0, 0.5, 20.0, float("inf")]),
    longest_rest=st.sampled_from([0.3, 30.0]),
    repeatable=st.booleans(),
    resendable=st.booleans(),
    later_tier=st.booleans(),
    seconds_left=st.floats(-10, 600),
    request_id=st.text(max_size=8),
)


def after(outcome: Outcome, *, settings: RetrySettings = SETTINGS, **changed: Any) -> Again | Enough:
    return decide(outcome, dataclasses.replace(SITUATION, **changed), settings)


@pytest.mark.parametrize("outcome", REPEATED, ids=repr)
def test_what_may_succeed_a_moment_later_is_tried_again(outcome: Outcome) -> None:
    again = after(outcome)
    assert isinstance(again, Again)
    assert not again.other_key
    assert 0.125 <= again.delay <= 0.375


@pytest.mark.parametrize("outcome", FINAL, ids=repr)
def test_nothing_else_is(outcome: Outcome) -> None:
    assert after(outcome) == Enough()


@given(outcome=OUTCOMES, at=SITUATIONS)
def test_never_after_a_committed_byte_nor_without_the_body_nor_twice_what_must_not_be(
    outcome: Outcome, at: Situation
) -> None:
    forbidden = outcome.committed or not at.resendable or (outcome.maybe_executed and not at.repeatable)
    if forbidden:
        assert decide(outcome, at, SETTINGS) == Enough()


@given(outcome=OUTCOMES, at=SITUATIONS)
def test_a_delay_is_as_long_as_told_and_else_within_the_cap_and_always_within_the_deadline(
    outcome: Outcome, at: Situation
) -> None:
    again = decide(outcome, at, SETTINGS)
    if isinstance(again, Enough) or again.other_key:
        return
    rests = outcome.kind is K.RATE_LIMITED and at.own_key
    told = at.keys_rest if rests else outcome.retry_after or 0.0
    assert again.delay <= (SETTINGS.cap if rests else max(SETTINGS.cap, told))
    assert again.delay >= told or rests
    assert max(again.delay, told) < at.seconds_left
    assert max(again.delay, told) <= 1.0 or not at.later_tier
    assert not rests or told - again.delay <= at.longest_rest, "admission would refuse it"


@given(outcome=OUTCOMES, at=SITUATIONS)
def test_another_key_is_chosen_at_once_and_at_most_three_times(outcome: Outcome, at: Situation) -> None:
    again = decide(outcome, at, SETTINGS)
    if isinstance(again, Again) and again.other_key:
        assert again.delay == 0.0
        assert at.key_choices < 3
        assert at.own_key
        assert at.other_key
        assert outcome.kind in (K.RATE_LIMITED, K.CREDENTIAL_REJECTED)


@given(outcome=OUTCOMES, at=SITUATIONS)
def test_attempts_are_bounded(outcome: Outcome, at: Situation) -> None:
    again = decide(outcome, at, SETTINGS)
    if at.calls >= at.allowed:
        assert isinstance(again, Enough) or again.other_key


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_rejected_key_leads_to_another_one_outside_the_attempts(status: int) -> None:
    outcome = Outcome(K.CREDENTIAL_REJECTED, status=status, key_fault=True)
    assert after(outcome, other_key=True, calls=3) == Again(other_key=True)
    assert after(outcome, other_key=False) == Enough()


def test_a_429_leads_to_another_key_without_waiting() -> None:
    limited = Outcome(K.RATE_LIMITED, status=429, retry_after=30.0)
    assert after(limited, other_key=True, later_tier=True) == Again(other_key=True)


def test_a_plain_403_is_not_about_the_key() -> None:
    assert after(Outcome(K.CREDENTIAL_REJECTED, status=403), other_key=True) == Enough()


def test_after_three_choices_the_ordinary_rules_hold() -> None:
    limited = Outcome(K.RATE_LIMITED, status=429)
    again = after(limited, other_key=True, key_choices=3)
    assert isinstance(again, Again)
    assert not again.other_key


def test_the_callers_own_credential_has_no_other_key() -> None:
    assert after(Outcome(K.CREDENTIAL_REJECTED, status=401, key_fault=True), own_key=False, other_key=True) == Enough()


def test_a_spent_quota_is_not_worth_another_try_with_the_same_key() -> None:
    assert after(Outcome(K.RATE_LIMITED, status=429, key_fault=True)) == Enough()


@pytest.mark.parametrize("outcome", REPEATED, ids=repr)
def test_the_providers_no_is_taken(outcome: Outcome) -> None:
    said = Outcome(outcome.kind, status=outcome.status, should_retry=False)
    assert after(said) == Enough()


def test_retry_after_is_never_undercut() -> None:
    again = after(Outcome(K.UPSTREAM_ERROR, status=503, retry_after=45.0))
    assert again == Again(delay=45.0)


def test_the_rest_of_our_key_is_left_to_admission_which_bounds_it() -> None:
    again = after(Outcome(K.RATE_LIMITED, status=429, retry_after=20.0), keys_rest=20.0)
    assert isinstance(again, Again)
    assert again.delay <= 0.375
    assert after(Outcome(K.RATE_LIMITED, status=429, retry_after=45.0), own_key=False) == Again(delay=45.0)


def test_a_rest_that_admission_would_not_wait_for_ends_it_at_once() -> None:
    limited = Outcome(K.RATE_LIMITED, status=429)
    assert after(limited, keys_rest=45.0) == Enough(spent=True)
    assert after(limited, keys_rest=float("inf")) == Enough(spent=True)
    assert isinstance(after(limited, keys_rest=29.0), Again)


def test_a_429_whose_key_rests_for_the_policys_time_goes_to_the_next_tier_at_once() -> None:
    limited = Outcome(K.RATE_LIMITED, status=429)
    assert after(limited, keys_rest=60.0, later_tier=True) == Enough()


def test_another_key_that_is_back_sooner_is_what_is_waited_for() -> None:
    limited = Outcome(K.RATE_LIMITED, status=429, retry_after=900.0)
    assert isinstance(after(limited, keys_rest=2.0, seconds_left=60.0), Again)


def test_a_known_wait_over_a_second_goes_to_the_next_tier() -> None:
    assert after(Outcome(K.UPSTREAM_ERROR, status=503, retry_after=1.5), later_tier=True) == Enough()
    assert after(Outcome(K.RATE_LIMITED, status=429, retry_after=1.5), later_tier=True, own_key=False) == Enough()
    assert after(Outcome(K.RATE_LIMITED, status=429), later_tier=True, keys_rest=1.5) == Enough()
    assert after(Outcome(K.UPSTREAM_ERROR, status=503, retry_after=0.9), later_tier=True) == Again(delay=0.9)


@pytest.mark.parametrize("kind", [K.UPSTREAM_ERROR, K.RATE_LIMITED])
def test_a_wait_that_the_deadline_does_not_allow_ends_it_and_says_so(kind: OutcomeKind) -> None:
    assert after(Outcome(kind, retry_after=10.0), seconds_left=9.0, keys_rest=10.0) == Enough(spent=True)


def test_spent_attempts_are_said_and_a_single_attempt_spends_nothing() -> None:
    failed = Outcome(K.UPSTREAM_ERROR, status=503)
    assert after(failed, calls=3) == Enough(spent=True)
    assert after(failed, allowed=1) == Enough(spent=False)


@given(retry=st.integers(0, 2000), request=st.text(max_size=20), base=st.floats(0.001, 10), cap=st.floats(0.001, 60))
def test_back_off_is_base_times_two_to_the_n_times_a_factor_and_capped(
    retry: int, request: str, base: float, cap: float
) -> None:
    settings = RetrySettings(base=base, cap=cap)
    seconds = backoff_seconds(settings, retry=retry, request_id=request)
    ideal = base * 2.0 ** min(retry, 60)
    assert min(cap, 0.5 * ideal) <= seconds <= min(cap, 1.5 * ideal)


def test_the_factor_comes_from_the_request_id_and_spreads_evenly() -> None:
    delays = [backoff_seconds(SETTINGS, retry=0, request_id=f"r{number}") for number in range(2000)]
    assert delays[7] == backoff_seconds(SETTINGS, retry=0, request_id="r7")
    tenths = [sum(0.125 + 0.025 * i <= delay < 0.15 + 0.025 * i for delay in delays) for i in range(10)]
    assert min(tenths) > 140


def test_a_requests_retries_have_factors_of_their_own() -> None:
    factors = {backoff_seconds(SETTINGS, retry=n, request_id="r1") / 2.0**n for n in range(5)}
    assert len(factors) == 5


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 12))
def test_all_calls_are_attempts_and_one_for_each_later_tier_less_what_the_caller_tried(
    attempts: int, tiers: int, caller: int
) -> None:
    total = attempts_in_all(RetrySettings(attempts=attempts), provider_tiers=tiers, caller_retries=caller)
    assert total == max(1, attempts - caller) + max(0, tiers - 1)


@given(attempts=st.integers(1, 6), left=st.integers(0, 12), later=st.integers(0, 6))
def test_every_tier_gets_one_and_leaves_one_for_each_later_tier(attempts: int, left: int, later: int) -> None:
    allowed = attempts_for_tier(RetrySettings(attempts=attempts), left=left, later_tiers=later)
    assert 1 <= allowed <= attempts
    assert allowed == 1 or allowed + later <= left
