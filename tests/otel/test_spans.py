"""Spans of ended requests: ids, parents, times, names, attributes, status."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from otel.spans import Spans
from proxy.exchange import Exchange, Usage
from proxy.observer import (
    CacheUse,
    FellBack,
    Observed,
    PolicyLoaded,
    Refused,
    Retried,
    Shared,
    Sharing,
    Waited,
    Would,
)
from proxy.outcome import OutcomeKind, Reason
from proxy.trace_context import TraceContext
from tests.otel.ended import ARRIVED_AT, ARRIVED_NS, TRACE_ID, a_trace, an_attempt, an_exchange


class Kept(SpanProcessor):
    """Keeps what is handed over."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def spans_of(exchange: Exchange, kind: SpanKind = SpanKind.SERVER) -> tuple[ReadableSpan, list[ReadableSpan]]:
    """The span of a sampled request, which is of this kind, and the client spans."""
    if exchange.facts.trace is not None and not exchange.facts.trace.sampled:
        exchange.facts.trace = a_trace()
    kept = Kept()
    Spans([kept], resource=Resource({"service.name": "sponson"})).ended(exchange)
    servers = [span for span in kept.spans if span.kind is kind]
    assert len(servers) == 1
    return servers[0], [span for span in kept.spans if span.kind is SpanKind.CLIENT]


def attributes(span: ReadableSpan) -> dict[str, object]:
    assert span.attributes is not None
    return dict(span.attributes)


def ids(span: ReadableSpan) -> tuple[int, int, int]:
    """Trace, own and parent's id; 0 for no parent."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id, span.parent.span_id if span.parent else 0


def test_ids_parents_and_times() -> None:
    server, (first, second) = spans_of(an_exchange(an_attempt(1), an_attempt(2)))
    assert ids(server) == (TRACE_ID, 0x51, 0xF067AA0BA902B7)
    assert server.parent is not None
    assert server.parent.is_remote
    assert ids(first) == (TRACE_ID, 0xA1, 0x51)
    assert ids(second) == (TRACE_ID, 0xA2, 0x51)
    assert (server.start_time, server.end_time) == (ARRIVED_NS, ARRIVED_NS + 625_000_000)
    assert first.start_time == pytest.approx(ARRIVED_NS + 100_000_000, abs=1000)
    assert first.end_time == pytest.approx(ARRIVED_NS + 600_000_000, abs=1000)


def test_a_trace_that_began_here_has_no_parent() -> None:
    server, _ = spans_of(an_exchange(trace=a_trace(parent=0)))
    assert server.parent is None


def test_names_and_attributes() -> None:
    server, (client,) = spans_of(an_exchange(an_attempt(), stream=True))
    assert (server.name, client.name) == ("POST chat", "chat alpha-chat")
    assert attributes(server) == {
        "http.request.method": "POST",
        "http.route": "chat",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "sponson.request_id": "req-1",
        "sponson.class": "P1",
        "sponson.tenant": "default",
        "sponson.outcome": "ok",
        "sponson.attempts": 1,
        "sponson.provider": "alpha",
        "sponson.tier": 1,
        "sponson.requested_model": "gpt-x",
    }
    found = attributes(client)
    assert found.pop("gen_ai.response.time_to_first_chunk") == pytest.approx(0.25)
    assert found == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "api.alpha.example",
        "server.port": 443,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "alpha",
        "gen_ai.request.model": "alpha-chat",
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "sponson.provider": "alpha",
        "sponson.model": "alpha-chat",
        "sponson.key_id": "a1",
        "sponson.tier": 1,
        "sponson.attempt": 1,
        "sponson.outcome": "ok",
    }


def test_resends_are_counted_from_the_second_attempt_on() -> None:
    _, clients = spans_of(an_exchange(an_attempt(1), an_attempt(2), an_attempt(3)))
    assert [attributes(span).get("http.request.resend_count") for span in clients] == [None, 1, 2]


def test_a_fallback_that_succeeds_leaves_the_server_span_unset() -> None:
    failed = an_attempt(1, kind=OutcomeKind.UPSTREAM_ERROR, status=503, usage=None)
    server, (first, second) = spans_of(an_exchange(failed, an_attempt(2, tier=2, provider="beta")))
    assert server.status.status_code is second.status.status_code is StatusCode.UNSET
    assert first.status.status_code is StatusCode.ERROR
    assert first.status.description is None
    assert attributes(first)["error.type"] == "503"
    assert "error.type" not in attributes(server) | attributes(second)


def test_our_own_429_is_no_error_and_our_503_is_one() -> None:
    queue_full, refused = Reason.QUEUE_FULL, OutcomeKind.REFUSED
    server, clients = spans_of(an_exchange(status=429, kind=refused, reason=queue_full, tier=0))
    assert clients == []
    assert server.status.status_code is StatusCode.UNSET
    assert attributes(server)["sponson.reason"] == "queue_full"
    server, _ = spans_of(an_exchange(status=503, kind=refused, reason=queue_full, tier=0))
    assert server.status.status_code is StatusCode.ERROR
    assert attributes(server)["error.type"] == "503"


def test_a_break_after_the_head_is_an_error_in_spite_of_the_status() -> None:
    broken = an_attempt(kind=OutcomeKind.STREAM_BROKEN)
    server, (client,) = spans_of(an_exchange(broken, kind=OutcomeKind.STREAM_BROKEN))
    for span in (server, client):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "stream_broken"
        assert attributes(span)["http.response.status_code"] == 200


def test_a_caller_that_leaves_is_no_error() -> None:
    left = an_attempt(kind=OutcomeKind.CLIENT_LEFT)
    server, clients = spans_of(an_exchange(left, kind=OutcomeKind.CLIENT_LEFT))
    for span in (server, *clients):
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in attributes(span)


def test_events_stand_on_the_server_span_at_their_times() -> None:
    events = [
        (ARRIVED_AT + 0.05, Waited(provider="alpha", seconds=0.05, lacking="permit")),
        (ARRIVED_AT + 0.06, Refused(provider="alpha", tier=1, reason=Reason.BREAKER_OPEN)),
        (ARRIVED_AT + 0.07, FellBack(from_tier=1, to_tier=2, after=OutcomeKind.REFUSED, reason=None)),
        (
            ARRIVED_AT + 0.08,
            Retried(provider="beta", tier=2, after=OutcomeKind.UPSTREAM_ERROR, delay=0.5, other_key=False),
        ),
        (ARRIVED_AT + 0.09, Observed(provider="beta", tier=2, would=Would.QUEUE_FULL)),
        (ARRIVED_AT + 0.10, Shared(how=Sharing.REPLAYED)),
    ]
    server, _ = spans_of(an_exchange(an_attempt(), events=events))
    assert [event.name for event in server.events] == [
        "sponson.waited",
        "sponson.refused",
        "sponson.fell_back",
        "sponson.retried",
        "sponson.observed",
        "sponson.shared",
    ]
    assert server.events[0].timestamp == pytest.approx(ARRIVED_NS + 50_000_000, abs=1000)
    assert dict(server.events[1].attributes or {}) == {
        "sponson.provider": "alpha",
        "sponson.tier": 1,
        "sponson.reason": "breaker_open",
    }
    assert "sponson.reason" not in (server.events[2].attributes or {})
    assert (server.events[3].attributes or {})["sponson.seconds"] == 0.5
    assert dict(server.events[4].attributes or {}) == {
        "sponson.provider": "beta",
        "sponson.tier": 2,
        "sponson.reason": "would_queue_full",
    }


def test_nothing_is_built_for_what_is_not_sampled() -> None:
    kept = Kept()
    spans = Spans([kept], resource=Resource({}))
    spans.ended(an_exchange(an_attempt(), trace=a_trace(sampled=False)))
    spans.ended(an_exchange(an_attempt(), trace=None))
    spans.happened(PolicyLoaded(revision=1, digest="d", seconds=0.1))
    assert kept.spans == []


def test_queries_and_passwords_stay_out() -> None:
    for target in ("/v1/models?key=SECRET", "http://u:SECRET@api.example/v1/models"):
        server, clients = spans_of(an_exchange(an_attempt(), target=target))
        assert b"SECRET" not in encode_spans([server, *clients]).SerializeToString()


def test_bytes_that_are_no_utf8_do_not_break_the_export() -> None:
    odd = "\udcff" * 1000
    exchange = an_exchange(
        an_attempt(model=odd, address=(odd, 1)),
        method=odd,
        target="/" + odd,
        route=odd,
        requested_model=odd,
        tenant=odd,
        request_id=odd,
    )
    server, clients = spans_of(exchange)
    assert len(encode_spans([server, *clients]).SerializeToString()) < 10_000
    assert server.name.startswith("HTTP ?")


def test_other_calls_are_named_by_their_method() -> None:
    server, (client,) = spans_of(an_exchange(an_attempt(usage=None), method="GET", operation="", route=""))
    assert (server.name, client.name) == ("GET", "GET")
    assert not any(name.startswith("gen_ai.") for name in attributes(client))


def test_an_attempt_without_an_id_of_its_own_gets_one() -> None:
    _, clients = spans_of(an_exchange(an_attempt(span_id=0), an_attempt(span_id=0)))
    assert len({ids(span)[1] for span in clients} | {0, 0x51}) == 4


def test_the_part_of_a_cache_and_the_tokens_that_it_saved_are_told() -> None:
    hit, clients = spans_of(an_exchange(cache=CacheUse.HIT, saved=Usage(100, 20)))
    assert clients == []
    assert {name: value for name, value in attributes(hit).items() if "cache" in name or "token" in name} == {
        "sponson.cache": "hit",
        "sponson.saved.input_tokens": 100,
        "sponson.saved.output_tokens": 20,
    }
    miss, _ = spans_of(an_exchange(an_attempt(), cache=CacheUse.MISS))
    assert attributes(miss)["sponson.cache"] == "miss"
    plain, _ = spans_of(an_exchange(an_attempt()))
    assert "sponson.cache" not in attributes(plain)


def test_a_saved_answer_without_tokens_tells_so() -> None:
    hit, _ = spans_of(an_exchange(cache=CacheUse.HIT, saved=Usage(0, 0)))
    assert attributes(hit)["sponson.saved.output_tokens"] == 0


def test_a_follower_links_to_the_request_whose_call_it_shares() -> None:
    joined = (ARRIVED_AT, Shared(how=Sharing.JOINED, link=(0xABC, 0xDEF)))
    follower, _ = spans_of(an_exchange(cache=CacheUse.SHARED, events=[joined]))
    assert [(link.context.trace_id, link.context.span_id) for link in follower.links] == [(0xABC, 0xDEF)]
    assert [event.name for event in follower.events] == ["sponson.shared"]
    (sent,) = encode_spans([follower]).resource_spans[0].scope_spans[0].spans
    assert [link.span_id for link in sent.links] == [(0xDEF).to_bytes(8, "big")]


def test_a_refresh_is_a_span_of_its_own_that_is_nobodys_request() -> None:
    asked = a_trace()
    trace = TraceContext(
        trace_id=TRACE_ID, span_id=0x52, parent_span_id=asked.span_id, sampled=True, tracestate="", remote=False
    )
    events = [
        (ARRIVED_AT, Shared(how=Sharing.REPLAYED, link=(TRACE_ID, asked.span_id))),
        (ARRIVED_AT, Waited(provider="alpha", seconds=0.05, lacking="permit")),
    ]
    exchange = an_exchange(an_attempt(), cache=CacheUse.REFRESH, klass="P2", trace=trace, events=events, status=0)
    refresh, (client,) = spans_of(exchange, SpanKind.INTERNAL)
    assert (refresh.name, refresh.status.status_code) == ("refresh chat", StatusCode.UNSET)
    assert ids(refresh) == (TRACE_ID, 0x52, 0x51)
    assert ids(client) == (TRACE_ID, 0xA1, 0x52)
    assert [(link.context.trace_id, link.context.span_id) for link in refresh.links] == [(TRACE_ID, 0x51)]
    assert [event.name for event in refresh.events] == ["sponson.waited"]
    found = attributes(refresh)
    assert (found["sponson.cache"], found["sponson.route"], found["sponson.class"]) == ("refresh", "chat", "P2")
    assert not any(name.startswith(("http.", "url.")) for name in found)


def test_a_refresh_that_fails_is_an_error() -> None:
    failed = an_attempt(kind=OutcomeKind.UPSTREAM_ERROR, status=503, usage=None)
    exchange = an_exchange(failed, cache=CacheUse.REFRESH, kind=OutcomeKind.UPSTREAM_ERROR, status=0)
    refresh, _ = spans_of(exchange, SpanKind.INTERNAL)
    assert refresh.status.status_code is StatusCode.ERROR
    assert attributes(refresh)["error.type"] == "upstream_error"
