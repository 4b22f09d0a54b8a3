"""Verdicts: what the end of a call says about its target (the table of `semantics.md` §1)."""

from __future__ import annotations

from enum import StrEnum

from proxy.outcome import Outcome, OutcomeKind


class Verdict(StrEnum):
    """What the end of a call says about the target."""

    SUCCESS = "success"
    HEALTHY = "healthy"
    """The server lives, but the call says nothing about its success (other 4xx): outside the ratio."""
    FAILURE = "failure"
    REJECTED = "rejected"
    """429: neutral, but it fails a probe."""
    NEUTRAL = "neutral"
    GIVEN_UP = "given_up"
    """The caller left or its own deadline passed: neutral, but a failure where the call was slow already."""
    NOT_RECORDED = "not_recorded"
    """Refused locally: a probe's place goes back without verdict."""


_VERDICTS: dict[OutcomeKind, Verdict] = {
    OutcomeKind.OK: Verdict.SUCCESS,
    OutcomeKind.CALLER_ERROR: Verdict.HEALTHY,
    OutcomeKind.RATE_LIMITED: Verdict.REJECTED,
    OutcomeKind.CREDENTIAL_REJECTED: Verdict.NEUTRAL,
    OutcomeKind.UPSTREAM_ERROR: Verdict.FAILURE,
    OutcomeKind.ERROR_IN_ANSWER: Verdict.FAILURE,
    OutcomeKind.UNREACHABLE: Verdict.FAILURE,
    OutcomeKind.CONNECT_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.DISCONNECTED: Verdict.FAILURE,
    OutcomeKind.BAD_ANSWER: Verdict.FAILURE,
    OutcomeKind.FIRST_BYTE_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.ANSWER_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.IDLE_TIMEOUT: Verdict.FAILURE,
    OutcomeKind.STREAM_BROKEN: Verdict.FAILURE,
    OutcomeKind.STREAM_TIMEOUT: Verdict.NEUTRAL,
    OutcomeKind.TOTAL_TIMEOUT: Verdict.GIVEN_UP,
    OutcomeKind.CLIENT_LEFT: Verdict.GIVEN_UP,
    OutcomeKind.DRAINED: Verdict.GIVEN_UP,
    OutcomeKind.REFUSED: Verdict.NOT_RECORDED,
    OutcomeKind.ANSWERED: Verdict.NOT_RECORDED,
    OutcomeKind.BUG: Verdict.NOT_RECORDED,
}


def verdict_of(outcome: Outcome) -> Verdict:
    """Judges an outcome; a caller's error that no provider told of (its own body broke off) says nothing."""
    if outcome.kind is OutcomeKind.CALLER_ERROR and not outcome.status:
        return Verdict.NEUTRAL
    return _VERDICTS[outcome.kind]
