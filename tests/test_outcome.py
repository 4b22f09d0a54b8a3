"""How things end: the tables are whole, and a status means what the design says."""

from __future__ import annotations

import pytest

from proxy.outcome import BLAME, LOCAL_REASON, STATUS, Blame, Outcome, OutcomeKind, Reason, kind_of_status, refused


def test_every_kind_has_its_blame_and_every_reason_its_status() -> None:
    assert set(BLAME) == set(OutcomeKind)
    assert set(STATUS) == set(Reason)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, OutcomeKind.OK),
        (204, OutcomeKind.OK),
        (304, OutcomeKind.OK),
        (400, OutcomeKind.CALLER_ERROR),
        (401, OutcomeKind.CREDENTIAL_REJECTED),
        (402, OutcomeKind.CREDENTIAL_REJECTED),
        (403, OutcomeKind.CREDENTIAL_REJECTED),
        (404, OutcomeKind.CALLER_ERROR),
        (408, OutcomeKind.UPSTREAM_ERROR),
        (409, OutcomeKind.CALLER_ERROR),
        (422, OutcomeKind.CALLER_ERROR),
        (429, OutcomeKind.RATE_LIMITED),
        (500, OutcomeKind.UPSTREAM_ERROR),
        (501, OutcomeKind.CALLER_ERROR),
        (502, OutcomeKind.UPSTREAM_ERROR),
        (503, OutcomeKind.UPSTREAM_ERROR),
        (504, OutcomeKind.UPSTREAM_ERROR),
        (505, OutcomeKind.CALLER_ERROR),
        (520, OutcomeKind.UPSTREAM_ERROR),
        (529, OutcomeKind.UPSTREAM_ERROR),
    ],
)
def test_a_status_means_what_the_table_says(status: int, kind: OutcomeKind) -> None:
    assert kind_of_status(status) is kind


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("bad_request", 400),
        ("forbidden_target", 403),
        ("no_route", 404),
        ("idempotency_conflict", 409),
        ("body_too_large", 413),
        ("context_too_long", 413),
        ("misdirected", 421),
        ("queue_full", 429),
        ("queue_timeout", 429),
        ("quota_exhausted", 429),
        ("keys_resting", 429),
        ("tenant_limit", 429),
        ("upstream_unreachable", 502),
        ("keys_unusable", 502),
        ("breaker_open", 503),
        ("shutting_down", 503),
        ("connect_timeout", 504),
        ("first_byte_timeout", 504),
        ("answer_timeout", 504),
        ("idle_timeout", 504),
        ("total_timeout", 504),
        ("maybe_executed", 504),
        ("loop_detected", 508),
    ],
)
def test_a_reason_has_the_status_that_the_policy_promises(reason: str, status: int) -> None:
    assert STATUS[Reason(reason)] == status


def test_what_failed_upstream_is_told_as_a_reason() -> None:
    upstream = {kind for kind, blame in BLAME.items() if blame is Blame.UPSTREAM}
    assert upstream <= set(LOCAL_REASON)


def test_a_refusal_is_local_and_ours() -> None:
    outcome = refused(Reason.QUEUE_FULL, retry_after=2.0, detail="wait")
    assert outcome.local
    assert outcome.blame is Blame.PROXY
    assert (outcome.reason, outcome.retry_after, outcome.detail) == (Reason.QUEUE_FULL, 2.0, "wait")
    assert not outcome.committed


@pytest.mark.parametrize("kind", [k for k in OutcomeKind if k is not OutcomeKind.REFUSED])
def test_nothing_else_is_local(kind: OutcomeKind) -> None:
    assert not Outcome(kind).local


def test_an_outcome_tells_what_it_is() -> None:
    told = repr(Outcome(OutcomeKind.STREAM_BROKEN, status=200, committed=True))
    assert told == "<Outcome stream_broken, status 200, committed>"
    assert "queue_full" in repr(refused(Reason.QUEUE_FULL))
