from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.policy.schema.providers import Breaker, Limits, Provider

URL = "https://api.alpha.example/v1"


def test_the_documented_surface() -> None:
    provider = Provider.model_validate(
        {
            "base_url": [URL, "https://b.example"],
            "hosts": ["api.alpha.example"],
            "limits": {
                "concurrency": 100,
                "rpm": 600,
                "tpm": 1000000,
                "headroom": 0.8,
                "burst": "5s",
                "adaptive": {"decrease": 0.8, "min": 1},
                "count": {"cached_input": 1, "reserve_output": True},
            },
            "models": {"m": {"limits": {"tpm": 5}, "context_tokens": 128000, "price": {"input": 3, "output": 15}}},
            "timeouts": {"answer": {"p95": 1.5, "plus": "5s"}},
            "queue_metric": {"url": "http://vllm:8000/metrics", "name": "vllm:num_requests_waiting"},
        }
    )
    assert provider.models["m"].limits.tpm == 5


def test_the_documented_defaults() -> None:
    provider = Provider.model_validate({"base_url": URL})
    assert [str(provider.key_rest), str(provider.queue.bytes), str(provider.connections.idle)] == [
        "1m",
        "64MiB",
        "25s",
    ]
    times = provider.timeouts
    assert [str(t) for t in (times.connect, times.first_byte, times.answer, times.idle, times.stream)] == [
        "5s", "30s", "10m", "30s", "1h",
    ]  # fmt: skip
    assert isinstance(provider.breaker, Breaker)
    assert (provider.breaker.failure_ratio, provider.breaker.consecutive) == (0.4, 10)
    assert Limits.model_validate({}).headroom == 0.8


@pytest.mark.parametrize("value", ["off", {}])
def test_a_breaker_is_off_or_a_section(value: object) -> None:
    assert Provider.model_validate({"base_url": URL, "breaker": value})


@pytest.mark.parametrize("value", [False, None, "on", []])
def test_nothing_else_is_a_breaker(value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Provider.model_validate({"base_url": URL, "breaker": value})
    assert caught.value.error_count() == 1
