"""/metrics, read back with Prometheus' own parser."""

from __future__ import annotations

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from otel import attributes as a
from otel.metrics import Metrics
from otel.prometheus import Exposition
from proxy.observer import Reading
from tests.otel.ended import an_attempt, an_exchange


def scrape(metrics: Metrics, *readings: Reading) -> dict[str, Metric]:
    content_type, body = Exposition(metrics.instruments, lambda: readings).render()
    assert content_type.startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def test_names_kinds_and_values() -> None:
    metrics = Metrics(a.GENAI_1_41, wall_ns=lambda: 0)
    metrics.ended(an_exchange(an_attempt()))
    families = scrape(metrics, Reading(a.PERMITS_USED, 7, (("provider", "alpha"), ("limit", "provider"))))
    requests = families["sponson_requests"]
    assert (requests.type, requests.samples[0].name) == ("counter", "sponson_requests_total")
    assert requests.samples[0].labels["sponson_route"] == "chat"
    assert requests.samples[0].value == 1
    (permits,) = families["sponson_permits_used"].samples
    assert (families["sponson_permits_used"].type, permits.value) == ("gauge", 7)
    assert permits.labels["sponson_provider"] == "alpha"
    assert families["gen_ai_client_token_usage"].type == "histogram"


def test_a_histogram_is_cumulative_and_whole() -> None:
    metrics = Metrics(a.GENAI_1_41, wall_ns=lambda: 0)
    for _ in range(4):
        metrics.ended(an_exchange(an_attempt()))
    samples = scrape(metrics)["http_server_request_duration_seconds"].samples
    buckets = {float(s.labels["le"]): s.value for s in samples if s.name.endswith("_bucket")}
    assert buckets[0.5] == 0
    assert buckets[0.75] == buckets[float("inf")] == 4
    assert next(s.value for s in samples if s.name.endswith("_count")) == 4
    assert next(s.value for s in samples if s.name.endswith("_sum")) == pytest.approx(2.5)


def test_labels_with_odd_characters_survive() -> None:
    metrics = Metrics(a.GENAI_1_41, wall_ns=lambda: 0)
    for route in ('a"b\\c\nd', "\udcff", "é"):
        metrics.ended(an_exchange(route=route))
    routes = [s.labels["sponson_route"] for s in scrape(metrics)["sponson_requests"].samples]
    assert routes == ['a"b\\c\nd', "?", "é"]


def test_nothing_counted_is_an_empty_page() -> None:
    assert scrape(Metrics(a.GENAI_1_41, wall_ns=lambda: 0)) == {}
