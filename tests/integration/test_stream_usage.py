"""What a stream has used: read in every dialect, packed or not, whole or left or broken; never a byte changed."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.dialects.recorded import RECORDED
from tests.dialects.recorded_messages import MESSAGE_THINKING
from tests.dialects.streams import Recorded
from tests.integration.caller import request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import hangs
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "openai": {"breaker": "off"},
        "anthropic": {"breaker": "off", "dialect": "anthropic"},
    },
}
BODY = {"model": "m", "stream": True, "messages": [], "input": "hello", "max_tokens": 9}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}


def provider_of(stream: Recorded) -> str:
    """Returns who speaks the stream's dialect."""
    return "anthropic" if stream.path.endswith("messages") else "openai"


def tokens(line: dict[str, Any]) -> tuple[int, int]:
    """Returns what a log line says was used."""
    return line.get("input_tokens") or 0, line.get("output_tokens") or 0


def wanted(stream: Recorded) -> tuple[int, int]:
    """Returns what it must say of a whole stream."""
    return (stream.usage.input, stream.usage.output) if stream.usage else (0, 0)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("stream", RECORDED, ids=lambda stream: stream.name)
async def test_usage_of_a_stream_in_pieces(lab: Lab, stream: Recorded, packing: str) -> None:
    packed = PACKINGS[packing](stream.data)

    async def script(exchange: Exchange) -> None:
        await exchange.begin(headers=[("content-encoding", packing)] if packing != "identity" else [])
        for at in range(0, len(packed), 97):
            await exchange.chunk(packed[at : at + 97])
        await exchange.end()

    provider = provider_of(stream)
    lab[provider].script = script
    answer = await lab.call(f"/{provider}{stream.path}", BODY, headers=[("accept-encoding", "gzip, deflate")])
    assert (answer.status, answer.complete, answer.body) == (200, True, packed)
    line = await lab.proxy.line_of(answer)
    assert tokens(line) == wanted(stream)
    assert line["outcome"] == ("error_in_answer" if stream.error else "ok")


@pytest.mark.parametrize("leaves", [pytest.param(True, id="left"), pytest.param(False, id="broken")])
async def test_usage_that_was_told_before_the_end_counts(lab: Lab, leaves: bool) -> None:
    """A message tells its input at once, and its output as it grows."""
    told = MESSAGE_THINKING.data.rpartition(b"event: message_delta")[0]

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(told)
        if leaves:
            await hangs(exchange)
        exchange.close()

    lab["anthropic"].script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/anthropic/v1/messages", body=BODY))
        await (wire.reader.readuntil(told[-40:]) if leaves else wire.answer())
    await lab.idle()
    line = lab.proxy.request_lines()[-1]
    assert line["outcome"] == ("client_left" if leaves else "stream_broken")
    assert tokens(line) == (2572, 40)
