from __future__ import annotations

from typing import Any

import pytest

from proxy.simulation.provider.settings import SettingsError, SimulatorSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a/b"},
        {"port": 65536},
        {"tokens_per_second": -1.0},
        {"tokens_per_second": float("nan")},
        {"output_tokens": 0},
        {"concurrency": 0},
        {"queue": 3},
        {"concurrency": 1, "queue": -1},
        {"queue_full_status": 500},
        {"api_keys": ("",)},
        {"embedding_dimensions": 0},
        {"keepalive_seconds": -1.0},
    ],
)
def test_a_setting_out_of_range_is_named(wrong: dict[str, Any]) -> None:
    field = list(wrong)[-1]
    with pytest.raises(SettingsError, match=field):
        SimulatorSettings(**wrong)


def test_the_defaults_hold() -> None:
    assert SimulatorSettings().port == 0
