"""The deadline of a call: arrival + `total` + what its tiers may wait; what it binds, and what it leaves alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import HOST
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, hangs
from tests.integration.scripted import Exchange
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

AT_ONCE = {"queue": "10ms", "quota_wait": "10ms"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off", "timeouts": AT_ONCE},
        "beta": {"breaker": "off", "timeouts": AT_ONCE},
        "gone": {"breaker": "off", "timeouts": AT_ONCE, "base_url": f"http://{HOST}:{free_port()}/v1"},
        "single": {
            "breaker": "off",
            "limits": {"concurrency": 1},
            "timeouts": {"queue": "5s", "quota_wait": "10ms"},
        },
    },
    "routes": [
        route("brief", "alpha", "beta", total="500ms", retry={"attempts": 1}),
        route("retried", "alpha", "beta", total="1s", retry={"attempts": 2, "base": "10ms"}),
        route("patient", "single", total="1s", retry={"attempts": 1}),
        route("spent", "gone", "alpha", total="500ms", retry={"attempts": 1}),
    ],
}


async def test_when_it_has_passed_no_later_tier_is_asked(lab: Lab) -> None:
    lab["alpha"].script = hangs
    answer = await lab.chat("brief")
    assert (answer.status, answer.reason, answer.provider, answer.attempts) == (504, "total_timeout", "alpha", 1)
    assert not lab["beta"].seen


async def test_it_binds_the_body_of_an_answer_that_is_no_stream(lab: Lab) -> None:
    async def drips(exchange: Exchange) -> None:
        await exchange.begin("application/octet-stream")
        while True:
            await exchange.chunk(b"drop")
            await asyncio.sleep(0.05)

    lab["alpha"].script = drips
    answer = await lab.chat("brief")
    assert (answer.status, answer.complete) == (200, False)
    assert (await lab.proxy.line_of(answer))["outcome"] == "total_timeout"
    await lab["alpha"].was_left()


async def test_waiting_in_the_queue_eats_nothing_of_the_total(lab: Lab) -> None:
    over = asyncio.Event()

    async def first_waits(exchange: Exchange) -> None:
        if exchange.number == 0:
            await over.wait()
        await exchange.reply(200, {})

    lab["single"].script = first_waits
    running = asyncio.ensure_future(lab.call("/single/v1/chat/completions", {"model": "m"}))
    await lab["single"].has_seen(1)
    queued = asyncio.ensure_future(lab.chat("patient"))
    await asyncio.sleep(1.3)  # longer than the route's total
    over.set()
    assert [(await call).status for call in (running, queued)] == [200, 200]
    assert (await lab.proxy.line_of(await queued))["queued_ms"] > 1000


async def test_a_told_wait_that_is_longer_than_what_is_left_goes_to_the_next_tier_now(lab: Lab) -> None:
    lab["alpha"].script = answers(503, headers=[("retry-after", "0.9")], after=0.3)
    answer = await lab.chat("retried")
    assert (answer.status, answer.provider, answer.attempts) == (200, "beta", 2)
    assert len(lab["alpha"].seen) == 1


async def test_an_earlier_tiers_failure_is_told_when_the_last_ones_time_runs_out(lab: Lab) -> None:
    lab["alpha"].script = hangs
    answer = await lab.chat("spent")
    assert (answer.status, answer.reason, answer.provider, answer.attempts) == (502, "upstream_unreachable", "gone", 2)
