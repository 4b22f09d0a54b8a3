from __future__ import annotations

from typing import Any

import pytest

from proxy.simulation.provider.allowance import Refill
from proxy.simulation.provider.settings import SettingsError, SimulatorSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a/b"},
        {"port": 65536},
        {"tokens_per_second": -1.0},
        {"tokens_per_second": float("nan")},
        {"heartbeat_seconds": -1.0},
        {"heartbeat_seconds": float("inf")},
        {"output_tokens": 0},
        {"concurrency": 0},
        {"queue": 3},
        {"concurrency": 1, "queue": -1},
        {"queue_full_status": 500},
        {"api_keys": ("",)},
        {"rpm": 0.0},
        {"tpm": float("nan")},
        {"key_rpm": -1.0},
        {"key_tpm": float("inf")},
        {"window_seconds": 0.0},
        {"rpm": 6.0, "refill": Refill.WINDOW, "window_seconds": 1.0},
        {"idempotency_header": " "},
        {"conflict_status": 400},
        {"embedding_dimensions": 0},
        {"input_cost": -0.1},
        {"input_cost": float("nan")},
        {"max_inputs": 0},
        {"poison": ""},
        {"keepalive_seconds": -1.0},
    ],
)
def test_a_setting_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    field = list(wrong)[-1]
    with pytest.raises(SettingsError, match=field):
        SimulatorSettings(**wrong)


@pytest.mark.parametrize(
    ("settings", "granted"),
    [
        ({}, None),
        ({"tpm": 900.0}, 900.0),
        ({"key_tpm": 100.0}, None),
        ({"key_tpm": 100.0, "api_keys": ("a", "b", "a")}, 200.0),
        ({"key_tpm": 100.0, "tpm": 150.0, "api_keys": ("a", "b")}, 150.0),
    ],
)
def test_what_all_keys_are_granted_is_known_where_the_keys_are(settings: dict[str, Any], granted: float | None) -> None:
    assert SimulatorSettings(**settings).granted_tpm == granted


def test_the_defaults_hold() -> None:
    assert SimulatorSettings().port == 0
