"""What an attempt reserves, what it has cost in the end, and what its end says of keys and limits."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.decisions.adaptive import AdaptiveLimit, AdaptiveSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.estimates import UNKNOWN_TOKENS, Estimates
from proxy.decisions.lanes import LaneSettings
from proxy.decisions.permits import Permit
from proxy.decisions.places import URGENT, Places
from proxy.decisions.quota import Bucket
from proxy.dialects.demand import Demand
from proxy.dialects.rate_limits import RateLimits
from proxy.exchange import Attempt, Exchange, Usage
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.stages.metering import OVERLOADED, Adapting, Lanes, Meter, take_hints
from tests.decisions.waiting_room import NOW, a_bucket, a_key, a_line, a_ring, a_room
from tests.fakes import Ask, answered, make_exchange, with_attempt

CHAT = Demand(text_bytes=3000, max_output=500)
RESERVED = 1000.0 + 500.0


def a_meter(*, reserves: bool = True, count: CountSettings | None = None, **fields: Any) -> Meter:
    return Meter(Estimates(), count or CountSettings(), fields=fields, reserves=reserves)


def a_call(demand: Demand | None = CHAT) -> Exchange:
    exchange = make_exchange(Ask(body=b"x" * 3000))
    exchange.demand = demand
    return exchange


def ended(exchange: Exchange, kind: OutcomeKind, *, status: int = 0, sent: int = 3000) -> Attempt:
    """The call's attempt, after its end."""
    attempt = with_attempt(exchange)
    attempt.kind, attempt.status, attempt.sent_bytes = kind, status, sent
    attempt.head_at = NOW if status else 0.0
    return attempt


class Tokens:
    """A bucket that is full of tokens, and one of requests."""

    def __init__(self) -> None:
        self.requests, self.tokens = a_bucket(600.0), a_bucket(60_000.0)
        self.line = a_line(a_room(), requests=(self.requests,), tokens=(self.tokens,))
        self.now = NOW + 60.0

    def permit(self, tokens: float) -> Permit:
        return Permit(self.line, None, self.now, lambda permit, now: None, tokens=tokens)

    def cost(self) -> tuple[float, float]:
        """Requests and tokens that are taken."""
        return tuple(round(b.capacity - b.level(self.now), 6) for b in (self.requests, self.tokens))  # type: ignore[return-value]


def settled(meter: Meter, exchange: Exchange) -> tuple[float, float]:
    """What a call has cost after its end."""
    quota = Tokens()
    permit = quota.permit(meter.reserve(exchange))
    meter.settle(permit, exchange)
    permit.release(quota.now)
    return quota.cost()


# Reserving


def test_it_reserves_the_prompt_and_all_output_that_the_caller_allows() -> None:
    assert a_meter().reserve(a_call()) == pytest.approx(RESERVED)


def test_where_the_provider_counts_output_later_only_the_prompt_is_reserved() -> None:
    assert a_meter(count=CountSettings(reserve_output=False)).reserve(a_call()) == pytest.approx(1000.0)


def test_what_the_tier_sets_is_what_is_asked() -> None:
    assert a_meter(max_tokens=100).reserve(a_call()) == pytest.approx(1100.0)
    assert a_meter(temperature=0).reserve(a_call()) == pytest.approx(RESERVED)


def test_where_nothing_bounds_tokens_none_are_reserved() -> None:
    assert a_meter(reserves=False).reserve(a_call()) == 0.0


def test_of_a_body_that_is_not_understood_little_is_reserved_and_of_a_streamed_one_nothing() -> None:
    unknown = a_call(None)
    assert a_meter().reserve(unknown) == UNKNOWN_TOKENS
    unknown.payload = None
    assert a_meter().reserve(unknown) == 0.0


# Settling


def test_a_reported_usage_is_what_it_costs_and_what_is_learned() -> None:
    meter, exchange = a_meter(), a_call()
    ended(exchange, OutcomeKind.OK, status=200).usage = Usage(600, 50)
    assert settled(meter, exchange) == (1.0, 650.0)
    assert meter._estimates.statistics().reports == 1


def test_a_call_that_used_more_than_was_reserved_pays_for_it() -> None:
    exchange = a_call()
    ended(exchange, OutcomeKind.OK, status=200).usage = Usage(3000, 500)
    assert settled(a_meter(), exchange) == (1.0, 3500.0)


def test_without_an_attempt_nothing_was_used() -> None:
    exchange = a_call()
    assert settled(a_meter(), exchange) == (0.0, 0.0)


@pytest.mark.parametrize("kind", [OutcomeKind.UNREACHABLE, OutcomeKind.CONNECT_TIMEOUT, OutcomeKind.CLIENT_LEFT])
def test_what_never_reached_the_provider_costs_nothing(kind: OutcomeKind) -> None:
    exchange = a_call()
    ended(exchange, kind, sent=0)
    assert settled(a_meter(), exchange) == (0.0, 0.0)


@pytest.mark.parametrize(
    "kind", [OutcomeKind.CLIENT_LEFT, OutcomeKind.DISCONNECTED, OutcomeKind.FIRST_BYTE_TIMEOUT, OutcomeKind.DRAINED]
)
def test_what_may_have_been_executed_costs_what_was_reserved_and_says_what_it_was(kind: OutcomeKind) -> None:
    exchange = a_call()
    attempt = ended(exchange, kind)
    assert settled(a_meter(), exchange) == pytest.approx((1.0, RESERVED))
    assert attempt.usage is not None
    assert attempt.usage.estimated


def test_a_refusal_costs_a_request_and_the_prompt_and_teaches_nothing() -> None:
    meter, exchange = a_meter(), a_call()
    attempt = ended(exchange, OutcomeKind.RATE_LIMITED, status=429)
    requests, tokens = settled(meter, exchange)
    assert requests == 1.0
    assert tokens < 1000.0
    assert (attempt.usage, meter._estimates.statistics().reports) == (None, 0)


def test_the_provider_s_own_report_is_never_replaced() -> None:
    exchange, told = a_call(), Usage(600, 50)
    attempt = ended(exchange, OutcomeKind.STREAM_BROKEN, status=200)
    attempt.usage = told
    settled(a_meter(), exchange)
    assert attempt.usage is told


# Lanes


def test_a_call_stands_in_the_lane_of_its_longest_answer_as_the_tier_sets_it() -> None:
    lines = tuple(a_line(a_room(), name=name) for name in ("short", "long", "rest"))
    settings = (LaneSettings(max_output=100, share=0.3), LaneSettings(max_output=500, share=0.3))
    lanes = Lanes(settings, lines, fields={})
    assert lanes.of(a_call()).name == "long"
    assert lanes.of(a_call(Demand(text_bytes=1, max_output=100))).name == "short"
    assert lanes.of(a_call(Demand(text_bytes=1, max_output=100, choices=4))).name == "long"
    assert lanes.of(a_call(Demand(text_bytes=1))).name == "rest"
    assert lanes.of(a_call(None)).name == "rest"
    assert Lanes(settings, lines, fields={"max_tokens": 64}).of(a_call()).name == "short"


# The adaptive limit


class Adaptive:
    """An adaptive limit of ten, and the places that it stands for."""

    def __init__(self) -> None:
        self.limit = AdaptiveLimit(AdaptiveSettings())
        self.limit.reconfigure(AdaptiveSettings(), 10)
        self.places = Places("adaptive", 10)
        self.adapting = Adapting(self.limit, self.places)

    def ends(self, outcome: Outcome, now: float = NOW) -> int:
        """How many places there are after this end."""
        self.adapting.judge(outcome, seconds=0.1, in_use=10, now=now)
        return self.places.size


@pytest.mark.parametrize(
    "outcome",
    [Outcome(OutcomeKind.RATE_LIMITED, status=429), Outcome(OutcomeKind.UPSTREAM_ERROR, status=OVERLOADED)],
    ids=["429", "529"],
)
def test_a_provider_that_is_asked_too_much_gets_fewer_calls_at_once(outcome: Outcome) -> None:
    adaptive = Adaptive()
    assert adaptive.ends(outcome) == 8
    assert adaptive.ends(outcome) == 8, "at most once per typical latency"


def test_what_is_kept_for_others_counts_as_used() -> None:
    """Else a limit of which others keep a part would never be found to be used, and never grow again."""
    adaptive = Adaptive()
    adaptive.places.reserve([(URGENT, 0.3)])
    line = a_line(a_room(), adaptive.places)
    permits = [Permit(line, None, NOW, lambda permit, now: None, klass=klass) for klass in (1, 1, 0)]
    assert [adaptive.adapting.in_use(permit) for permit in permits] == [5, 5, 3]


def test_answers_bring_places_back() -> None:
    adaptive = Adaptive()
    adaptive.ends(Outcome(OutcomeKind.RATE_LIMITED, status=429))
    sizes = [adaptive.ends(answered(), NOW + 10.0 + number) for number in range(200)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 10


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(OutcomeKind.UPSTREAM_ERROR, status=500),
        Outcome(OutcomeKind.UNREACHABLE),
        Outcome(OutcomeKind.CALLER_ERROR, status=400),
        refused(Reason.BREAKER_OPEN),
    ],
    ids=lambda outcome: str(outcome.kind),
)
def test_other_ends_say_nothing_about_how_much_is_too_much(outcome: Outcome) -> None:
    assert Adaptive().ends(outcome) == 10


# Hints


def hinted(line_buckets: int, own_buckets: int, *, keys: int = 1, instances: int = 1) -> list[float]:
    """What is left in each bucket, the line's first, after a head said that 40 requests are left of them."""
    shared: tuple[Bucket, ...] = tuple(a_bucket(6000.0, label=f"shared {number}") for number in range(line_buckets))
    own = tuple(a_bucket(6000.0, label="own") for _ in range(own_buckets))
    ring = a_ring(*(a_key(str(number)) for number in range(keys)))
    key = ring.keys[0]
    key.reconfigure(weight=1.0, places=None, requests=own)
    line, now = a_line(a_room(), ring=ring, requests=shared), NOW + 60.0
    permit = Permit(line, key, now, lambda permit, now: None)
    exchange = make_exchange(now=now)
    attempt = with_attempt(exchange)
    attempt.connected_at = now
    rates = attempt.rates = RateLimits()
    rates.requests_limit, rates.requests_remaining, rates.requests_reset = 100, 40, 60.0
    take_hints(permit, exchange, now, instances=instances)
    permit.release(now)
    return [bucket.level(now) for bucket in (*shared, *own)]


FULL = 500.0 - 1.0


@pytest.mark.parametrize(
    ("shared", "own", "keys", "left"),
    [
        (0, 1, 1, [40.0]),
        (0, 1, 3, [40.0]),
        (1, 0, 1, [40.0]),
        (1, 0, 3, [FULL]),
        (1, 1, 3, [FULL, 40.0]),
        (2, 0, 1, [FULL, 40.0]),
    ],
)
def test_what_a_head_says_is_left_is_a_ceiling_for_the_narrowest_bucket_that_it_can_mean(
    shared: int, own: int, keys: int, left: list[float]
) -> None:
    assert hinted(shared, own, keys=keys) == left


def test_of_what_several_instances_use_alike_only_a_part_is_for_one() -> None:
    assert hinted(0, 1, instances=4) == [10.0]


@pytest.mark.parametrize("used", [100.0, 1000.0, 2500.0])
def test_what_comes_back_of_calls_lifts_nothing_above_the_word_that_they_have_heard(used: float) -> None:
    bucket, key, now = a_bucket(60_000.0), a_key("a"), NOW + 60.0
    key.reconfigure(weight=1.0, places=None, tokens=(bucket,))
    line = a_line(a_room(), ring=a_ring(key))
    permits = [Permit(line, key, now, lambda permit, now: None, tokens=1000.0) for _ in range(3)]
    for permit in permits:
        exchange = make_exchange(now=now)
        rates = with_attempt(exchange).rates = RateLimits()
        rates.tokens_limit, rates.tokens_remaining, rates.tokens_reset = 60_000, 40, 60.0
        permit.settle(request=True, tokens=used)
        take_hints(permit, exchange, now, instances=1)
        permit.release(now)
        assert bucket.level(now) <= 40.0
    assert bucket.level(now) == 40.0 or used > 1000.0


def test_a_call_without_a_key_or_without_a_word_says_nothing() -> None:
    quota = Tokens()
    exchange = a_call()
    attempt = with_attempt(exchange)
    for rates in (None, RateLimits()):
        attempt.rates = rates
        take_hints(quota.permit(0.0), exchange, quota.now, instances=1)
    assert quota.cost() == (2.0, 0.0)
