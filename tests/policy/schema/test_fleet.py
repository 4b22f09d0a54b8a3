from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.policy.schema.fleet import Classes, Fleet, Intercept, Telemetry, Tenants

# The examples of the documented surface.
TENANTS = {
    "from": [{"header": "x-agent-id"}, {"credential": True}],
    "default": {
        "rps": 3,
        "concurrency": 8,
        "tpm": 200000,
        "context_tokens": 16000,
        "class": "P1",
        "too_long": "refuse",
    },
    "overrides": {"batch-*": {"class": "P2", "concurrency": 2, "too_long": {"tier": 2}}},
}


def test_the_documented_surface() -> None:
    assert (
        Fleet.model_validate(
            {
                "size": {"dns": "x"},
                "max_size": 20,
                "on_loss": "hold_last",
                "guarantee": "strict",
                "raise_delay": "5s",
            }
        ).max_size
        == 20
    )
    assert Tenants.model_validate(TENANTS).overrides["batch-*"].class_ == "P2"
    assert Intercept.model_validate({"hosts": {"api.example": "terminate"}}).other == "tunnel"
    assert Telemetry.model_validate({"task_header": "x-task"}).log_successes == 1.0


def test_the_classes_exist_always() -> None:
    classes = Classes.model_validate({})
    assert (classes.P0.reserved, classes.P2.idle_below, str(classes.P2.promote_after)) == (0.0, 0.7, "5m")
    with pytest.raises(ValidationError):
        Classes.model_validate({"P3": {}})
