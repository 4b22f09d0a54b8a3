"""Metering: what an attempt's end says to the cores that count."""

from __future__ import annotations

import pytest

from proxy.decisions.adaptive import AdaptiveLimit, AdaptiveSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.estimates import Estimates
from proxy.decisions.lanes import LaneSettings
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.quota import Bucket
from proxy.dialects.lookup import operation_of
from proxy.dialects.rate_limits import RateLimits
from proxy.exchange import Exchange, Usage
from proxy.outcome import Outcome, OutcomeKind
from proxy.stages.metering import Adapting, Lanes, Meter, take_hints
from tests.decisions.waiting_room import NOW, a_bucket, a_key, a_line, a_ring, a_room
from tests.fakes import Ask, answered, make_exchange, with_attempt
from tests.stages.world import failed, unanswered

LATER = NOW + 60.0
"""All buckets are full by then."""
FULL = 50.0


def chat(**fields: object) -> Exchange:
    """A chat that is understood."""
    exchange = make_exchange(Ask(body=b'{"model":"m1","messages":[]}'))
    exchange.operation = operation_of("/v1/chat/completions")
    exchange.document = {"model": "m1", "messages": [], **fields}
    return exchange


def permit_of(*, keys: int = 1, own: bool = False, shared: int = 0) -> tuple[Permit, list[Bucket], list[Bucket]]:
    """A permit with the first key; returns the key's own bucket of requests, and those that all keys share."""
    ring = a_ring(*(a_key(str(number)) for number in range(keys)))
    mine = [a_bucket(600.0)] if own else []
    ring.keys[0].reconfigure(weight=1.0, places=None, requests=tuple(mine))
    wide = [a_bucket(600.0) for _ in range(shared)]
    line = a_line(a_room(), ring=ring, requests=tuple(wide))
    return Permit(line, ring.keys[0], LATER, lambda permit, now: None), mine, wide


def hear(permit: Permit, remaining: int) -> None:
    """An answer says how many requests are left of its key."""
    exchange = chat()
    with_attempt(exchange).rates = said = RateLimits()
    said.on_requests(1000, remaining, None)
    take_hints(permit, exchange, LATER, instances=1)


def levels(buckets: list[Bucket]) -> list[float]:
    return [round(bucket.level(LATER), 6) for bucket in buckets]


def test_what_a_head_says_binds_the_key_that_it_is_about() -> None:
    permit, own, shared = permit_of(keys=2, own=True, shared=1)
    hear(permit, 7)
    assert (levels(own), levels(shared)) == ([7.0], [FULL - 1])


@pytest.mark.parametrize("shared", [1, 2])
def test_of_one_key_alone_it_binds_the_narrowest_of_what_all_calls_share(shared: int) -> None:
    permit, _, wide = permit_of(shared=shared)
    hear(permit, 7)
    assert levels(wide) == [*[FULL - 1] * (shared - 1), 7.0]


@pytest.mark.parametrize("own", [False, True])
def test_one_key_of_several_says_nothing_of_what_a_model_has_left_in_all(own: bool) -> None:
    permit, mine, wide = permit_of(keys=2, own=own, shared=2)
    hear(permit, 0)
    assert levels(wide) == [FULL - 1, FULL - 1]
    assert levels(mine) == [FULL - 1] * own


def metered(exchange: Exchange, meter: Meter) -> tuple[Permit, Bucket]:
    """Takes what the meter reserves out of a full bucket, and settles."""
    bucket = a_bucket(60_000.0)
    line = a_line(a_room(), tokens=(bucket,))
    permit = Permit(line, None, LATER, lambda permit, now: None, tokens=meter.reserve(exchange))
    meter.settle(permit, exchange)
    permit.release(LATER)
    return permit, bucket


def a_meter(**fields: object) -> Meter:
    return Meter(Estimates(), CountSettings(), fields=fields, reserves=True)


def test_what_was_reserved_is_settled_by_what_is_reported() -> None:
    exchange = chat(max_tokens=1000)
    attempt = with_attempt(exchange)
    attempt.sent_bytes, attempt.head_at, attempt.status, attempt.kind = 10, LATER, 200, OutcomeKind.OK
    attempt.usage = Usage(input=20, output=30)
    permit, bucket = metered(exchange, a_meter())
    assert permit.tokens > 1000.0
    assert bucket.capacity - bucket.level(LATER) == pytest.approx(50.0)


def test_without_an_attempt_everything_comes_back() -> None:
    _, bucket = metered(chat(max_tokens=1000), a_meter())
    assert bucket.level(LATER) == bucket.capacity


def test_what_a_tier_sets_is_what_is_reserved() -> None:
    assert a_meter(max_tokens=50).reserve(chat(max_tokens=1000)) < 100.0
    assert a_meter().reserve(chat(max_tokens=1000)) > 1000.0


def test_a_call_stands_in_the_lane_of_its_longest_answer() -> None:
    short, rest = a_line(a_room(), name="short"), a_line(a_room(), name="rest")
    lanes = Lanes((LaneSettings(max_output=100, share=0.3),), (short, rest), fields={})
    assert lanes.of(chat(max_tokens=100)) is short
    assert lanes.of(chat(max_tokens=101)) is rest
    assert lanes.of(chat()) is rest
    assert lanes.of(make_exchange(Ask(body=b"\x00"))) is rest


@pytest.mark.parametrize(
    ("outcome", "size"),
    [
        (failed(429), 8),
        (failed(529), 8),
        (failed(503), 10),
        (answered(), 10),
        (unanswered(OutcomeKind.DISCONNECTED, maybe_executed=True), 10),
    ],
    ids=str,
)
def test_only_a_provider_that_is_overrun_lowers_the_limit(outcome: Outcome, size: int) -> None:
    limit, places = AdaptiveLimit(AdaptiveSettings()), Places("adaptive", 10)
    limit.reconfigure(AdaptiveSettings(), 10)
    Adapting(limit, places).judge(outcome, seconds=1.0, in_use=10, now=LATER)
    assert places.size == size
