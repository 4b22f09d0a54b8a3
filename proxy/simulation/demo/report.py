"""Samples and counts to the rows of the report: arithmetic alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.simulation.demo.callers import Sample
from proxy.simulation.demo.metrics import Metrics
from proxy.simulation.demo.operations import Operation

OWN_ANSWER = "the policy"
"""Who answered when an `answer` tier did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    """One kind of request as its callers saw it. Times are milliseconds of answered requests, None without any."""

    name: str
    requests: int
    ok: int
    not_ok: Mapping[str, int]
    """Reason of a refusal, or what else was wrong → how many."""
    answered_by: Mapping[tuple[int, str], int]
    """(tier, provider) → how many."""
    attempts: int
    p50: float | None
    p99: float | None
    first_byte_p50: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRow:
    """What the proxy did with one provider. `share` None: no limit; `waited_ms`: the mean, None when nobody waited."""

    name: str
    share: int | None
    peak: int
    attempts: int
    failed: int
    retries: int
    refused: Mapping[str, int]
    waited: int
    waited_ms: float | None
    input_tokens: int
    output_tokens: int


def percentile(values: Iterable[float], part: float) -> float | None:
    """Returns the smallest value that `part` (0-1) of all values do not exceed; None without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(part * len(ordered)), 1) - 1] if ordered else None


def operation_rows(samples: Sequence[Sample]) -> list[OperationRow]:
    """Returns a row for each kind of request that was sent, bursts apart and last."""
    groups = [(operation, burst) for burst in (False, True) for operation in Operation]
    found = []
    for operation, burst in groups:
        chosen = [each for each in samples if each.operation is operation and each.burst is burst]
        if chosen:
            found.append(_row(f"{operation} burst" if burst else operation.value, chosen))
    return found


def _row(name: str, samples: Sequence[Sample]) -> OperationRow:
    answered = [each for each in samples if each.ok]
    whole = [each.seconds * 1000 for each in answered]
    return OperationRow(
        name=name,
        requests=len(samples),
        ok=len(answered),
        not_ok=Counter(wrong(each) for each in samples if not each.ok),
        answered_by=Counter((each.tier, each.provider or OWN_ANSWER) for each in answered),
        attempts=sum(each.attempts for each in samples),
        p50=percentile(whole, 0.5),
        p99=percentile(whole, 0.99),
        first_byte_p50=percentile((each.first_byte_seconds * 1000 for each in answered), 0.5),
    )


def wrong(sample: Sample) -> str:
    """Returns why a request is not ok, in a word or a few."""
    return sample.reason or sample.problem or f"status {sample.status}"


def provider_rows(metrics: Metrics, peaks: Mapping[str, int]) -> list[ProviderRow]:
    """Returns a row for each provider; `peaks` is what each served at once by its own count."""
    return [_provider(name, peak, metrics) for name, peak in peaks.items()]


def _provider(name: str, peak: int, metrics: Metrics) -> ProviderRow:
    attempts = metrics.by("attempts_total", "outcome", provider=name)
    waited = metrics.total("queue_wait_seconds_count", provider=name)
    seconds = metrics.total("queue_wait_seconds_sum", provider=name)
    tokens = metrics.by("tokens_total", "direction", provider=name)
    return ProviderRow(
        name=name,
        share=round(metrics.total("permits_share", provider=name, limit="provider")) or None,
        peak=peak,
        attempts=attempts.total(),
        failed=attempts.total() - attempts["ok"],
        retries=round(metrics.total("retries_total", provider=name)),
        refused=metrics.by("refusals_total", "reason", provider=name),
        waited=round(waited),
        waited_ms=seconds / waited * 1000 if waited else None,
        input_tokens=tokens["input"],
        output_tokens=tokens["output"],
    )


def surprises(samples: Iterable[Sample]) -> Counter[str]:
    """Returns what failed although nothing in the demo should make it fail → how often."""
    return Counter(f"{each.operation}: {wrong(each)}" for each in samples if not each.expected)
