"""What a caller is told of rate limits: the headers of every answer, and the 429 of a call that does not fit."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from proxy.simulation.provider.dialect import Dialect, Problem
from proxy.simulation.provider.durations import go_duration
from proxy.simulation.provider.limits import Axis, Refusal, Standing
from proxy.simulation.provider.retry_after import rounded_up

Headers = list[tuple[str, str]]


def limit_headers(standings: Iterable[Standing], *, dialect: Dialect, wall: datetime) -> Headers:
    """Returns the triples of limit, remaining and reset; the reset is when the limit is full again, not a wait."""
    return [header for standing in standings for header in _triple(standing, dialect, wall)]


def _triple(standing: Standing, dialect: Dialect, wall: datetime) -> Headers:
    limit, remaining = str(standing.per_minute), str(standing.remaining)
    if dialect is Dialect.ANTHROPIC:
        at = rounded_up(wall + timedelta(seconds=standing.full_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        prefix = f"anthropic-ratelimit-{standing.axis}"
        return [(f"{prefix}-limit", limit), (f"{prefix}-remaining", remaining), (f"{prefix}-reset", at)]
    return [
        (f"x-ratelimit-limit-{standing.axis}", limit),
        (f"x-ratelimit-remaining-{standing.axis}", remaining),
        (f"x-ratelimit-reset-{standing.axis}", go_duration(standing.full_seconds)),
    ]


def wait_headers(refusal: Refusal, dialect: Dialect) -> Headers:
    """Returns when to come back, rounded up so that it is never too early; nothing for what never fits."""
    if math.isinf(refusal.wait_seconds):
        return []
    seconds = ("retry-after", str(math.ceil(refusal.wait_seconds)))
    if dialect is Dialect.ANTHROPIC:
        return [seconds]
    return [("retry-after-ms", str(math.ceil(refusal.wait_seconds * 1000))), seconds]


def limit_problem(refusal: Refusal, dialect: Dialect, model: str) -> Problem:
    """Returns the 429 in the words of the provider whose dialect it is."""
    if dialect is Dialect.ANTHROPIC:
        unit = f"{refusal.per_minute:,.0f} {refusal.axis} per minute"
        return Problem(status=429, message=f"This request would exceed the rate limit of {unit}.")
    unit = "requests per min (RPM)" if refusal.axis is Axis.REQUESTS else "tokens per min (TPM)"
    limit, requested = f"Limit {refusal.per_minute:.0f}", f"Requested {refusal.requested:.0f}"
    if math.isinf(refusal.wait_seconds):
        message = f"Request too large for {model} on {unit}: {limit}, {requested}."
    else:
        used = f"Used {max(refusal.per_minute - refusal.left, 0):.0f}"
        again = f"Please try again in {go_duration(refusal.wait_seconds)}."
        message = f"Rate limit reached for {model} on {unit}: {limit}, {used}, {requested}. {again}"
    return Problem(status=429, message=message, kind=refusal.axis.value)
