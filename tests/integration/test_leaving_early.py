"""Callers who leave before anything of an answer has been passed on to them, in phases that others do not see."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import HOST, request_bytes
from tests.integration.doors import leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT_STREAM, event, says
from tests.integration.scripted import Exchange
from tests.integration.unreachable import full_listener

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOW = pytest.mark.parametrize("how", ["reset", "close", "half-close"])
PATIENT = {"connect": "30s", "first_byte": "50s"}
ONE = {"concurrency": 1}


POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"first": {"limits": ONE, "timeouts": PATIENT}, "second": {}},
    "routes": [route("tiers", "first", "second", retry={"attempts": 3, "base": "10ms"})],
}


def asks(model: str = "tiers", *, version: bytes = b"1.1") -> bytes:
    """Returns a streaming chat's bytes."""
    data = request_bytes("POST", "/v1/chat/completions", body={**CHAT_STREAM, "model": model})
    return data.replace(b"HTTP/1.1", b"HTTP/" + version, 1)


async def leaves(lab: Lab, how: str, *, version: bytes = b"1.1", after: float = 0.1, says_nothing: bool = True) -> None:
    """Asks, waits until a call is under way and a moment more, and goes; nothing may have come until then."""
    async with lab.wire() as wire:
        await wire.send(asks(version=version))
        await lab.proxy.until(lambda status: status["permits_out"] > 0)
        await asyncio.sleep(after)
        if how == "half-close":
            wire.writer.write_eof()
        else:
            wire.leave(reset=how == "reset")
        await lab.proxy.until(lambda status: status["in_flight"] == 0)
        if says_nothing and how == "half-close":
            assert await wire.closed()
    await leaves_nothing(lab)
    line = lab.proxy.request_lines()[-1]
    assert (line["outcome"], line["attempts"]) == ("client_left", 1)
    assert not lab["second"].seen


@HOW
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_leaving_while_the_beginning_is_held_back(lab: Lab, clean: None, how: str, version: bytes) -> None:
    """Comments and the role come all the time; none of it is seen, and no other attempt takes its place."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event(None))
        while True:
            await exchange.chunk(b": wait\n\n")
            await asyncio.sleep(0.02)

    lab["first"].script = script
    await leaves(lab, how, version=version)
    await lab["first"].was_left()


@HOW
async def test_leaving_after_what_was_held_back_was_passed_on(lab: Lab, clean: None, how: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(b": wait\n\n" * 10_000)
        await asyncio.sleep(60)

    lab["first"].script = script
    await leaves(lab, how, says_nothing=False)
    await lab["first"].was_left()


@HOW
async def test_leaving_while_the_provider_is_dialled(how: str) -> None:
    """Its place is the next caller's at once, though the dial would have gone on for half a minute."""
    with full_listener() as port:
        hole = {"base_url": f"http://{HOST}:{port}/v1", "limits": ONE, "timeouts": PATIENT}
        async with Lab({**POLICY, "providers": {**POLICY["providers"], "first": hole}}) as lab:
            lab["second"].script = says("hi")
            await leaves(lab, how)
