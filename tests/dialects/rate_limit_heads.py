"""Heads of answers as providers and gateways send them, and what they say of rate limits."""

from __future__ import annotations

from typing import Any

NOW = 1_796_083_200.0
"""2026-12-01T00:00:00Z."""
SECONDS_30 = "2026-12-01T00:00:30Z"

OPENAI = """
    x-ratelimit-limit-requests: 10000
    x-ratelimit-limit-tokens: 2000000
    x-ratelimit-remaining-requests: 9999
    x-ratelimit-remaining-tokens: 1000000
    x-ratelimit-reset-requests: 6ms
    x-ratelimit-reset-tokens: 6m0s
"""
ANTHROPIC = f"""
    anthropic-ratelimit-requests-limit: 50
    anthropic-ratelimit-requests-remaining: 49
    anthropic-ratelimit-requests-reset: 2026-12-01T00:00:02Z
    anthropic-ratelimit-input-tokens-limit: 40000
    anthropic-ratelimit-input-tokens-remaining: 30000
    anthropic-ratelimit-input-tokens-reset: {SECONDS_30}
    anthropic-ratelimit-output-tokens-limit: 8000
    anthropic-ratelimit-output-tokens-remaining: 2000
    anthropic-ratelimit-output-tokens-reset: 2026-12-01T00:00:45Z
    anthropic-ratelimit-tokens-limit: 48000
    anthropic-ratelimit-tokens-remaining: 32000
    anthropic-ratelimit-tokens-reset: {SECONDS_30}
"""

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": (
        OPENAI,
        {
            "requests_limit": 10000, "requests_remaining": 9999, "requests_reset": 0.006,
            "tokens_limit": 2000000, "tokens_remaining": 1000000, "tokens_reset": 360.0,
            "part": 0.5, "part_reset": 360.0,
        },
    ),
    "openai, one limit of a project and one by use": (
        """
        x-ratelimit-limit-tokens: 1000
        x-ratelimit-remaining-tokens: 800
        x-ratelimit-reset-tokens: 12s
        x-ratelimit-limit-project-tokens: 500
        x-ratelimit-remaining-project-tokens: 100
        x-ratelimit-reset-project-tokens: 48s
        x-ratelimit-limit-tokens_usage_based: 9000
        x-ratelimit-remaining-tokens_usage_based: 8000
        x-ratelimit-reset-tokens_usage_based: 1s
        """,
        {"tokens_limit": 500, "tokens_remaining": 100, "tokens_reset": 48.0, "part": 0.2, "part_reset": 48.0},
    ),
    "azure": (
        """
        x-ratelimit-limit-requests: 600
        x-ratelimit-remaining-requests: 300
        x-ratelimit-reset-requests: 10
        x-ratelimit-limit-tokens: 100000
        x-ratelimit-remaining-tokens: 75000
        x-ratelimit-reset-tokens: 0
        """,
        {
            "requests_limit": 600, "requests_remaining": 300, "requests_reset": 10.0,
            "tokens_limit": 100000, "tokens_remaining": 75000, "part": 0.5, "part_reset": 10.0,
        },
    ),
    "azure, without limits": (
        """
        x-ratelimit-remaining-requests: 599
        x-ratelimit-remaining-tokens: 99000
        """,
        {"requests_remaining": 599, "tokens_remaining": 99000},
    ),
    "anthropic": (
        ANTHROPIC,
        {
            "requests_limit": 50, "requests_remaining": 49, "requests_reset": 2.0,
            "tokens_limit": 48000, "tokens_remaining": 32000, "tokens_reset": 30.0,
            "part": 0.25, "part_reset": 45.0,
        },
    ),
    "anthropic, no output left": (
        ANTHROPIC.replace("output-tokens-remaining: 2000", "output-tokens-remaining: 0"),
        {
            "requests_limit": 50, "requests_remaining": 49, "requests_reset": 2.0,
            "tokens_limit": 8000, "tokens_remaining": 0, "tokens_reset": 45.0,
            "part": 0.0, "part_reset": 45.0,
        },
    ),
    "anthropic, no sum": (
        "\n".join(line for line in ANTHROPIC.splitlines() if "-tokens-" in line and "ratelimit-tokens" not in line),
        {
            "tokens_limit": 48000, "tokens_remaining": 32000, "tokens_reset": 45.0,
            "part": 0.25, "part_reset": 45.0,
        },
    ),
    "input alone bounds no sum": (
        """
        anthropic-ratelimit-input-tokens-limit: 40000
        anthropic-ratelimit-input-tokens-remaining: 30000
        """,
        {"part": 0.75},
    ),
    "mistral": (
        """
        x-ratelimit-limit-req-minute: 60
        x-ratelimit-remaining-req-minute: 15
        x-ratelimit-limit-tokens-minute: 500000
        x-ratelimit-remaining-tokens-minute: 400000
        x-ratelimit-limit-tokens-month: 1000000000
        x-ratelimit-remaining-tokens-month: 999000000
        x-ratelimit-tokens-query-cost: 35
        """,
        {
            "requests_limit": 60, "requests_remaining": 15, "tokens_limit": 500000, "tokens_remaining": 400000,
            "part": 0.25,
        },
    ),
    "mistral, older": (
        """
        ratelimitbysize-limit: 2000000
        ratelimitbysize-query-cost: 35
        ratelimitbysize-remaining: 1500000
        ratelimitbysize-reset: 41
        x-ratelimitbysize-limit-month: 10000000000
        x-ratelimitbysize-remaining-month: 9999999965
        """,
        {"tokens_limit": 2000000, "tokens_remaining": 1500000, "tokens_reset": 41.0, "part": 0.75, "part_reset": 41.0},
    ),
    "cohere's trial keys": (
        """
        x-trial-endpoint-call-limit: 10
        x-trial-endpoint-call-remaining: 9
        x-endpoint-monthly-call-limit: 1000
        """,
        {"requests_limit": 10, "requests_remaining": 9, "part": 0.9},
    ),
    "cerebras": (
        """
        x-ratelimit-limit-requests-day: 14400
        x-ratelimit-remaining-requests-day: 7200
        x-ratelimit-reset-requests-day: 33011.382867
        """,
        {
            "requests_limit": 14400, "requests_remaining": 7200, "requests_reset": 33011.382867,
            "part": 0.5, "part_reset": 33011.382867,
        },
    ),
    "fireworks": (
        """
        x-ratelimit-limit-tokens-prompt: 60000
        x-ratelimit-remaining-tokens-prompt: 59000
        x-ratelimit-limit-tokens-generated: 6000
        x-ratelimit-remaining-tokens-generated: 3000
        """,
        {"tokens_limit": 66000, "tokens_remaining": 62000, "part": 0.5},
    ),
    "openrouter": (
        """
        X-RateLimit-Limit: 20
        X-RateLimit-Remaining: 5
        X-RateLimit-Reset: 1796083230000
        """,
        {"requests_limit": 20, "requests_remaining": 5, "requests_reset": 30.0, "part": 0.25, "part_reset": 30.0},
    ),
    "kong": (
        """
        X-RateLimit-Limit-Minute: 20
        X-RateLimit-Remaining-Minute: 5
        """,
        {"requests_limit": 20, "requests_remaining": 5, "part": 0.25},
    ),
    "draft 3, as gateways send it": (
        """
        x-ratelimit-limit: 10, 10;w=60
        x-ratelimit-remaining: 9
        x-ratelimit-reset: 12
        """,
        {"requests_limit": 10, "requests_remaining": 9, "requests_reset": 12.0, "part": 0.9, "part_reset": 12.0},
    ),
    "draft 6": (
        """
        RateLimit-Limit: 100
        RateLimit-Remaining: 50
        RateLimit-Reset: 50
        RateLimit-Policy: 100;w=60
        """,
        {"requests_limit": 100, "requests_remaining": 50, "requests_reset": 50.0, "part": 0.5, "part_reset": 50.0},
    ),
    "draft 7": (
        "RateLimit: limit=100, remaining=50, reset=30",
        {"requests_limit": 100, "requests_remaining": 50, "requests_reset": 30.0, "part": 0.5, "part_reset": 30.0},
    ),
    "draft 8 and later": (
        """
        RateLimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400, "size";q=65535;qu="content-bytes";w=10
        RateLimit: "burst";r=90;t=30, "daily";r=20;t=3600, "size";r=1
        """,
        {
            "requests_limit": 1000, "requests_remaining": 20, "requests_reset": 3600.0,
            "part": 0.02, "part_reset": 3600.0,
        },
    ),
    "draft 8, nothing left and no policy": (
        'RateLimit: "default";r=0;t=30',
        {"requests_remaining": 0, "requests_reset": 30.0},
    ),
    "more left than there is": (
        """
        x-ratelimit-limit-requests: 10
        x-ratelimit-remaining-requests: 12
        x-ratelimit-reset-requests: 3s
        """,
        {"requests_limit": 10, "requests_remaining": 12, "part": 1.0},
    ),
    "how large it is alone": ("x-ratelimit-limit-tokens: 1000", {"tokens_limit": 1000}),
}  # fmt: skip
