"""Rate limits as the two APIs tell them."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

from proxy.simulation.provider.dialect import Dialect
from proxy.simulation.provider.limit_headers import limit_headers, limit_problem, wait_headers
from proxy.simulation.provider.limits import Axis, Refusal, Standing

WALL = datetime(2026, 11, 30, 10, 0, 0, 500_000, tzinfo=UTC)
STANDINGS = [
    Standing(axis=Axis.REQUESTS, per_minute=60, remaining=59, full_seconds=1.0),
    Standing(axis=Axis.TOKENS, per_minute=150_000, remaining=149_984, full_seconds=360.0),
]
TOKENS = Refusal(axis=Axis.TOKENS, per_minute=10_000, left=500, requested=700, wait_seconds=1.2004)


def test_openai_tells_durations() -> None:
    assert limit_headers(STANDINGS, dialect=Dialect.OPENAI, wall=WALL) == [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "59"),
        ("x-ratelimit-reset-requests", "1s"),
        ("x-ratelimit-limit-tokens", "150000"),
        ("x-ratelimit-remaining-tokens", "149984"),
        ("x-ratelimit-reset-tokens", "6m0s"),
    ]


def test_anthropic_tells_moments() -> None:
    assert limit_headers(STANDINGS[1:], dialect=Dialect.ANTHROPIC, wall=WALL) == [
        ("anthropic-ratelimit-tokens-limit", "150000"),
        ("anthropic-ratelimit-tokens-remaining", "149984"),
        ("anthropic-ratelimit-tokens-reset", "2026-11-30T10:06:01Z"),
    ]


def test_a_wait_is_never_told_too_short() -> None:
    assert wait_headers(TOKENS, Dialect.OPENAI) == [("retry-after-ms", "1201"), ("retry-after", "2")]
    assert wait_headers(TOKENS, Dialect.ANTHROPIC) == [("retry-after", "2")]


def test_what_never_fits_has_no_wait() -> None:
    never = Refusal(axis=Axis.TOKENS, per_minute=100, left=100, requested=700, wait_seconds=inf)
    assert wait_headers(never, Dialect.OPENAI) == []
    problem = limit_problem(never, Dialect.OPENAI, "m")
    assert problem.message == "Request too large for m on tokens per min (TPM): Limit 100, Requested 700."


def test_a_refusal_names_the_limit() -> None:
    problem = limit_problem(TOKENS, Dialect.OPENAI, "m")
    assert (problem.status, problem.kind) == (429, "tokens")
    assert problem.message == (
        "Rate limit reached for m on tokens per min (TPM): Limit 10000, Used 9500, Requested 700. "
        "Please try again in 1.2s."
    )
    anthropic = limit_problem(TOKENS, Dialect.ANTHROPIC, "m")
    assert anthropic.message == "This request would exceed the rate limit of 10,000 tokens per minute."
