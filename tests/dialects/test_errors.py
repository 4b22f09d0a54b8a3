"""What the error objects of all providers stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.errors import AnswerError, blames_key, delay_in, error_in, quota_is_spent

GEMINI: dict[str, Any] = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}],
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39s"},
        ],
    }
}
GEMINI_DAY: dict[str, Any] = {
    "error": {
        "code": 429,
        "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject-FreeTier"}]}],
    }
}
SPEND_LIMIT = {
    "type": "error",
    "error": {"type": "rate_limit_error", "details": {"error_code": "workspace_spend_limit_reached"}},
}
SPENT = {"error": {"message": "x", "type": "insufficient_quota", "param": None, "code": "insufficient_quota"}}
RATE = {"error": {"message": "x", "type": "tokens", "param": None, "code": "rate_limit_exceeded"}}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (RATE, AnswerError(429, "rate_limit_exceeded")),
        (SPENT, AnswerError(429, "insufficient_quota", spent=True)),
        (
            {"error": {"message": "x", "type": "invalid_request_error", "code": "unsupported_value"}},
            AnswerError(400, "unsupported_value"),
        ),
        ({"error": {"message": "x", "type": "server_error", "code": None}}, AnswerError(500, "server_error")),
        (
            {"error": {"message": "x", "type": "BadRequestError", "param": None, "code": 400}},
            AnswerError(400, "BadRequestError"),
        ),
        ({"error": {"message": "x", "code": "429"}}, AnswerError(429, "error")),
        ({"error": {"message": "x", "code": 502}}, AnswerError(502, "error")),
        ({"error": {"message": "x", "code": 7}}, AnswerError(500, "error")),
        ({"error": {"message": "x", "code": True}}, AnswerError(500, "error")),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            AnswerError(529, "overloaded_error"),
        ),
        ({"type": "error", "error": {"type": "timeout_error"}}, AnswerError(504, "timeout_error")),
        (GEMINI, AnswerError(429, "RESOURCE_EXHAUSTED", delay=39.0)),
        ([GEMINI], AnswerError(429, "RESOURCE_EXHAUSTED", delay=39.0)),
        ({"error": {"status": "UNAVAILABLE"}}, AnswerError(503, "UNAVAILABLE")),
        (
            {"object": "error", "message": "x", "type": "NotFoundError", "code": 404},
            AnswerError(404, "NotFoundError"),
        ),
        ({"error": "server busy, please try again"}, AnswerError(500, "error")),
        ({"error": "Model is overloaded", "error_type": "overloaded"}, AnswerError(429, "overloaded")),
        ({"error": ["odd"]}, AnswerError(500, "error")),
        ({"error": None, "choices": []}, None),
        ({"error": False}, None),
        ({"error": ""}, None),
        ({"error": {}}, None),
        ({"object": "list", "data": []}, None),
        ({"choices": [{"message": {"error": "x"}}]}, None),
        ([GEMINI, GEMINI], None),
        ([], None),
        ("error", None),
        (None, None),
    ],
)
def test_error_in(document: Any, error: AnswerError | None) -> None:
    assert error_in(document) == error


@pytest.mark.parametrize("code", ["Bearer tell-nobody", "sk-tell-nobody-4711", "x=y", "two\nlines", "é"])
def test_what_is_no_name_is_not_taken_for_one(code: str) -> None:
    assert error_in({"error": {"code": code, "type": "invalid_api_key"}}) == AnswerError(401, "error")


def test_long_codes_are_cut() -> None:
    error = error_in({"error": {"code": "x" * 10_000}})
    assert error is not None
    assert len(error.code) == 64


@pytest.mark.parametrize(
    ("document", "spent"),
    [
        (SPENT, True),
        ({"error": {"code": "credit_balance_exhausted"}}, True),
        ({"error": {"type": "billing_error"}}, True),
        ({"error": {"code": "billing_hard_limit_reached"}}, True),
        (SPEND_LIMIT, True),
        (GEMINI_DAY, True),
        (GEMINI, False),
        (RATE, False),
        ({"type": "error", "error": {"type": "rate_limit_error"}}, False),
        ({"error": {"message": "insufficient_quota"}}, False),
        (None, False),
    ],
)
def test_quota_is_spent(document: Any, spent: bool) -> None:
    assert quota_is_spent(document) is spent


@pytest.mark.parametrize(
    ("status", "document", "blamed"),
    [
        (401, None, True),
        (402, {}, True),
        (403, None, False),
        (403, {"error": {"code": "unsupported_country_region_territory"}}, False),
        (403, {"error": {"code": "403", "message": "Access denied due to firewall rules"}}, False),
        (403, {"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["x"]}}}, False),
        (403, {"type": "error", "error": {"type": "permission_error"}}, True),
        (403, {"error": {"code": "invalid_api_key"}}, True),
        (403, [{"error": {"code": 403, "status": "PERMISSION_DENIED"}}], True),
        (403, {"error": {"details": [{"reason": "API_KEY_SERVICE_BLOCKED"}]}}, True),
        (403, SPENT, True),
        (400, {"error": {"code": "invalid_api_key"}}, False),
        (429, SPENT, False),
    ],
)
def test_blames_key(status: int, document: Any, blamed: bool) -> None:
    assert blames_key(status, document) is blamed


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("39s", 39.0), ("0.5s", 0.5), ("39.250000000s", 39.25), ("9" * 18 + "s", 86400.0), ("0s", 0.0)]
    + [(junk, None) for junk in ("-1s", "39", "", "s", "1m", " 1s", "٣s", "9" * 400 + "s", None, 39, {"seconds": 3})],
)
def test_delay_in(delay: Any, seconds: float | None) -> None:
    document = {"error": {"code": 429, "details": [{"x": 1}, {"retryDelay": delay}]}}
    assert delay_in(document) == seconds
    assert delay_in([document]) == seconds


WORDS = st.sampled_from(["error", "code", "type", "status", "details", "violations", "quotaId", "retryDelay", "object"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_no_document_raises(document: Any) -> None:
    for shape in (document, {"error": document}, {"error": {"details": document}}):
        error = error_in(shape)
        assert error is None or 400 <= error.status < 600
        assert quota_is_spent(shape) in (True, False)
        assert blames_key(403, shape) in (True, False)
        delay = delay_in(shape)
        assert delay is None or delay >= 0


def test_an_error_in_an_answer_says_when_to_come_again_and_whether_the_quota_is_spent() -> None:
    asked = {"error": {"status": "RESOURCE_EXHAUSTED", "code": 429, "details": [{"retryDelay": "13s"}]}}
    found = error_in(asked)
    assert found is not None
    assert (found.status, found.delay, found.spent) == (429, 13.0, False)
    found = error_in({"error": {"type": "insufficient_quota", "message": "no money", "code": 429}})
    assert found is not None
    assert (found.status, found.delay, found.spent) == (429, None, True)
