"""Which requests and events get a line, at what level, with what in it."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from proxy.exchange import Usage
from proxy.observer import (
    BreakerChanged,
    CacheUse,
    KeyChanged,
    Merged,
    Observed,
    PolicyLoaded,
    PolicyRejected,
    ProcessEvent,
    Shared,
    Sharing,
    Would,
)
from proxy.outcome import OutcomeKind, Reason
from proxy.runtime.log_format import JsonFormatter, TextFormatter
from proxy.runtime.log_line import RequestLog, chosen, level_of
from tests.otel.ended import ARRIVED_AT, TRACE_ID, a_trace, an_attempt, an_exchange

K = OutcomeKind


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sponson")


def fields(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The fields of the only line."""
    (record,) = caplog.records
    found: dict[str, Any] = record.__dict__["fields"]
    return found


def test_a_good_request(caplog: pytest.LogCaptureFixture) -> None:
    RequestLog().ended(an_exchange(an_attempt(), queued_seconds=0.0421, trace=a_trace()))
    assert fields(caplog) == {
        "request_id": "req-1",
        "route": "chat",
        "method": "POST",
        "class": "P1",
        "tenant": None,
        "status": 200,
        "outcome": "ok",
        "reason": None,
        "detail": "",
        "provider": "alpha",
        "model": "alpha-chat",
        "tier": 1,
        "key_id": "a1",
        "attempts": 1,
        "would": None,
        "cache": None,
        "shared": None,
        "merged": None,
        "queued_ms": 42.1,
        "first_byte_ms": 350.0,
        "total_ms": 625.0,
        "input_tokens": 100,
        "output_tokens": 20,
        "saved_input_tokens": None,
        "saved_output_tokens": None,
        "trace_id": f"{TRACE_ID:032x}",
        "span_id": "0000000000000051",
    }
    assert caplog.records[0].name == "sponson.request"


def test_a_refusal_has_no_provider_and_no_times_it_never_reached(caplog: pytest.LogCaptureFixture) -> None:
    refused: dict[str, Any] = {
        "kind": K.REFUSED,
        "reason": Reason.QUEUE_FULL,
        "status": 429,
        "provider": "",
        "tier": 0,
    }
    RequestLog().ended(an_exchange(first_byte_at=0.0, **refused))
    found = fields(caplog)
    assert (found["reason"], found["attempts"]) == ("queue_full", 0)
    assert all(found[name] is None for name in ("provider", "tier", "key_id", "first_byte_ms", "trace_id"))


def test_the_last_attempt_is_the_one_that_is_named(caplog: pytest.LogCaptureFixture) -> None:
    last = an_attempt(2, provider="beta", model="beta-chat", key_id="b1", kind=K.UPSTREAM_ERROR)
    RequestLog().ended(an_exchange(an_attempt(), last, provider="", kind=K.UPSTREAM_ERROR, status=503))
    found = fields(caplog)
    assert (found["provider"], found["model"], found["key_id"]) == ("beta", "beta-chat", "b1")


def test_it_tells_who_asked_in_which_class_and_whose_call_it_was(caplog: pytest.LogCaptureFixture) -> None:
    events = [(ARRIVED_AT, Shared(how=Sharing.JOINED))]
    RequestLog().ended(an_exchange(events=events, tenant="batch-7", klass="P2"))
    found = fields(caplog)
    assert (found["class"], found["tenant"], found["shared"], found["attempts"]) == ("P2", "batch-7", "joined", 0)


def test_it_tells_what_a_cache_saved(caplog: pytest.LogCaptureFixture) -> None:
    RequestLog().ended(an_exchange(cache=CacheUse.HIT, saved=Usage(100, 0)))
    found = fields(caplog)
    assert (found["cache"], found["saved_input_tokens"], found["saved_output_tokens"]) == ("hit", 100, 0)
    assert (found["attempts"], found["input_tokens"], found["shared"]) == (0, None, None)


def test_it_tells_with_how_many_a_request_travelled(caplog: pytest.LogCaptureFixture) -> None:
    merged = Merged(callers=3, inputs=5, carries=False, links=((1, 2),))
    RequestLog().ended(an_exchange(events=[(ARRIVED_AT, merged)], usage=Usage(4, 0)))
    found = fields(caplog)
    assert (found["merged"], found["input_tokens"], found["shared"]) == (3, 4, None)


def test_a_refresh_says_that_it_is_no_request(caplog: pytest.LogCaptureFixture) -> None:
    events = [(ARRIVED_AT, Shared(how=Sharing.REPLAYED, link=(1, 2)))]
    RequestLog().ended(an_exchange(an_attempt(), cache=CacheUse.REFRESH, klass="P2", events=events, status=0))
    (record,) = caplog.records
    assert (record.getMessage(), record.levelno) == ("refresh", logging.INFO)
    found = fields(caplog)
    assert (found["cache"], found["class"], found["shared"]) == ("refresh", "P2", None)
    assert (found["provider"], found["attempts"], found["output_tokens"]) == ("alpha", 1, 20)


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_both_formats_show_it(caplog: pytest.LogCaptureFixture, formatter: logging.Formatter) -> None:
    RequestLog().ended(an_exchange(cache=CacheUse.STALE, saved=Usage(100, 20)))
    line = formatter.format(caplog.records[0])
    assert re.search(r"""cache["=:]+stale""", line)
    assert re.search(r"""saved_output_tokens["=:]+20""", line)
    assert "merged" not in line


def test_what_would_have_been_done_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    woulds = (Would.BREAKER_OPEN, Would.WAIT, Would.WAIT)
    events = [(ARRIVED_AT, Observed(provider="alpha", tier=1, would=would)) for would in woulds]
    RequestLog().ended(an_exchange(an_attempt(), events=events))
    assert fields(caplog)["would"] == ["would_breaker_open", "would_wait"]


@pytest.mark.parametrize(
    ("kind", "status", "level"),
    [
        (K.OK, 200, logging.INFO),
        (K.ANSWERED, 200, logging.INFO),
        (K.CALLER_ERROR, 400, logging.INFO),
        (K.CLIENT_LEFT, 0, logging.INFO),
        (K.REFUSED, 404, logging.INFO),
        (K.REFUSED, 429, logging.WARNING),
        (K.REFUSED, 503, logging.WARNING),
        (K.UPSTREAM_ERROR, 502, logging.WARNING),
        (K.STREAM_BROKEN, 200, logging.WARNING),
        (K.CREDENTIAL_REJECTED, 502, logging.WARNING),
        (K.TOTAL_TIMEOUT, 504, logging.WARNING),
        (K.BUG, 500, logging.ERROR),
        (None, 0, logging.ERROR),
    ],
)
def test_levels(kind: OutcomeKind | None, status: int, level: int) -> None:
    assert level_of(an_exchange(kind=kind, status=status).facts) == level


def test_successes_are_sampled_and_failures_are_not(caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog(log_successes=0.0)
    log.ended(an_exchange(an_attempt()))
    log.ended(an_exchange(kind=K.ANSWERED))
    assert caplog.records == []
    log.ended(an_exchange(kind=K.CALLER_ERROR, status=400))
    assert len(caplog.records) == 1
    log.log_successes = 1.0
    log.ended(an_exchange(an_attempt()))
    assert len(caplog.records) == 2


def test_the_choice_is_the_traces_own_or_the_request_ids() -> None:
    low, high = (an_exchange(trace=a_trace(trace_id=n)).facts for n in (1 << 64 | 5, (1 << 64) - 5))
    assert chosen(low, 0.01)
    assert not chosen(high, 0.99)
    assert chosen(high, 1.0)
    untraced = [an_exchange(trace=None, request_id=f"r{n}").facts for n in range(2000)]
    picked = [facts for facts in untraced if chosen(facts, 0.25)]
    assert 350 < len(picked) < 650
    assert [facts for facts in untraced if chosen(facts, 0.25)] == picked


def test_nothing_is_built_when_the_level_is_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="sponson")
    log = RequestLog()
    log.ended(an_exchange(an_attempt()))
    assert caplog.records == []
    log.ended(an_exchange(kind=K.BUG, status=500))
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("event", "level", "message", "expected"),
    [
        (
            BreakerChanged(provider="alpha", model="m", old="closed", new="open", why="ratio", open_seconds=30),
            logging.WARNING,
            "breaker open",
            {"provider": "alpha", "was": "closed", "why": "ratio", "open_seconds": 30},
        ),
        (
            BreakerChanged(provider="alpha", model="m", old="half_open", new="closed", why="probes"),
            logging.INFO,
            "breaker closed",
            {"open_seconds": None},
        ),
        (
            KeyChanged(provider="alpha", key_id="a1", state="resting", seconds=60),
            logging.WARNING,
            "key resting",
            {"key_id": "a1", "seconds": 60},
        ),
        (KeyChanged(provider="alpha", key_id="a1", state="usable"), logging.INFO, "key usable", {}),
        (
            PolicyLoaded(revision=2, digest="d", seconds=0.0123),
            logging.INFO,
            "policy loaded",
            {"took_ms": 12.3},
        ),
        (
            PolicyRejected(digest="d", problems=("p.yaml:1:2: x: y",)),
            logging.ERROR,
            "policy rejected; the last good one stays",
            {"problems": ["p.yaml:1:2: x: y"]},
        ),
    ],
)
def test_events_of_the_process(
    caplog: pytest.LogCaptureFixture, event: ProcessEvent, level: int, message: str, expected: dict[str, Any]
) -> None:
    RequestLog().happened(event)
    assert expected.items() <= fields(caplog).items()
    (record,) = caplog.records
    assert (record.name, record.levelno, record.getMessage()) == ("sponson.process", level, message)
