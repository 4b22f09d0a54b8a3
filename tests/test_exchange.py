"""What an exchange is made of: targets as they came, and no secret in a representation."""

from __future__ import annotations

import pytest

from proxy.exchange import Attempt, Credential, Usage
from proxy.observer import Refused
from proxy.outcome import OutcomeKind, Reason
from tests.fakes import LIMITS, Ask, FakeUpload, make_exchange, make_request


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/v1/models", "/v1/models", ""),
        ("/v1/models?", "/v1/models", "?"),
        ("/v1/models?a=1&b=%2F?c", "/v1/models", "?a=1&b=%2F?c"),
        ("/a%2Fb/../c//d?x", "/a%2Fb/../c//d", "?x"),
    ],
)
def test_path_and_query_are_never_normalised(target: str, path: str, query: str) -> None:
    request = make_request(Ask(target=target))
    assert (request.path, request.query) == (path, query)
    assert request.path + request.query == target


def test_a_request_without_a_body_has_read_it_already() -> None:
    assert make_request(Ask(body=b"")).body == b""
    assert make_request(Ask(upload=FakeUpload([b"x"]))).body is None


def test_a_credential_shows_its_id_only() -> None:
    credential = Credential(key_id="a1", header=(b"authorization", b"Bearer hush-hush"))
    assert "a1" in repr(credential)
    assert "hush" not in repr(credential)
    assert "hush" not in str([credential])


def test_usages_are_equal_by_what_they_count() -> None:
    assert Usage(3, 4, 1) == Usage(3, 4, 1)
    assert Usage(3, 4, 1) != Usage(3, 4, 1, estimated=True)
    assert Usage(3, 4) != (3, 4)


def test_an_attempt_tells_what_became_of_it() -> None:
    attempt = Attempt(number=2, tier=1, provider="alpha", model="m1", limits=LIMITS)
    attempt.kind, attempt.status = OutcomeKind.RATE_LIMITED, 429
    assert repr(attempt) == "<Attempt 2 tier 1 alpha/m1 rate_limited 429>"


def test_notes_stand_in_their_order_with_their_times() -> None:
    exchange = make_exchange()
    first = Refused(provider="alpha", tier=1, reason=Reason.QUEUE_FULL)
    second = Refused(provider="beta", tier=2, reason=Reason.BREAKER_OPEN)
    exchange.note(1.0, first)
    exchange.note(2.0, second)
    assert exchange.facts.events == [(1.0, first), (2.0, second)]


def test_without_a_tier_an_exchange_waits_for_nothing() -> None:
    exchange = make_exchange()
    assert exchange.deadline_at == float("inf")
    assert exchange.cancel_cause is None
    assert not exchange.replaceable
