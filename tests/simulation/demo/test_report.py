"""The arithmetic of the report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.demo.callers import Sample
from proxy.simulation.demo.metrics import Metrics
from proxy.simulation.demo.operations import Operation
from proxy.simulation.demo.report import operation_rows, percentile, provider_rows, surprises, wrong


def answered(milliseconds: float, *, tier: int = 1, provider: str = "alpha", attempts: int = 1) -> Sample:
    return Sample(
        operation=Operation.CHAT,
        status=200,
        ok=True,
        tier=tier,
        provider=provider,
        attempts=attempts,
        first_byte_seconds=milliseconds / 2000,
        seconds=milliseconds / 1000,
    )


def test_percentiles_of_known_values() -> None:
    hundred = range(1, 101)
    assert percentile(hundred, 0.5) == 50
    assert percentile(hundred, 0.99) == 99
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([], 0.5) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_a_value_that_the_part_does_not_exceed(values: list[float], part: float) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values) - 1e-9
    assert sum(value < found for value in values) < part * len(values)


def test_a_row_counts_what_the_callers_of_an_operation_saw() -> None:
    samples = [
        answered(100),
        answered(300, tier=2, provider="beta", attempts=3),
        answered(10, tier=3, provider="", attempts=0),
        Sample(operation=Operation.CHAT, status=429, reason="queue_full", seconds=0.001),
        Sample(operation=Operation.CHAT, status=500, provider="beta", attempts=2, seconds=9.0),
    ]
    (row,) = operation_rows(samples)
    assert (row.name, row.requests, row.ok, row.attempts) == ("chat", 5, 3, 6)
    assert row.answered_by == {(1, "alpha"): 1, (2, "beta"): 1, (3, "the policy"): 1}
    assert row.not_ok == {"queue_full": 1, "status 500": 1}
    assert row.p50 == pytest.approx(100), "of answered requests alone"
    assert row.p99 == pytest.approx(300)
    assert row.first_byte_p50 == pytest.approx(50)


def test_bursts_have_rows_of_their_own_after_the_others() -> None:
    samples = [
        Sample(operation=Operation.CHAT, burst=True, ok=True),
        Sample(operation=Operation.MESSAGES, ok=True),
        Sample(operation=Operation.CHAT, ok=True),
    ]
    assert [row.name for row in operation_rows(samples)] == ["chat", "messages", "chat burst"]


def test_an_operation_without_answers_has_no_times() -> None:
    (row,) = operation_rows([Sample(operation=Operation.CHAT, problem="ServerDisconnectedError")])
    assert (row.p50, row.p99, row.first_byte_p50) == (None, None, None)


METRICS = """
# HELP sponson_attempts_total Upstream calls that ended.
sponson_attempts_total{sponson_model="m",sponson_outcome="ok",sponson_provider="alpha"} 7.0
sponson_attempts_total{sponson_model="n",sponson_outcome="ok",sponson_provider="alpha"} 1.0
sponson_attempts_total{sponson_model="m",sponson_outcome="upstream_error",sponson_provider="alpha"} 3.0
sponson_attempts_total{sponson_model="m",sponson_outcome="ok",sponson_provider="beta"} 100.0
sponson_retries_total{sponson_outcome="upstream_error",sponson_provider="alpha"} 2.0
sponson_refusals_total{sponson_provider="alpha",sponson_reason="breaker_open",sponson_route="chat"} 5.0
sponson_refusals_total{sponson_provider="alpha",sponson_reason="breaker_open",sponson_route="x"} 1.0
sponson_queue_wait_seconds_count{sponson_class="P1",sponson_lacking="permit",sponson_provider="alpha"} 4.0
sponson_queue_wait_seconds_sum{sponson_class="P1",sponson_lacking="permit",sponson_provider="alpha"} 1.0
sponson_tokens_total{sponson_direction="input",sponson_model="m",sponson_provider="alpha"} 40.0
sponson_tokens_total{sponson_direction="output",sponson_model="m",sponson_provider="alpha"} 20.0
sponson_permits_share{sponson_limit="provider",sponson_provider="alpha"} 16.0
sponson_permits_share{sponson_limit="connections",sponson_provider="alpha"} 100.0
"""


def test_a_provider_s_row_sums_its_metrics() -> None:
    alpha, beta = provider_rows(Metrics(METRICS), {"alpha": 15, "beta": 2})
    assert (alpha.name, alpha.share, alpha.peak) == ("alpha", 16, 15)
    assert (alpha.attempts, alpha.failed, alpha.retries) == (11, 3, 2)
    assert alpha.refused == {"breaker_open": 6}
    assert alpha.waited == 4
    assert alpha.waited_ms == pytest.approx(250)
    assert (alpha.input_tokens, alpha.output_tokens) == (40, 20)
    assert (beta.share, beta.attempts, beta.failed, beta.waited_ms) == (None, 100, 0, None)


def test_only_a_burst_may_be_refused_for_want_of_a_place() -> None:
    refused = Sample(operation=Operation.CHAT, status=429, reason="queue_full")
    in_burst = Sample(operation=Operation.CHAT, status=429, reason="queue_timeout", burst=True)
    other = Sample(operation=Operation.CHAT, status=503, reason="breaker_open", burst=True)
    assert surprises([refused, in_burst, other, answered(1)]) == {"chat: queue_full": 1, "chat: breaker_open": 1}


def test_what_was_wrong_is_said_by_the_proxy_else_by_the_caller() -> None:
    assert wrong(Sample(operation=Operation.CHAT, status=429, reason="queue_full")) == "queue_full"
    assert wrong(Sample(operation=Operation.CHAT, problem="TimeoutError")) == "TimeoutError"
    assert wrong(Sample(operation=Operation.CHAT, status=500)) == "status 500"
