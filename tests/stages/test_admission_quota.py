"""Quotas in the admission stage: reserved before a call, settled once however it ends, waited for without a permit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.classes import ClassSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.estimates import Estimates
from proxy.decisions.lanes import LaneSettings
from proxy.dialects.demand import Demand
from proxy.dialects.rate_limits import RateLimits
from proxy.exchange import Exchange, Usage
from proxy.observer import Waited
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.stages.admission import AdmissionStage, Terms
from proxy.stages.metering import Lanes, Meter
from tests.decisions.waiting_room import a_line
from tests.fakes import Ask, FakeClock, answered, make_exchange, settle, with_attempt
from tests.stages.world import WAITS, Provider

DEMAND = Demand(text_bytes=300, max_output=100)
RESERVED = 200.0


def a_call(klass: str = "P1", demand: Demand = DEMAND) -> Exchange:
    exchange = make_exchange(Ask(klass=klass, body=b"x" * 300))
    exchange.facts.provider = "alpha"
    exchange.demand = demand
    return exchange


class Bench:
    """One stage whose provider counts requests and tokens, and calls that run until they are let go."""

    def __init__(
        self, *, share: int = 9, keys: str = "", waits: WaitLimits = WAITS, classes: ClassSettings | None = None
    ) -> None:
        self.clock = FakeClock()
        self.admission = Admission()
        self.provider = Provider("alpha", self.clock, self.admission, share=share, keys=keys)
        self.provider.meter(requests=10.0, tokens=1000.0)
        assert self.provider.quota is not None
        self.quota = self.provider.quota
        meter = Meter(Estimates(), CountSettings(), fields={}, reserves=True)
        terms = Terms(meter=meter, settles=True, classes=classes or ClassSettings())
        self.stage = AdmissionStage(self.admission, self.provider.line, limits=waits, clock=self.clock, terms=terms)
        self.running: list[asyncio.Event] = []

    async def call(self, exchange: Exchange) -> Outcome:
        """A call that uses 150 tokens."""
        attempt = with_attempt(exchange)
        attempt.sent_bytes = 300
        let_go = asyncio.Event()
        self.running.append(let_go)
        await let_go.wait()
        attempt.kind, attempt.status, attempt.head_at = OutcomeKind.OK, 200, self.clock.now()
        attempt.usage = Usage(100, 50)
        return answered()

    def start(self, exchange: Exchange | None = None) -> asyncio.Task[Outcome]:
        """Starts a call."""
        return asyncio.ensure_future(self.stage(exchange or a_call(), self.call))

    def gone(self) -> tuple[float, float]:
        """How many requests and tokens are gone."""
        requests, tokens = self.quota.gone(self.clock.now())
        return round(requests, 6), round(tokens, 6)

    def empty(self) -> None:
        """The provider says that no tokens are left."""
        self.quota.buckets[1].hint(0.0, self.clock.now())

    async def tick(self, seconds: float) -> None:
        """Lets time pass."""
        self.clock.advance(seconds)
        self.admission.tick(self.clock.now())
        await settle()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a call ends, and what it costs: requests and tokens."""

    kind: OutcomeKind | None
    cost: tuple[float, float]
    status: int = 0
    sent: int = 300
    usage: Usage | None = None
    error: type[BaseException] | None = None
    attempts: bool = True

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Ends."""
        if self.attempts:
            attempt = with_attempt(exchange)
            attempt.kind, attempt.status, attempt.sent_bytes, attempt.usage = (
                self.kind, self.status, self.sent, self.usage,
            )  # fmt: skip
            attempt.head_at = exchange.facts.arrived_at if self.status else 0.0
        if self.error is not None:
            raise self.error
        return Outcome(self.kind, status=self.status) if self.kind is not None else refused(Reason.BREAKER_OPEN)


K = OutcomeKind
ALL = (1.0, RESERVED)
PROMPT = (1.0, 75.0)
"""By four bytes a token, as is usual while nothing is learned."""
NOTHING = (0.0, 0.0)
ENDS = {
    "an answer": End(kind=K.OK, status=200, usage=Usage(90, 10), cost=(1.0, 100.0)),
    "an answer that took more": End(kind=K.OK, status=200, usage=Usage(400, 100), cost=(1.0, 500.0)),
    "an answer without a report": End(kind=K.OK, status=200, cost=PROMPT),
    "a broken stream with a report": End(kind=K.STREAM_BROKEN, status=200, usage=Usage(90, 20), cost=(1.0, 110.0)),
    "idle": End(kind=K.IDLE_TIMEOUT, status=200, usage=Usage(90, 20), cost=(1.0, 110.0)),
    "no head": End(kind=K.FIRST_BYTE_TIMEOUT, cost=ALL),
    "a lost connection": End(kind=K.DISCONNECTED, cost=ALL),
    "a 429": End(kind=K.RATE_LIMITED, status=429, cost=PROMPT),
    "a 500": End(kind=K.UPSTREAM_ERROR, status=500, cost=PROMPT),
    "never connected": End(kind=K.UNREACHABLE, sent=0, cost=NOTHING),
    "refused below": End(kind=None, attempts=False, cost=NOTHING),
    "the caller left early": End(kind=K.CLIENT_LEFT, sent=0, error=asyncio.CancelledError, cost=NOTHING),
    "the caller left late": End(kind=K.CLIENT_LEFT, error=asyncio.CancelledError, cost=ALL),
    "a bug before the call": End(kind=None, attempts=False, error=LookupError, cost=NOTHING),
    "a bug after sending": End(kind=K.BUG, error=LookupError, cost=ALL),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_however_a_call_ends_its_quota_is_settled_once(end: End) -> None:
    bench = Bench()
    during: list[tuple[float, float]] = []

    async def call(exchange: Exchange) -> Outcome:
        during.append(bench.gone())
        return await end(exchange)

    if end.error is None:
        await bench.stage(a_call(), call)
    else:
        with pytest.raises(end.error):
            await bench.stage(a_call(), call)
    assert during == [ALL]
    assert bench.gone() == end.cost
    assert (bench.provider.places.used, bench.admission.out) == (0, set())


async def test_another_attempt_reserves_anew_and_is_not_charged_for_the_first() -> None:
    bench, exchange = Bench(), a_call()
    await bench.stage(exchange, ENDS["a 500"])
    await bench.stage(exchange, ENDS["refused below"])
    assert bench.gone() == PROMPT
    await bench.stage(exchange, ENDS["an answer"])
    assert bench.gone() == (2.0, 175.0)


async def test_who_waits_for_quota_holds_no_permit_and_is_told_what_it_lacked() -> None:
    bench, exchange = Bench(share=1), a_call()
    bench.empty()
    task = bench.start(exchange)
    await settle()
    assert (bench.provider.places.used, bench.running) == (0, [])
    await bench.tick(10.1)
    bench.running.pop().set()
    assert (await task).kind is OutcomeKind.OK
    ((_, event),) = exchange.facts.events
    assert isinstance(event, Waited)
    assert event.lacking == "quota"
    assert event.seconds == pytest.approx(10.1)


async def test_who_is_cancelled_while_it_waits_for_quota_has_taken_nothing() -> None:
    bench = Bench()
    bench.empty()
    begun = bench.gone()
    task = bench.start()
    await settle()
    task.cancel()
    await settle()
    assert bench.gone() == begun
    assert bench.admission.waiting == 0


async def test_who_is_cancelled_between_the_hand_over_and_going_on_gives_all_back() -> None:
    bench = Bench()
    bench.empty()
    begun = bench.gone()
    task = bench.start()
    await settle()
    bench.clock.advance(10.1)
    bench.admission.tick(bench.clock.now())
    assert bench.gone() == (begun[0] + 1.0, begun[1] + RESERVED)
    task.cancel()
    await settle()
    assert (bench.gone(), bench.running) == (begun, [])


async def test_what_comes_back_lets_the_next_one_go_in_the_same_moment() -> None:
    bench = Bench()
    tasks = [bench.start() for _ in range(6)]
    await settle()
    assert len(bench.running) == 5
    bench.running[0].set()
    await settle()
    assert len(bench.running) == 5, "50 of 200 are not enough for another one"
    for running in bench.running[1:4]:
        running.set()
    await settle()
    assert len(bench.running) == 6
    bench.running[4].set()
    bench.running[5].set()
    await asyncio.gather(*tasks)
    assert bench.gone() == (6.0, 900.0)


async def test_a_refusal_for_quota_tells_when_and_a_prompt_that_never_fits_is_too_long() -> None:
    bench = Bench(waits=WaitLimits(queue=1.0, quota_wait=5.0))
    bench.empty()
    outcome = await bench.start()
    assert outcome.reason is Reason.QUOTA_EXHAUSTED
    assert outcome.retry_after == pytest.approx(10.0)
    bench.quota.buckets[1].most = 150.0
    outcome = await bench.start()
    assert (outcome.reason, outcome.retry_after) == (Reason.CONTEXT_TOO_LONG, None)
    assert "200 tokens" in (outcome.detail or "")


async def test_what_the_provider_says_is_left_is_a_ceiling_from_the_next_call_on() -> None:
    bench = Bench(keys="a1")

    async def call(exchange: Exchange) -> Outcome:
        outcome = await ENDS["an answer"](exchange)
        assert exchange.attempt is not None
        exchange.attempt.rates = RateLimits()
        exchange.attempt.rates.tokens_remaining = 30
        return outcome

    await bench.stage(a_call(), call)
    assert bench.quota.buckets[1].level(bench.clock.now()) == 30.0, "what comes back lifts nothing above that word"


# Classes and lanes


async def test_p2_waits_its_own_time_instead_of_queue_and_quota_wait() -> None:
    bench = Bench(waits=WaitLimits(queue=0.3, quota_wait=0.3), classes=ClassSettings(queue=600.0))
    bench.empty()
    task = bench.start(a_call("P2"))
    await settle()
    await bench.tick(9.9)
    assert not task.done()
    await bench.tick(0.2)
    bench.running.pop().set()
    assert (await task).kind is OutcomeKind.OK


async def test_p2_waits_so_long_in_all_whatever_it_lacks_meanwhile() -> None:
    bench = Bench(share=1, classes=ClassSettings(queue=10.0, promote_after=99.0))
    high = bench.start()
    await settle()
    low = bench.start(a_call("P2"))
    await settle()
    await bench.tick(6.0)
    bench.quota.buckets[1].hint(-500.0, bench.clock.now())
    bench.running.pop().set()
    await bench.tick(3.9)
    assert (high.done(), low.done()) == (True, False)
    await bench.tick(0.2)
    assert low.result().reason is Reason.QUOTA_EXHAUSTED


async def test_a_call_waits_in_the_line_of_its_lane() -> None:
    bench = Bench(share=1)
    places = bench.provider.places
    places.reserve([("lane chat/100", 1.0)])
    short = a_line(bench.provider.room, places, name="alpha/short", lanes=["lane chat/100"])
    lanes = Lanes((LaneSettings(max_output=100, share=1.0),), (short, bench.provider.line), fields={})
    terms = Terms(lanes=lanes, settles=True)
    bench.stage = AdmissionStage(bench.admission, bench.provider.line, limits=WAITS, clock=bench.clock, terms=terms)
    long = bench.start(a_call(demand=Demand(text_bytes=300, max_output=101)))
    task = bench.start()
    await settle()
    assert len(bench.running) == 1
    bench.running.pop().set()
    assert (await task).kind is OutcomeKind.OK
    await bench.tick(10.1)
    assert long.result().reason is Reason.QUEUE_TIMEOUT
