"""Connections to providers: reused, never trusted blindly, bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, event, hangs, says, streams
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

NO_RETRY = {"attempts": 1}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "closing": {"breaker": "off"},
        "idle": {"breaker": "off", "connections": {"idle": "200ms"}},
        "bounded": {"connections": {"max": 2}, "timeouts": {"queue": "5s"}},
        "many": {},
        "returns": {"breaker": "off", "timeouts": {"connect": "500ms"}},
    },
    "routes": [
        route("once", "closing", retry=NO_RETRY),
        route("twice", "closing", retry={"attempts": 2, "base": "10ms"}),
        route("careful", "closing", repeatable=False, retry={"attempts": 2, "base": "10ms"}),
        route("returns", "returns", retry=NO_RETRY),
    ],
}


async def test_connections_are_reused(lab: Lab) -> None:
    for _ in range(30):
        assert (await lab.call("/alpha/v1/chat/completions", CHAT)).status == 200
    assert len({request.connection for request in lab["alpha"].seen}) == 1


async def test_connection_of_a_finished_stream_is_reused(lab: Lab) -> None:
    lab["alpha"].script = streams(event("a"), DONE)
    for _ in range(5):
        assert (await lab.call("/alpha/v1/chat/completions", CHAT_STREAM)).complete
    assert len({request.connection for request in lab["alpha"].seen}) == 1


def closes_afterwards(seconds: float) -> Script:
    """A provider that answers well and closes the idle connection a moment later."""

    async def script(exchange: Exchange) -> None:
        await exchange.reply(200, b"ok")
        await asyncio.sleep(seconds)
        exchange.close()

    return script


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.0), (0.0, 0.05), (0.05, 0.15)])
async def test_connection_that_the_provider_closed_fails_no_request(lab: Lab, seconds: float, pause: float) -> None:
    lab["closing"].script = closes_afterwards(seconds)
    for _ in range(5):
        answer = await lab.chat("twice")
        assert answer.status == 200
        await asyncio.sleep(pause)
    if pause:
        assert len(lab["closing"].seen) == 5


async def test_bytes_on_an_idle_connection_are_never_an_answer(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.reply(200, b"right")
        if exchange.number == 0:
            await asyncio.sleep(0.02)
            await exchange.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 5\r\n\r\nwrong")

    lab["closing"].script = script
    assert (await lab.chat("once")).body == b"right"
    await asyncio.sleep(0.1)
    answer = await lab.chat("once")
    assert (answer.status, answer.body, answer.attempts) == (200, b"right", 1)
    first, second = lab["closing"].seen
    assert first.connection != second.connection


async def closes_on_the_second(exchange: Exchange) -> None:
    """A provider that closes a reused connection instead of answering."""
    if exchange.number == 1:
        exchange.close()
    else:
        await exchange.reply(200, b"ok")


async def test_close_on_receipt_costs_an_attempt_where_the_call_is_repeatable(lab: Lab) -> None:
    lab["closing"].script = closes_on_the_second
    assert (await lab.chat("twice")).attempts == 1
    answer = await lab.chat("twice")
    assert (answer.status, answer.attempts, len(lab["closing"].seen)) == (200, 2, 3)


async def test_close_on_receipt_is_not_silently_repeated_where_it_is_not(lab: Lab) -> None:
    lab["closing"].script = closes_on_the_second
    assert (await lab.chat("careful")).attempts == 1
    answer = await lab.chat("careful")
    assert (answer.status, answer.reason, len(lab["closing"].seen)) == (504, "maybe_executed", 2)


async def test_idle_connection_is_closed_before_it_grows_old(lab: Lab) -> None:
    assert (await lab.call("/idle/v1/x", CHAT)).status == 200
    await lab.proxy.until(
        lambda status: all(row["idle"] == 0 for row in status["connections"] if row["provider"] == "idle")
    )
    assert (await lab.call("/idle/v1/x", CHAT)).status == 200
    first, second = lab["idle"].seen
    assert first.connection != second.connection


async def test_connections_to_a_provider_are_bounded(lab: Lab) -> None:
    lab["bounded"].script = says("hi", after=0.1)
    calls = await asyncio.gather(*(lab.call("/bounded/v1/x", CHAT) for _ in range(6)))
    assert {call.status for call in calls} == {200}
    assert lab["bounded"].peak == 2
    assert lab["bounded"].accepted == 2


async def test_many_open_streams_hinder_no_short_call(lab: Lab) -> None:
    policy = {"version": 1, "providers": {"many": {"connections": {"max": 200}}}}
    async with Lab(policy) as crowded:
        provider = crowded["many"]
        provider.script = hangs
        running = [asyncio.ensure_future(crowded.call("/many/v1/chat/completions", CHAT_STREAM)) for _ in range(150)]
        await provider.has_seen(150, within=10)
        provider.script = says("quick")
        answer = await crowded.call("/many/v1/chat/completions", CHAT)
        assert (answer.status, answer.seconds < 1) == (200, True)
        for call in running:
            call.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_one_hanging_provider_hinders_no_other(lab: Lab) -> None:
    lab["bounded"].script = hangs
    running = [asyncio.ensure_future(lab.call("/bounded/v1/x", CHAT)) for _ in range(2)]
    await lab["bounded"].has_seen(2)
    answer = await lab.call("/alpha/v1/x", CHAT)
    assert (answer.status, answer.seconds < 1) == (200, True)
    assert (await lab.proxy.get("/livez")).status == 200
    for call in running:
        call.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_provider_that_comes_back_is_used_at_once(lab: Lab) -> None:
    assert (await lab.chat("returns")).status == 200
    provider = lab["returns"]
    provider.refuse()
    provider.script = closes_afterwards(0)
    await lab.chat("returns")
    await asyncio.sleep(0.05)
    answer = await lab.chat("returns")
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")
    await provider.listen_again()
    assert (await lab.chat("returns")).status == 200
