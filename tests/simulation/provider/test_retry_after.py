from __future__ import annotations

from datetime import UTC, datetime

import pytest

from proxy.simulation.provider.dialect import Dialect
from proxy.simulation.provider.faults import RetryForm, RetryHint
from proxy.simulation.provider.retry_after import retry_headers

WALL = datetime(2026, 11, 30, 10, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("form", "dialect", "name", "value"),
    [
        (RetryForm.SECONDS, Dialect.OPENAI, "retry-after", "91"),
        (RetryForm.FRACTION, Dialect.OPENAI, "retry-after", "90.250"),
        (RetryForm.DATE, Dialect.OPENAI, "retry-after", "Mon, 30 Nov 2026 10:01:31 GMT"),
        (RetryForm.MS, Dialect.OPENAI, "retry-after-ms", "90250"),
        (RetryForm.RESET, Dialect.OPENAI, "x-ratelimit-reset-requests", "1m30.25s"),
        (RetryForm.RESET_SECONDS, Dialect.OPENAI, "x-ratelimit-reset-requests", "91"),
        (RetryForm.RESET, Dialect.ANTHROPIC, "anthropic-ratelimit-requests-reset", "2026-11-30T10:01:31Z"),
    ],
)
def test_each_form(form: RetryForm, dialect: Dialect, name: str, value: str) -> None:
    hint = RetryHint(seconds=90.25, forms=(form,))
    assert dict(retry_headers(hint, dialect=dialect, wall=WALL))[name] == value


def test_several_forms_stand_beside_each_other() -> None:
    hint = RetryHint(seconds=1, forms=(RetryForm.SECONDS, RetryForm.MS))
    assert retry_headers(hint, dialect=Dialect.OPENAI, wall=WALL) == [
        ("retry-after", "1"),
        ("retry-after-ms", "1000"),
    ]
