"""The tier that gives a kept answer when every other one has failed."""

from __future__ import annotations

import pytest

from proxy.observer import CacheUse
from proxy.outcome import OutcomeKind, Reason
from proxy.ports import StoredAnswer
from proxy.stages.response_cache import CacheCounts
from proxy.stages.stale_cache import StaleAnswer
from tests.fakes import FakeClock, make_exchange
from tests.stages.saving import Shelf, body_of

ANSWER = StoredAnswer(
    status=200, phrase=b"OK", lines=b"x-up: 1\r\n", body=b"old", length=3, provider="alpha", model="m1", tier=1
)


def tier(clock: FakeClock, shelf: Shelf) -> StaleAnswer:
    return StaleAnswer(shelf, CacheCounts(), number=3, max_age=60.0, clock=clock)


@pytest.mark.parametrize("age", [0.0, 60.0])
async def test_it_gives_what_is_kept_as_its_own_tier(age: float) -> None:
    clock, shelf = FakeClock(), Shelf()
    shelf.keep(b"n", ANSWER, owner="t", seconds=100.0, now=clock.now())
    clock.advance(age)
    exchange = make_exchange()
    exchange.alike, exchange.facts.tier = b"n", 3
    outcome = await tier(clock, shelf)(exchange)
    assert (outcome.kind, outcome.committed) == (OutcomeKind.OK, True)
    facts = exchange.facts
    assert (body_of(exchange), facts.cache, facts.tier, facts.provider) == (b"old", CacheUse.STALE, 3, "alpha")


@pytest.mark.parametrize(("name", "age"), [(b"n", 61.0), (b"other", 0.0), (b"", 0.0), (None, 0.0)])
async def test_it_refuses_what_is_too_old_or_not_there(name: bytes | None, age: float) -> None:
    clock, shelf = FakeClock(), Shelf()
    shelf.keep(b"n", ANSWER, owner="t", seconds=100.0, now=clock.now())
    clock.advance(age)
    exchange = make_exchange()
    exchange.alike = name
    outcome = await tier(clock, shelf)(exchange)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, None)
    assert not exchange.reply.started
    assert exchange.facts.cache is None


async def test_a_prompt_that_is_too_long_and_begins_here_is_told_so() -> None:
    clock = FakeClock()
    exchange = make_exchange()
    exchange.alike, exchange.first_tier = b"", 3
    outcome = await tier(clock, Shelf())(exchange)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.CONTEXT_TOO_LONG)
    assert not exchange.reply.started
