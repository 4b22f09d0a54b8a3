"""Each row of the verdict table: what an end says about its target."""

from __future__ import annotations

import pytest

from proxy.decisions.verdict import Verdict, verdict_of
from proxy.outcome import Outcome, OutcomeKind, Reason, kind_of_status, refused

K = OutcomeKind


@pytest.mark.parametrize("kind", [K.UNREACHABLE, K.DISCONNECTED, K.BAD_ANSWER])
def test_a_connection_that_failed_before_the_head_is_a_failure(kind: OutcomeKind) -> None:
    assert verdict_of(Outcome(kind)) is Verdict.FAILURE


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529, 408, 520, 599])
def test_a_servers_error_is_a_failure(status: int) -> None:
    assert verdict_of(Outcome(kind_of_status(status), status=status)) is Verdict.FAILURE


@pytest.mark.parametrize("kind", [K.CONNECT_TIMEOUT, K.FIRST_BYTE_TIMEOUT, K.ANSWER_TIMEOUT, K.IDLE_TIMEOUT])
def test_a_phase_limit_of_ours_is_a_failure(kind: OutcomeKind) -> None:
    assert verdict_of(Outcome(kind)) is Verdict.FAILURE


@pytest.mark.parametrize("kind", [K.STREAM_BROKEN, K.ERROR_IN_ANSWER])
@pytest.mark.parametrize("committed", [True, False])
def test_a_broken_or_error_carrying_answer_is_a_failure_though_its_status_was_200(
    kind: OutcomeKind, committed: bool
) -> None:
    assert verdict_of(Outcome(kind, status=200, committed=committed)) is Verdict.FAILURE


def test_a_429_is_neutral_but_fails_probes() -> None:
    assert verdict_of(Outcome(kind_of_status(429), status=429)) is Verdict.REJECTED


def test_a_429_inside_a_200_is_the_same() -> None:
    assert verdict_of(Outcome(K.RATE_LIMITED, status=200)) is Verdict.REJECTED


@pytest.mark.parametrize("status", [401, 402, 403])
def test_credential_trouble_is_neutral(status: int) -> None:
    assert verdict_of(Outcome(kind_of_status(status), status=status)) is Verdict.NEUTRAL


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422, 451, 501, 505])
def test_other_refusals_show_that_the_server_lives(status: int) -> None:
    assert verdict_of(Outcome(kind_of_status(status), status=status)) is Verdict.HEALTHY


@pytest.mark.parametrize("status", [200, 201, 204, 301, 304])
def test_an_answer_is_a_success(status: int) -> None:
    assert verdict_of(Outcome(kind_of_status(status), status=status)) is Verdict.SUCCESS


@pytest.mark.parametrize("kind", [K.CLIENT_LEFT, K.TOTAL_TIMEOUT, K.DRAINED])
def test_who_gave_the_call_up_is_told_apart_because_slow_calls_are_judged_by_their_ticket(kind: OutcomeKind) -> None:
    assert verdict_of(Outcome(kind)) is Verdict.GIVEN_UP


def test_the_longest_allowed_stream_says_nothing() -> None:
    assert verdict_of(Outcome(K.STREAM_TIMEOUT, status=200, committed=True)) is Verdict.NEUTRAL


@pytest.mark.parametrize("reason", list(Reason))
def test_a_local_refusal_is_not_recorded(reason: Reason) -> None:
    assert verdict_of(refused(reason)) is Verdict.NOT_RECORDED


def test_a_bug_of_ours_is_not_recorded() -> None:
    assert verdict_of(Outcome(K.BUG)) is Verdict.NOT_RECORDED


def test_a_callers_body_that_broke_off_says_nothing_about_the_server() -> None:
    assert verdict_of(Outcome(K.CALLER_ERROR, detail="the request's body: cut")) is Verdict.NEUTRAL


@pytest.mark.parametrize("kind", list(OutcomeKind))
def test_every_end_has_a_verdict(kind: OutcomeKind) -> None:
    assert verdict_of(Outcome(kind, status=200)) in Verdict
