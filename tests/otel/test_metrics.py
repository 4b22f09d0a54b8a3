"""What counts where."""

from __future__ import annotations

from typing import Any

import pytest

from otel import attributes as a
from otel.metrics import Metrics
from otel.series import Distribution
from proxy.exchange import Usage
from proxy.observer import (
    BreakerChanged,
    CacheUse,
    FellBack,
    KeyChanged,
    Observed,
    PolicyLoaded,
    PolicyRejected,
    Refused,
    Retried,
    Shared,
    Sharing,
    Waited,
    Would,
)
from proxy.outcome import OutcomeKind, Reason
from tests.otel.ended import ARRIVED_AT, an_attempt, an_exchange


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(a.GENAI_1_41, wall_ns=lambda: 5_000_000_000)


def found(metrics: Metrics, name: str) -> list[tuple[tuple[str, ...], Any]]:
    """Labels and value of each series; of a histogram the count and the sum."""
    for row, series in metrics.instruments.collect(()):
        if row.name == name:
            return [
                (s.labels, (sum(s.counts), pytest.approx(s.sum)) if isinstance(s, Distribution) else s.value)
                for s in series
            ]
    return []


def test_a_good_request(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.ended(an_exchange(an_attempt()))
    call = ("chat", "alpha", "alpha-chat", "api.alpha.example", "443", "alpha")
    assert found(metrics, a.REQUESTS) == [(("chat", "P1", "alpha-chat", "ok", ""), 3)]
    assert found(metrics, a.HTTP_DURATION) == [(("POST", "http", "chat", "200", ""), (3, 3 * 0.625))]
    assert found(metrics, a.ATTEMPTS_ENDED) == [(("alpha", "alpha-chat", "a1", "ok"), 3)]
    assert found(metrics, "gen_ai.client.operation.duration") == [((*call, ""), (3, 1.5))]
    assert found(metrics, "gen_ai.client.token.usage") == [
        ((*call, "input"), (3, 300.0)),
        ((*call, "output"), (3, 60.0)),
    ]
    assert found(metrics, a.TOKENS) == [
        (("alpha", "alpha-chat", "input", "false"), 300),
        (("alpha", "alpha-chat", "output", "false"), 60),
        (("alpha", "alpha-chat", "cached_input", "false"), 120),
    ]


def test_the_time_to_the_first_chunk_is_measured_on_streams_only(metrics: Metrics) -> None:
    metrics.ended(an_exchange(an_attempt()))
    name = "gen_ai.client.operation.time_to_first_chunk"
    assert found(metrics, name)[0][1] == (0, 0.0)
    metrics.ended(an_exchange(an_attempt(), stream=True))
    assert found(metrics, name)[0][1] == (1, 0.25)
    metrics.ended(an_exchange(an_attempt(first_content_at=0.0), stream=True))
    assert found(metrics, name)[0][1] == (1, 0.25)


def test_a_failed_attempt_counts_its_tokens_but_no_call_of_that_size(metrics: Metrics) -> None:
    broken = an_attempt(kind=OutcomeKind.STREAM_BROKEN, usage=Usage(7, 3))
    metrics.ended(an_exchange(broken, kind=OutcomeKind.STREAM_BROKEN))
    assert found(metrics, "gen_ai.client.token.usage") == []
    assert [value for _, value in found(metrics, a.TOKENS)] == [7, 3, 0]
    assert [labels[-1] for labels, _ in found(metrics, "gen_ai.client.operation.duration")] == ["stream_broken"]
    assert [labels[-1] for labels, _ in found(metrics, a.HTTP_DURATION)] == ["stream_broken"]


def test_estimated_tokens_are_kept_apart(metrics: Metrics) -> None:
    metrics.ended(an_exchange(an_attempt(usage=Usage(5, 1, estimated=True))))
    assert found(metrics, "gen_ai.client.token.usage") == []
    assert {(labels[2], labels[3]): value for labels, value in found(metrics, a.TOKENS)} == {
        ("input", "true"): 5,
        ("output", "true"): 1,
        ("cached_input", "true"): 0,
    }
    metrics.ended(an_exchange(an_attempt(usage=Usage(8, 2))))
    assert {labels[3] for labels, _ in found(metrics, a.TOKENS)} == {"true", "false"}


def test_the_newest_names_have_totals_and_a_histogram_for_each_direction() -> None:
    metrics = Metrics(a.GENAI_LATEST, wall_ns=lambda: 0)
    metrics.ended(an_exchange(an_attempt()))
    assert found(metrics, "gen_ai.client.token.usage") == []
    prefix = "gen_ai.client.inference"
    assert found(metrics, f"{prefix}.duration")[0][1] == (1, 0.5)
    assert found(metrics, f"{prefix}.operation.input_tokens")[0][1] == (1, 100.0)
    assert found(metrics, f"{prefix}.usage.output_tokens")[0][1] == 20
    assert found(metrics, f"{prefix}.usage.cache_read.input_tokens")[0][1] == 40


def test_a_call_that_is_no_genai_operation_counts_as_http_only(metrics: Metrics) -> None:
    metrics.ended(an_exchange(an_attempt(usage=None), operation=""))
    assert found(metrics, a.ATTEMPTS_ENDED)[0][1] == 1
    assert found(metrics, "gen_ai.client.operation.duration") == []


def test_an_attempt_that_never_reached_the_wire_has_no_duration(metrics: Metrics) -> None:
    lost = an_attempt(started_at=0.0, kind=OutcomeKind.CLIENT_LEFT, usage=None)
    metrics.ended(an_exchange(lost, kind=OutcomeKind.CLIENT_LEFT, status=0))
    assert found(metrics, a.ATTEMPTS_ENDED) == [(("alpha", "alpha-chat", "a1", "client_left"), 1)]
    assert found(metrics, "gen_ai.client.operation.duration")[0][1] == (0, 0.0)


def test_callers_cannot_invent_labels(metrics: Metrics) -> None:
    for n in range(50):
        metrics.ended(an_exchange(method=f"X{n}", requested_model=f"m{n}", tenant=f"t{n}", request_id=str(n)))
    assert found(metrics, a.HTTP_DURATION) == [(("_OTHER", "http", "chat", "200", ""), (50, 50 * 0.625))]


def test_unlimited_combinations_are_kept_within_bounds(metrics: Metrics) -> None:
    for n in range(9000):
        metrics.ended(an_exchange(an_attempt(model=f"m{n}", usage=None), status=n))
    assert len(found(metrics, a.HTTP_DURATION)) == len(found(metrics, a.ATTEMPTS_ENDED)) == 1001
    assert sum(value for _, value in found(metrics, a.ATTEMPTS_ENDED)) == 9000
    assert len(metrics._requests) <= 4096
    assert len(metrics._calls) <= 4096


def test_events_of_a_request(metrics: Metrics) -> None:
    events = [
        Waited(provider="alpha", seconds=0.2, lacking="permit"),
        Refused(provider="alpha", tier=1, reason=Reason.QUEUE_TIMEOUT),
        FellBack(from_tier=1, to_tier=2, after=OutcomeKind.REFUSED, reason=Reason.QUEUE_TIMEOUT),
        Retried(provider="beta", tier=2, after=OutcomeKind.UPSTREAM_ERROR, delay=0.1, other_key=False),
        Retried(provider="beta", tier=2, after=OutcomeKind.RATE_LIMITED, delay=0.0, other_key=True),
        Shared(how=Sharing.JOINED),
    ]
    metrics.ended(an_exchange(an_attempt(), events=[(ARRIVED_AT, event) for event in events]))
    assert found(metrics, a.QUEUE_WAIT) == [(("alpha", "P1", "permit"), (1, 0.2))]
    assert found(metrics, a.REFUSALS) == [(("chat", "alpha", "queue_timeout", "enforce"), 1)]
    assert found(metrics, a.FALLBACKS) == [(("chat", "1", "2", "refused", "queue_timeout"), 1)]
    assert found(metrics, a.RETRIES) == [
        (("beta", "upstream_error", "false"), 1),
        (("beta", "rate_limited", "true"), 1),
    ]


def test_a_refresh_counts_what_it_spends_but_is_nobodys_request(metrics: Metrics) -> None:
    events = [
        (ARRIVED_AT, Shared(how=Sharing.REPLAYED, link=(1, 2))),
        (ARRIVED_AT, Waited(provider="alpha", seconds=0.2, lacking="permit")),
    ]
    metrics.ended(an_exchange(an_attempt(), cache=CacheUse.REFRESH, klass="P2", events=events))
    assert found(metrics, a.REQUESTS) == found(metrics, a.HTTP_DURATION) == []
    assert found(metrics, a.ATTEMPTS_ENDED) == [(("alpha", "alpha-chat", "a1", "ok"), 1)]
    assert [value for _, value in found(metrics, a.TOKENS)] == [100, 20, 40]
    assert found(metrics, a.QUEUE_WAIT) == [(("alpha", "P2", "permit"), (1, 0.2))]
    assert found(metrics, a.CACHE_REFRESHES) == [(("chat", "ok"), 1)]
    assert found(metrics, a.SAVED_CALLS) == []


def test_a_refused_refresh_is_no_refusal_of_a_caller(metrics: Metrics) -> None:
    refused: dict[str, Any] = {"kind": OutcomeKind.REFUSED, "reason": Reason.QUEUE_FULL}
    metrics.ended(an_exchange(cache=CacheUse.REFRESH, **refused))
    assert found(metrics, a.REFUSALS) == []
    assert found(metrics, a.CACHE_REFRESHES) == [(("chat", "refused"), 1)]


def test_a_hit_is_a_request_that_spent_nothing(metrics: Metrics) -> None:
    metrics.ended(an_exchange(cache=CacheUse.HIT, saved=Usage(100, 20)))
    assert found(metrics, a.REQUESTS) == [(("chat", "P1", "alpha-chat", "ok", ""), 1)]
    assert found(metrics, a.TOKENS) == found(metrics, "gen_ai.client.token.usage") == []
    assert found(metrics, a.CACHE_REQUESTS) == [(("chat", "hit"), 1)]
    assert found(metrics, a.SAVED_CALLS) == [(("chat", "hit"), 1)]


def test_what_would_have_been_held_back_counts_by_its_kind(metrics: Metrics) -> None:
    events = [
        (ARRIVED_AT, Observed(provider="alpha", tier=1, would=Would.BREAKER_OPEN)),
        (ARRIVED_AT, Observed(provider="alpha", tier=1, would=Would.WAIT)),
        (ARRIVED_AT, Observed(provider="beta", tier=2, would=Would.WAIT)),
    ]
    for _ in range(2):
        metrics.ended(an_exchange(an_attempt(), events=events))
    assert found(metrics, a.OBSERVED) == [
        (("chat", "alpha", "would_breaker_open"), 2),
        (("chat", "alpha", "would_wait"), 2),
        (("chat", "beta", "would_wait"), 2),
    ]
    assert found(metrics, a.REFUSALS) == [(("chat", "alpha", "breaker_open", "observe"), 2)]


def test_a_refusal_counts_once_whether_or_not_a_tier_told_it(metrics: Metrics) -> None:
    told = [(ARRIVED_AT, Refused(provider="alpha", tier=1, reason=Reason.QUEUE_FULL))]
    refused: dict[str, Any] = {"kind": OutcomeKind.REFUSED, "status": 429, "reason": Reason.QUEUE_FULL}
    metrics.ended(an_exchange(events=told, **refused))
    metrics.ended(an_exchange(kind=OutcomeKind.REFUSED, status=404, reason=Reason.NO_ROUTE, route=""))
    assert found(metrics, a.REFUSALS) == [
        (("chat", "alpha", "queue_full", "enforce"), 1),
        (("", "", "no_route", "enforce"), 1),
    ]


def test_events_of_the_process(metrics: Metrics) -> None:
    metrics.happened(PolicyLoaded(revision=4, digest="d", seconds=0.1))
    assert found(metrics, a.POLICY_REVISION) == [((), 4)]
    assert found(metrics, a.POLICY_LOADED) == [((), 5.0)]
    assert found(metrics, a.POLICY_CURRENT) == [((), 1)]
    metrics.happened(PolicyRejected(digest="e", problems=("p.yaml:1:1: x",)))
    metrics.happened(BreakerChanged(provider="alpha", model="m", old="closed", new="open", why="ratio"))
    metrics.happened(KeyChanged(provider="alpha", key_id="a1", state="resting", seconds=60))
    assert found(metrics, a.POLICY_REVISION) == [((), 4)]
    assert found(metrics, a.POLICY_CURRENT) == [((), 0)]
    assert found(metrics, a.POLICY_RELOADS) == [(("loaded",), 1), (("rejected",), 1)]
    assert found(metrics, a.BREAKER_CHANGES) == [(("alpha", "m", "open", "ratio"), 1)]
    assert found(metrics, a.KEY_CHANGES) == [(("alpha", "a1", "resting"), 1)]


def test_every_refusal_that_observing_spared_a_call_has_the_reason_that_it_would_have_had() -> None:
    spared = {would.removeprefix("would_") for would in Would if would is not Would.WAIT}
    assert spared <= {str(reason) for reason in Reason}
