"""Deadline: one number, counted from the arrival."""

from __future__ import annotations

import pytest

from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stages.deadline import DeadlineStage
from tests.fakes import Ask, answered, make_exchange


@pytest.mark.parametrize(("klass", "expected"), [("P0", 1100.3), ("P1", 1100.3), ("P2", 1660.0)])
async def test_the_deadline_is_arrival_and_total_and_what_class_or_tiers_may_wait(klass: str, expected: float) -> None:
    seen: list[float] = []

    async def below(exchange: Exchange) -> Outcome:
        seen.append(exchange.deadline_at)
        return answered()

    exchange = make_exchange(Ask(klass=klass), now=1000.0)
    outcome = await DeadlineStage(total=60.0, waits=40.3, idle_waits=600.0)(exchange, below)
    assert seen == [expected]
    assert outcome.status == 200
