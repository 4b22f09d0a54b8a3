"""THE ORDER (`architecture.md`): who surrounds whom, held where it can be seen from outside."""

from __future__ import annotations

import asyncio
import inspect
import re

from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask as AdmissionAsk
from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.runtime import pipeline
from proxy.stage import CallNext
from tests.fakes import Ask, FakeReply, FakeUpload, answered, make_exchange, settle
from tests.stages.world import WAITS, World, failed

ORDER = [
    "observation",
    "classification",
    "deadline",
    "tenants",
    "idempotency",
    "response_cache",
    "single_flight",
    "merging",
    "fallback",
    "context",
    "retry",
    "breaker",
    "admission",
    "attempt",
]


class Named:
    """A stage that says when it is entered."""

    def __init__(self, name: str, entered: list[str]) -> None:
        self._name = name
        self._entered = entered

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        self._entered.append(self._name)
        return await call_next(exchange)


async def test_each_of_the_three_pipelines_enters_its_stages_in_the_order() -> None:
    entered: list[str] = []

    async def transport(exchange: Exchange) -> Outcome:
        entered.append("transport")
        return answered()

    parts = {name: Named(name, entered) for name in ("retry", "breaker", "admission", "attempt")}
    context, tenants, keys = (Named(name, entered) for name in ("context", "tenants", "idempotency"))
    saving = {name: Named(name, entered) for name in ("response_cache", "single_flight", "merging")}
    target = pipeline.target(pipeline.TargetStages(**parts), transport, context=context)  # type: ignore[arg-type]
    deadline = Named("deadline", entered)
    route = pipeline.route(
        deadline,  # type: ignore[arg-type]
        target,
        tenants=tenants,  # type: ignore[arg-type]
        idempotency=keys,  # type: ignore[arg-type]
        saving=pipeline.Saving(**saving),  # type: ignore[arg-type]
    )
    front = pipeline.front(Named("observation", entered), route)  # type: ignore[arg-type]
    await front(make_exchange())
    below = ["context", "retry", "breaker", "admission", "attempt", "transport"]
    assert entered == ["observation", "deadline", "tenants", "idempotency", *saving, *below]
    assert [name for name in ORDER if name in entered] == entered[:-1]


async def test_what_is_off_is_absent() -> None:
    entered: list[str] = []

    async def transport(exchange: Exchange) -> Outcome:
        return answered()

    parts = {name: Named(name, entered) for name in ("retry", "admission", "attempt")}
    await pipeline.target(pipeline.TargetStages(breaker=None, **parts), transport)(make_exchange())  # type: ignore[arg-type]
    assert entered == ["retry", "admission", "attempt"]


def test_every_position_is_numbered_and_says_its_reason() -> None:
    numbers = [int(n) for n in re.findall(r"# (\d+)\. \S", inspect.getsource(pipeline))]
    assert numbers == list(range(1, len(ORDER) + 1))


# What the order is for.


async def test_refusals_are_observed() -> None:
    world = World()
    exchange = make_exchange(Ask(upload=FakeUpload([b"x"], length=1 << 30)))
    outcome = await world.call(answer)(exchange)
    assert outcome.reason is Reason.BODY_TOO_LARGE
    assert world.observer.exchanges == [exchange]


async def test_an_open_breaker_answers_before_any_wait() -> None:
    world = World()
    take(world)
    world.alpha.trip()
    exchange = make_exchange()
    outcome = await world.call(answer)(exchange)
    assert outcome.reason is Reason.BREAKER_OPEN
    assert exchange.facts.queued_seconds == 0.0
    assert exchange.facts.attempts == []


async def test_when_a_breaker_opens_its_waiters_are_released_at_once() -> None:
    world = World()
    take(world)
    waiting = asyncio.ensure_future(world.call(answer)(make_exchange()))
    await settle()
    assert world.alpha.room.waiting == 1
    world.alpha.trip()
    await settle()
    assert waiting.result().reason is Reason.BREAKER_OPEN
    assert world.alpha.room.waiting == 0


async def test_back_off_holds_nothing_and_comes_back_to_the_queue() -> None:
    world = World()
    replies = [failed(500), answered()]
    held: list[int] = []

    async def call(exchange: Exchange) -> Outcome:
        held.append(world.alpha.places.used)
        return replies.pop(0)

    task = asyncio.ensure_future(world.call(call)(make_exchange()))
    await settle()
    assert held == [1]
    assert world.alpha.places.used == 0
    blocker = take(world)
    await world.clock.run(1.5)
    assert world.alpha.room.waiting == 1
    assert not task.done()
    blocker.release(world.clock.now())
    await settle()
    assert task.result().kind is OutcomeKind.OK
    assert held == [1, 1]


async def test_waiting_in_admission_is_no_part_of_an_attempt() -> None:
    world = World()
    blocker = take(world)
    exchange = make_exchange(now=world.clock.now())
    task = asyncio.ensure_future(world.call(answer)(exchange))
    await settle()
    assert exchange.facts.attempts == []
    world.clock.advance(4.0)
    blocker.release(world.clock.now())
    await settle()
    assert task.done()
    (attempt,) = exchange.facts.attempts
    assert attempt.started_at == exchange.facts.arrived_at + 4.0


async def test_every_tier_has_its_own_retries_and_its_own_breaker() -> None:
    world = World()
    calls: list[str] = []

    async def alpha(exchange: Exchange) -> Outcome:
        calls.append("alpha")
        return failed(500)

    async def beta(exchange: Exchange) -> Outcome:
        calls.append("beta")
        return answered()

    exchange = make_exchange(Ask(request_id="r5"))
    task = asyncio.ensure_future(world.call(alpha, beta)(exchange))
    await world.clock.run(5.0)
    assert task.done()
    assert calls[-1] == "beta"
    assert set(calls[:-1]) == {"alpha"}
    assert world.beta.breaker.statistics(world.clock.now()).failures == 0
    assert world.alpha.breaker.statistics(world.clock.now()).failures == len(calls) - 1


async def test_a_stream_holds_its_permit_to_the_last_byte() -> None:
    world = World()
    more = asyncio.Event()

    async def stream(exchange: Exchange) -> Outcome:
        exchange.reply.start(200, b"OK", b"", length=None)
        await more.wait()
        exchange.reply.finish()
        return answered()

    exchange = make_exchange()
    task = asyncio.ensure_future(world.call(stream)(exchange))
    await settle()
    assert isinstance(exchange.reply, FakeReply)
    assert exchange.reply.started
    assert world.alpha.places.used == 1
    more.set()
    await task
    assert world.alpha.places.used == 0


async def test_a_drained_exchange_is_answered_by_the_outermost_stage() -> None:
    world = World()
    take(world)
    exchange = make_exchange()
    task = asyncio.ensure_future(world.call(answer)(exchange))
    await settle()
    exchange.cancel_cause = CancelCause.DRAIN
    task.cancel()
    await settle()
    assert isinstance(exchange.reply, FakeReply)
    assert exchange.reply.status == 503
    assert exchange.facts.reason is Reason.SHUTTING_DOWN


async def answer(exchange: Exchange) -> Outcome:
    return answered()


def take(world: World) -> Permit:
    """Takes alpha's permit."""
    permit = world.admission.enter(world.alpha.line, AdmissionAsk(limits=WAITS), world.clock.now())
    assert isinstance(permit, Permit)
    return permit
