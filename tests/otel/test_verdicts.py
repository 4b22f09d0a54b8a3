"""What counts as an error, on each side."""

from __future__ import annotations

import pytest

from otel.verdicts import attempt_error, request_error
from proxy.outcome import OutcomeKind, Reason
from tests.otel.ended import an_attempt, an_exchange

K = OutcomeKind


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (K.OK, 200, ""),
        (K.CALLER_ERROR, 404, ""),
        (K.RATE_LIMITED, 429, ""),
        (K.REFUSED, 429, ""),
        (K.REFUSED, 503, "503"),
        (K.CALLER_ERROR, 501, "501"),
        (K.UPSTREAM_ERROR, 502, "502"),
        (K.STREAM_BROKEN, 200, "stream_broken"),
        (K.ERROR_IN_ANSWER, 200, "error_in_answer"),
        (K.DRAINED, 0, "drained"),
        (K.CLIENT_LEFT, 0, ""),
        (K.CLIENT_LEFT, 200, ""),
        (None, 0, "_OTHER"),
    ],
)
def test_the_servers_side(kind: OutcomeKind | None, status: int, expected: str) -> None:
    facts = an_exchange(kind=kind, status=status, reason=Reason.BREAKER_OPEN).facts
    assert request_error(facts) == expected


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (K.OK, 200, ""),
        (K.CALLER_ERROR, 404, "404"),
        (K.RATE_LIMITED, 429, "429"),
        (K.UNREACHABLE, 0, "unreachable"),
        (K.STREAM_BROKEN, 200, "stream_broken"),
        (K.CLIENT_LEFT, 200, ""),
        (None, 0, "_OTHER"),
    ],
)
def test_the_clients_side(kind: OutcomeKind | None, status: int, expected: str) -> None:
    assert attempt_error(an_attempt(kind=kind, status=status)) == expected
