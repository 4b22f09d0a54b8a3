"""Tenants: caps are held around the whole call, and nothing above them goes any further."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from proxy.decisions.counting import CountSettings
from proxy.decisions.estimates import Estimates
from proxy.decisions.tenants import Tenants, TenantSettings, TenantsSettings
from proxy.dialects.lookup import dialect_named, operation_of
from proxy.exchange import Exchange, Usage
from proxy.observer import Merged, Observed, Would
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stage import CallNext
from proxy.stages.tenants import ObservingTenantStage, TenantStage, TokenCounting
from tests.fakes import Ask, FakeClock, answered, make_exchange, settle, with_attempt
from tests.scripted import ScriptedTerminal


class Door:
    """A tenant stage, and everything that it holds."""

    def __init__(self, default: TenantSettings, *, observes: bool = False, tiers: int = 1) -> None:
        self.clock = FakeClock()
        self.tenants = Tenants(b"salt")
        self.tenants.reconfigure(TenantsSettings(default=default), self.clock.now())
        estimates = Estimates()
        tokens = TokenCounting(lambda model: estimates, CountSettings())
        kind = ObservingTenantStage if observes else TenantStage
        self.stage = kind(self.tenants, tokens=tokens, tiers=tiers, clock=self.clock)

    async def call(self, exchange: Exchange | None = None, below: CallNext | None = None) -> Outcome:
        """Sends a request."""
        return await self.stage(exchange or chat(), below or ScriptedTerminal())

    def tokens(self) -> float | None:
        """What is left of the default tenant's tokens."""
        return self.tenants.of("default", self.clock.now()).caps.levels(self.clock.now())[1]


def chat(*, words: int = 1, tenant: str = "default", max_tokens: int = 50) -> Exchange:
    """A chat that classification has read."""
    message = {"role": "user", "content": "word " * words}
    body = orjson.dumps({"model": "m1", "messages": [message], "max_tokens": max_tokens})
    exchange = make_exchange(Ask(body=body))
    exchange.document, exchange.model = orjson.loads(body), "m1"
    exchange.dialect, exchange.operation = dialect_named("openai"), operation_of("/v1/chat/completions")
    exchange.facts.tenant = tenant
    return exchange


def uses(given: int, output: int) -> CallNext:
    """A call that is answered and tells its usage."""

    async def call(exchange: Exchange) -> Outcome:
        attempt = with_attempt(exchange)
        attempt.kind, attempt.status, attempt.sent_bytes, attempt.head_at = OutcomeKind.OK, 200, 100, 1.0
        attempt.usage = Usage(given, output)
        return answered()

    return call


async def test_one_tenant_above_its_cap_is_refused_and_others_are_not() -> None:
    door = Door(TenantSettings(rps=1))
    below = ScriptedTerminal()
    assert (await door.call(chat(tenant="wild"), below)).kind is OutcomeKind.OK
    outcome = await door.call(chat(tenant="wild"), below)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.TENANT_LIMIT)
    assert outcome.retry_after == pytest.approx(1.0)
    assert (await door.call(chat(tenant="calm"), below)).kind is OutcomeKind.OK
    assert len(below.calls) == 2
    assert {tenant.name: tenant.refused for tenant in door.tenants.latest()} == {"calm": 0, "wild": 1}


async def test_a_call_is_in_flight_until_its_last_byte_however_it_ends() -> None:
    door = Door(TenantSettings(concurrency=1))
    end = asyncio.Event()

    async def stream(exchange: Exchange) -> Outcome:
        await end.wait()
        raise LookupError

    first = asyncio.ensure_future(door.call(below=stream))
    await settle()
    assert (await door.call()).reason is Reason.TENANT_LIMIT
    end.set()
    with pytest.raises(LookupError):
        await first
    left = asyncio.ensure_future(door.call(below=lambda exchange: asyncio.sleep(60, answered())))
    await settle()
    assert (await door.call()).reason is Reason.TENANT_LIMIT
    left.cancel()
    await settle()
    assert (await door.call()).kind is OutcomeKind.OK


async def test_tokens_are_reserved_before_and_settled_by_what_was_reported() -> None:
    door = Door(TenantSettings(tpm=60_000))
    await door.call(below=uses(10, 10))
    door.clock.advance(60)
    before = door.tokens()
    seen: list[float | None] = []

    async def below(exchange: Exchange) -> Outcome:
        seen.append(door.tokens())
        return await uses(10, 20)(exchange)

    await door.call(chat(max_tokens=400), below)
    assert before == 1000.0
    assert seen[0] is not None
    assert seen[0] < 600.0
    assert door.tokens() == 970.0


async def test_a_call_that_asked_nobody_costs_no_tokens() -> None:
    door = Door(TenantSettings(tpm=60_000))
    await door.call()
    door.clock.advance(60)
    await door.call(chat(max_tokens=400), ScriptedTerminal(Outcome(OutcomeKind.REFUSED, reason=Reason.QUEUE_FULL)))
    assert door.tokens() == 1000.0


async def test_what_several_attempts_have_used_counts_together() -> None:
    door = Door(TenantSettings(tpm=60_000))
    await door.call()
    door.clock.advance(60)

    async def twice(exchange: Exchange) -> Outcome:
        await uses(30, 0)(exchange)
        return await uses(30, 40)(exchange)

    await door.call(below=twice)
    assert door.tokens() == 900.0


async def test_too_long_a_context_is_refused_before_anything_is_asked_or_counted() -> None:
    door, below = Door(TenantSettings(context_tokens=100, rps=1, concurrency=1)), ScriptedTerminal()
    outcome = await door.call(chat(words=2000), below)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.CONTEXT_TOO_LONG)
    assert "context_tokens: 100" in outcome.detail
    assert below.calls == []
    assert (await door.call(chat(), below)).kind is OutcomeKind.OK


@pytest.mark.parametrize(("tiers", "first"), [(3, 2), (2, 2), (1, None)])
async def test_too_long_a_context_begins_with_the_tier_that_may_take_it_where_there_is_one(
    tiers: int, first: int | None
) -> None:
    door, below = Door(TenantSettings(context_tokens=100, too_long_tier=2), tiers=tiers), ScriptedTerminal()
    long, short = chat(words=2000), chat()
    outcome = await door.call(long, below)
    await door.call(short, below)
    assert short.first_tier == 1
    if first is None:
        assert outcome.reason is Reason.CONTEXT_TOO_LONG
        assert "no tier 2" in outcome.detail
    else:
        assert (outcome.kind, long.first_tier) == (OutcomeKind.OK, first)


async def test_observed_everything_goes_and_is_told() -> None:
    limits = TenantSettings(rps=1, concurrency=1, tpm=60_000, context_tokens=100, too_long_tier=2)
    door, below = Door(limits, observes=True, tiers=2), ScriptedTerminal()
    await door.call(chat(), below)
    second = chat(words=2000)
    assert (await door.call(second, below)).kind is OutcomeKind.OK
    assert (len(below.calls), second.first_tier) == (2, 1)
    told = [event for _, event in second.facts.events]
    assert told == [
        Observed(provider="", tier=0, would=would) for would in (Would.CONTEXT_TOO_LONG, Would.TENANT_LIMIT)
    ]
    (tenant,) = door.tenants.latest()
    assert (tenant.refused, tenant.would) == (0, {Would.TENANT_LIMIT: 1, Would.CONTEXT_TOO_LONG: 1})
    assert tenant.caps.in_flight == 0


def travels(usage: Usage | None, *, carries: bool = False, status: int = 200) -> CallNext:
    """A request that travels with others: only the carrier is told of the attempt, each of its own part."""

    async def call(exchange: Exchange) -> Outcome:
        if carries:
            await uses(600, 0)(exchange)
        exchange.note(1.0, Merged(callers=3, inputs=3, carries=carries))
        exchange.facts.usage, exchange.facts.status = usage, status
        return answered()

    return call


@pytest.mark.parametrize("carries", [True, False])
async def test_who_travels_with_others_is_charged_its_own_part(carries: bool) -> None:
    door = Door(TenantSettings(tpm=60_000))
    await door.call(below=uses(10, 10))
    door.clock.advance(60)
    await door.call(below=travels(Usage(200, 0), carries=carries))
    assert door.tokens() == 800.0


async def test_where_nobody_has_counted_it_is_charged_for_its_prompt() -> None:
    door = Door(TenantSettings(tpm=60_000))
    await door.call(below=uses(10, 10))
    door.clock.advance(60)
    await door.call(chat(words=100), travels(None))
    after = door.tokens()
    assert after is not None
    assert 50 < 1000.0 - after < 250
    await door.call(chat(words=100), travels(None, status=503))
    assert door.tokens() == after
