"""Deadline: one number, counted from the arrival."""

from __future__ import annotations

from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stages.deadline import DeadlineStage
from tests.fakes import answered, make_exchange


async def test_the_deadline_is_arrival_and_total_and_what_tiers_may_wait() -> None:
    seen: list[float] = []

    async def below(exchange: Exchange) -> Outcome:
        seen.append(exchange.deadline_at)
        return answered()

    exchange = make_exchange(now=1000.0)
    outcome = await DeadlineStage(total=60.0, waits=40.3)(exchange, below)
    assert seen == [1100.3]
    assert outcome.status == 200
