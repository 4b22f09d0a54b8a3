"""Waits that are plainly in vain are told at once, or end at the next tier, without being waited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proxy.decisions.holds import FEWEST_HOLDS
from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, said, says
from tests.integration.scripted import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD_SECONDS = 0.3
BUSY = {"limits": {"concurrency": 1}, "queue": {"max": 50}, "timeouts": {"queue": "60s"}}
SHORT = {"provider": "busy", "model": "m", "queue": "50ms"}
LONG = {"provider": "busy", "model": "m", "queue": "30s"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"busy": BUSY, "spare": {}, "never": {**BUSY, "timeouts": {"queue": "0s"}}},
    "routes": [route("hasty", SHORT), route("hasty-or-spare", SHORT, "spare"), route("patient", LONG)],
}


class Crowd:
    """Calls at the busy provider: their places were held for a while each, and now one runs and some wait."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.open = asyncio.Event()
        self.calls: list[asyncio.Task[Answer]] = []

    async def learns(self) -> None:
        """Lets as many end, while others wait, as the proxy wants to know of."""

        async def holds(exchange: Exchange) -> None:
            await asyncio.sleep(HOLD_SECONDS)
            await exchange.reply(200, said("done"))

        self.lab["busy"].script = holds
        answers = await asyncio.gather(*(self.call() for _ in range(FEWEST_HOLDS + 2)))
        assert {answer.status for answer in answers} == {200}

    async def stands(self, waiting: int) -> None:
        """Lets one run and some wait behind it."""

        async def holds(exchange: Exchange) -> None:
            await self.open.wait()
            await exchange.reply(200, said("done"))

        self.lab["busy"].script = holds
        self.calls = [self.call() for _ in range(waiting + 1)]
        await self.lab.proxy.until(lambda s: ("busy", waiting) in [(q["provider"], q["waiting"]) for q in s["queues"]])

    def call(self) -> asyncio.Task[Answer]:
        """One call that waits as long as it must."""
        return asyncio.ensure_future(self.lab.call("/busy/v1/chat/completions", CHAT, within=60))

    async def ends(self) -> None:
        """Lets all end well."""
        self.open.set()
        assert {answer.status for answer in await asyncio.gather(*self.calls)} == {200}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab(POLICY) as lab:
        crowd = Crowd(lab)
        await crowd.learns()
        await crowd.stands(waiting=4)
        yield lab
        await crowd.ends()


async def test_a_hopeless_wait_is_told_at_once_with_the_time_that_it_would_take(lab: Lab) -> None:
    answer = await lab.chat("hasty")
    assert (answer.status, answer.reason, answer.attempts) == (429, "queue_timeout", 0)
    assert "longer than this request may wait" in answer.json()["error"]["message"]
    assert int(answer.header("retry-after") or 0) >= 5 * HOLD_SECONDS
    assert (await lab.proxy.line_of(answer))["queued_ms"] == 0


async def test_with_a_next_tier_a_hopeless_wait_is_not_waited_either(lab: Lab) -> None:
    lab["spare"].script = says("spare")
    answer = await lab.chat("hasty-or-spare")
    assert (answer.status, answer.provider, answer.tier) == (200, "spare", 2)
    assert (await lab.proxy.line_of(answer))["queued_ms"] == 0


async def test_who_may_wait_for_longer_waits(lab: Lab) -> None:
    patient = asyncio.ensure_future(lab.chat("patient", within=60))
    await lab.proxy.until(lambda s: ("busy", 5) in [(q["provider"], q["waiting"]) for q in s["queues"]])
    patient.cancel()
    await lab.proxy.until(lambda s: ("busy", 4) in [(q["provider"], q["waiting"]) for q in s["queues"]])


async def test_a_policy_that_lets_nobody_wait_refuses_at_once(lab: Lab) -> None:
    opened = asyncio.Event()

    async def holds(exchange: Exchange) -> None:
        await opened.wait()
        await exchange.reply(200, said("done"))

    lab["never"].script = holds
    first = asyncio.ensure_future(lab.call("/never/v1/chat/completions", CHAT))
    await lab["never"].has_seen(1)
    answer = await lab.call("/never/v1/chat/completions", CHAT)
    assert (answer.status, answer.reason) == (429, "queue_timeout")
    assert (await lab.proxy.line_of(answer))["queued_ms"] == 0
    opened.set()
    assert (await first).status == 200
