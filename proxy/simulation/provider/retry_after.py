"""The headers by which real providers say when to come back, in each form that is seen in the field."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import assert_never

from proxy.simulation.provider.dialect import Dialect
from proxy.simulation.provider.durations import go_duration
from proxy.simulation.provider.faults import RetryForm, RetryHint


def retry_headers(hint: RetryHint, *, dialect: Dialect, wall: datetime) -> list[tuple[str, str]]:
    """Returns the headers for a wait of `hint.seconds` from `wall` (UTC); whole seconds are rounded up."""
    return [header for form in hint.forms for header in _form(form, hint.seconds, dialect, wall)]


def _form(form: RetryForm, seconds: float, dialect: Dialect, wall: datetime) -> list[tuple[str, str]]:
    whole = math.ceil(seconds)
    match form:
        case RetryForm.SECONDS:
            return [("retry-after", str(whole))]
        case RetryForm.FRACTION:
            return [("retry-after", f"{seconds:.3f}")]
        case RetryForm.DATE:
            return [("retry-after", format_datetime(rounded_up(wall + timedelta(seconds=seconds)), usegmt=True))]
        case RetryForm.MS:
            return [("retry-after-ms", str(math.ceil(seconds * 1000)))]
        case RetryForm.RESET:
            return _reset(seconds, dialect, wall)
        case RetryForm.RESET_SECONDS:
            return _openai_reset(str(whole))
        case _:
            assert_never(form)


def _reset(seconds: float, dialect: Dialect, wall: datetime) -> list[tuple[str, str]]:
    if dialect is Dialect.OPENAI:
        return _openai_reset(go_duration(seconds))
    at = rounded_up(wall + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    prefix = "anthropic-ratelimit-requests"
    return [(f"{prefix}-limit", "60"), (f"{prefix}-remaining", "0"), (f"{prefix}-reset", at)]


def _openai_reset(reset: str) -> list[tuple[str, str]]:
    return [
        ("x-ratelimit-limit-requests", "60"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", reset),
    ]


def rounded_up(moment: datetime) -> datetime:
    """Returns the next whole second: callers that come back then are never too early."""
    whole = moment.replace(microsecond=0)
    return whole if whole == moment else whole + timedelta(seconds=1)
