from __future__ import annotations

import pytest

from proxy.policy.schema.routes import (
    AnswerTier,
    LaterTier,
    ProviderTier,
    Route,
    SpreadTier,
    StaleCacheTier,
)


@pytest.mark.parametrize(
    ("tier", "kind"),
    [
        ({"provider": "a", "answer": "5s"}, ProviderTier),
        ({"provider": "a", "answer": {"p95": 2}}, ProviderTier),
        ({"spread": [{"provider": "a"}], "by": "weight", "answer": "5s"}, SpreadTier),
        ({"stale_cache": {"max_age": "1h"}}, StaleCacheTier),
        ({"later": {"keep": "24h"}}, LaterTier),
        ({"answer": {"status": 200, "json": {"note": "x"}}}, AnswerTier),
        ({"answer": {}}, AnswerTier),
    ],
)
def test_a_tier_is_told_by_its_names(tier: object, kind: type) -> None:
    route = Route.model_validate({"name": "r", "tiers": [tier]})
    assert type(route.tiers[0]) is kind


def test_the_documented_surface() -> None:
    route = Route.model_validate(
        {
            "name": "r",
            "tiers": [{"provider": "a"}],
            "idempotency": {"from": ["x-agent-id", "x-task-id"], "keep": "24h"},
            "lanes": [{"max_output": 100, "share": 0.3}],
            "cache": {"ttl": "5m", "normalize": ["space", "case"]},
            "merge": {"window": "5ms", "max": 8, "inputs": "x", "results": "y"},
        }
    )
    assert (str(route.total), route.retry.attempts, str(route.body.max)) == ("10m", 3, "32MiB")
    assert route.merge is not None
    assert str(route.merge.window) == "5ms"
