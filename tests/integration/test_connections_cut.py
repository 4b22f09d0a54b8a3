"""Kept connections that end while a request is on its way on them: a large one, which is being written still."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"closing": {"breaker": "off"}},
    "routes": [
        route("twice", "closing", retry={"attempts": 2, "base": "10ms"}, body={"replay": "16MiB"}),
        route("careful", "closing", repeatable=False, retry={"attempts": 2, "base": "10ms"}),
    ],
}
LARGE = "x" * (4 << 20)
STALE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def cuts_the_second(way: str) -> Any:
    """A provider that serves a connection once, and then ends it at the head of the next request."""

    async def script(exchange: Exchange) -> None:
        if exchange.number == 1:
            if way == "408":
                await exchange.send(STALE)
            (exchange.reset if way == "resets" else exchange.close)()
            return
        await exchange.read_body()
        await exchange.reply(200, b"ok")

    return script


async def ask(lab: Lab, model: str, text: str) -> Any:
    body = {**CHAT, "model": model, "messages": [{"role": "user", "content": text}]}
    return await lab.call(body=body, within=30)


@pytest.mark.parametrize("way", ["closes", "resets", "408"])
async def test_what_may_be_repeated_is_repeated_on_a_new_connection(lab: Lab, way: str) -> None:
    provider = lab["closing"]
    provider.reads_bodies = False
    provider.script = cuts_the_second(way)
    assert (await ask(lab, "twice", "small")).status == 200
    answer = await ask(lab, "twice", LARGE)
    assert (answer.status, answer.body, answer.attempts) == (200, b"ok", 2)
    first, second, third = provider.seen
    assert first.connection == second.connection != third.connection
    assert len(third.body) > len(LARGE)


@pytest.mark.parametrize("way", ["closes", "resets"])
async def test_what_must_not_be_repeated_is_sent_once_and_that_is_told(lab: Lab, way: str) -> None:
    provider = lab["closing"]
    provider.reads_bodies = False
    provider.script = cuts_the_second(way)
    assert (await ask(lab, "careful", "small")).status == 200
    answer = await ask(lab, "careful", LARGE)
    assert (answer.status, answer.reason, len(provider.seen)) == (504, "maybe_executed", 2)
