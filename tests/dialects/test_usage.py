"""Token counts out of usage objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.usage import anthropic_usage, later_usage, may_report, openai_usage
from proxy.exchange import Usage


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21}, Usage(9, 12)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
            Usage(9, 2, 4),
        ),
        (
            {"input_tokens": 36, "output_tokens": 87, "input_tokens_details": {"cached_tokens": 3}},
            Usage(36, 87, 3),
        ),
        ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8)),
        ({"total_tokens": 8}, Usage(8)),
        ({"prompt_tokens": 8, "completion_tokens": None, "prompt_tokens_details": None}, Usage(8)),
        ({"prompt_tokens": 8.0, "completion_tokens": -3}, Usage(8)),
        ({"prompt_tokens": True, "completion_tokens": "7"}, Usage()),
        ({"search_units": 1}, None),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_openai(usage: Any, expected: Usage | None) -> None:
    assert openai_usage(usage) == expected


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input_tokens": 9, "output_tokens": 12}, Usage(9, 12)),
        (
            {
                "input_tokens": 9,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 1000,
                "output_tokens": 12,
                "service_tier": "standard",
            },
            Usage(1109, 12, 1000),
        ),
        ({"input_tokens": 9, "cache_read_input_tokens": None, "output_tokens": 1}, Usage(9, 1)),
        ({"output_tokens": 12}, Usage(0, 12)),
        ({}, None),
        (None, None),
    ],
)
def test_anthropic(usage: Any, expected: Usage | None) -> None:
    assert anthropic_usage(usage) == expected


@pytest.mark.parametrize(
    ("text", "may"),
    [
        (b"", False),
        (b'{"usage":null}\n{"usage": null}', False),
        (b'{"content":"\\"usage\\":{}"}', False),
        (b'{"usage":{}}', True),
        (b'{"usage" :null}', True),
        (b'{"usage":null}\n{"usage":{}}', True),
    ],
)
def test_where_a_report_may_be(text: bytes, may: bool) -> None:
    assert may_report(text) is may


def test_later_reports_never_sum() -> None:
    usage = later_usage(later_usage(None, Usage(110, 1, 100)), Usage(0, 15))
    assert usage == Usage(110, 15, 100)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=2)
    | st.dictionaries(st.just("cached_tokens"), st.integers() | st.floats())
)
NAMES = st.sampled_from(
    [
        "prompt_tokens",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "input_tokens_details",
        "cache_read_input_tokens",
    ]
)


@given(st.dictionaries(NAMES, VALUES))
def test_no_report_raises_or_counts_below_zero(usage: dict[str, Any]) -> None:
    for found in (openai_usage(usage), anthropic_usage(usage)):
        assert found is None or min(found.input, found.output, found.cached_input) >= 0
