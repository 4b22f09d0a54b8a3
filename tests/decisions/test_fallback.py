"""Which tier next, and what the caller is told in the end (rules 7 and 9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.fallback import better, moves_on
from proxy.outcome import KeptAnswer, Outcome, OutcomeKind, Reason, refused

K = OutcomeKind
KINDS = st.sampled_from(list(OutcomeKind))


def an_answer(status: int) -> KeptAnswer:
    return KeptAnswer(status=status, phrase=b"", lines=b"", body=b"")


def goes_on(outcome: Outcome, *, own_key: bool = True, repeatable: bool = True, resendable: bool = True) -> bool:
    return moves_on(outcome, own_key=own_key, repeatable=repeatable, resendable=resendable)


@pytest.mark.parametrize(
    "kind",
    [
        K.UNREACHABLE,
        K.CONNECT_TIMEOUT,
        K.DISCONNECTED,
        K.BAD_ANSWER,
        K.UPSTREAM_ERROR,
        K.ERROR_IN_ANSWER,
        K.RATE_LIMITED,
        K.FIRST_BYTE_TIMEOUT,
        K.ANSWER_TIMEOUT,
        K.IDLE_TIMEOUT,
        K.STREAM_BROKEN,
    ],
)
def test_a_failure_goes_to_the_next_tier(kind: OutcomeKind) -> None:
    assert goes_on(Outcome(kind))


@pytest.mark.parametrize("kind", [K.OK, K.ANSWERED, K.CALLER_ERROR, K.CLIENT_LEFT, K.TOTAL_TIMEOUT, K.DRAINED, K.BUG])
def test_what_another_tier_cannot_mend_ends_the_exchange(kind: OutcomeKind) -> None:
    assert not goes_on(Outcome(kind))


@pytest.mark.parametrize("reason", [Reason.QUEUE_FULL, Reason.QUEUE_TIMEOUT, Reason.KEYS_RESTING, Reason.BREAKER_OPEN])
def test_a_local_refusal_goes_to_the_next_tier_whatever_the_request(reason: Reason) -> None:
    assert goes_on(refused(reason), repeatable=False, resendable=True)


@given(kind=KINDS, own=st.booleans(), repeatable=st.booleans(), resendable=st.booleans(), fault=st.booleans())
def test_never_after_a_committed_byte(
    kind: OutcomeKind, own: bool, repeatable: bool, resendable: bool, fault: bool
) -> None:
    outcome = Outcome(kind, committed=True, key_fault=fault)
    assert not goes_on(outcome, own_key=own, repeatable=repeatable, resendable=resendable)


@given(kind=KINDS.filter(lambda kind: kind is not K.REFUSED), own=st.booleans(), fault=st.booleans())
def test_never_again_what_may_have_been_executed_and_must_not_be_twice(
    kind: OutcomeKind, own: bool, fault: bool
) -> None:
    outcome = Outcome(kind, maybe_executed=True, key_fault=fault)
    assert not goes_on(outcome, own_key=own, repeatable=False)


def test_what_surely_executed_nothing_is_sent_again_even_if_it_must_not_be_twice() -> None:
    assert goes_on(Outcome(K.UNREACHABLE), repeatable=False)
    assert goes_on(Outcome(K.UPSTREAM_ERROR, status=503), repeatable=False)


def test_a_body_that_is_gone_cannot_be_sent_again() -> None:
    assert not goes_on(Outcome(K.DISCONNECTED), resendable=False)


def test_our_rejected_key_goes_on_and_the_callers_own_does_not() -> None:
    rejected = Outcome(K.CREDENTIAL_REJECTED, status=401, key_fault=True)
    assert goes_on(rejected, own_key=True)
    assert not goes_on(rejected, own_key=False)


def test_a_plain_403_is_about_the_request_not_about_the_key() -> None:
    assert not goes_on(Outcome(K.CREDENTIAL_REJECTED, status=403))


def told(*outcomes: Outcome) -> Outcome:
    best: Outcome | None = None
    for outcome in outcomes:
        best = better(best, outcome)
    assert best is not None
    return best


def test_the_last_answer_that_a_provider_gave_is_relayed() -> None:
    first = Outcome(K.UPSTREAM_ERROR, status=500, answer=an_answer(500))
    second = Outcome(K.UPSTREAM_ERROR, status=503, answer=an_answer(503))
    silent = Outcome(K.UNREACHABLE)
    assert told(first, second, silent) is second
    assert told(first, silent, refused(Reason.BREAKER_OPEN)) is first


def test_where_no_provider_answered_the_first_tiers_own_reason_is_told() -> None:
    first = refused(Reason.BREAKER_OPEN)
    assert told(first, Outcome(K.UNREACHABLE), refused(Reason.QUEUE_FULL)) is first


def test_what_a_provider_says_of_our_key_does_not_hide_another_providers_answer() -> None:
    busy = Outcome(K.UPSTREAM_ERROR, status=503, answer=an_answer(503))
    rejected = Outcome(K.CREDENTIAL_REJECTED, status=401, key_fault=True, answer=an_answer(401))
    assert told(busy, rejected) is busy
    assert told(rejected, busy) is busy
    assert told(rejected, refused(Reason.QUEUE_FULL)) is rejected
