"""`answer: {p95, plus}` over the wire: a provider that hangs is left at the learned limit, not after ten minutes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.decisions.pace import FEWEST_CALLS
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, event, hangs, says, streams
from tests.integration.scripted import Exchange

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECOND = 0.02
PATH = "/paced/v1/chat/completions"
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"paced": {"breaker": "off", "timeouts": {"answer": {"p95": 1.5, "plus": "1s"}}}},
    "routes": [],
}


async def known(lab: Lab) -> dict[str, Any]:
    """What `/status` shows of the target's pace."""
    row: dict[str, Any] = await lab.row("paces", provider="paced", model="m")
    return row


async def measured(lab: Lab) -> int:
    """Lets the target answer until its pace is known; returns how many calls are remembered."""
    lab["paced"].script = says("hi", after=SECOND)
    for _ in range(FEWEST_CALLS // 5):
        answers = await asyncio.gather(*(lab.call(PATH, CHAT) for _ in range(5)))
        assert [answer.status for answer in answers] == [200] * 5
    row = await known(lab)
    assert row["p95"] >= SECOND
    calls: int = row["calls"]
    assert calls >= FEWEST_CALLS
    return calls


async def test_a_provider_that_begins_to_hang_is_left_at_the_limit_that_its_answers_set(lab: Lab) -> None:
    calls = await measured(lab)
    lab["paced"].script = hangs
    answer = await lab.call(PATH, CHAT, within=60.0)
    assert (answer.status, answer.reason) == (504, "answer_timeout")
    assert (await known(lab))["calls"] == calls + 1


async def test_a_stream_is_bound_by_its_first_byte_and_not_by_the_pace(lab: Lab) -> None:
    calls = await measured(lab)
    paced, over = lab["paced"], asyncio.Event()

    async def late(exchange: Exchange) -> None:
        await over.wait()
        await streams(event("hi"), DONE)(exchange)

    paced.forget()
    paced.script = late
    stream = asyncio.ensure_future(lab.call(PATH, CHAT_STREAM, within=60.0))
    await paced.has_seen(1)
    other = await lab.call(PATH, CHAT, within=60.0)
    assert other.reason == "answer_timeout", "it began after the stream, which goes on"
    over.set()
    assert (await stream).complete
    assert (await known(lab))["calls"] == calls + 1
