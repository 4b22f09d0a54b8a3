"""Streams: pieces pass as they come and unchanged; what holds them up, and what may not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT_STREAM, DONE, event, streams
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "beta": {"breaker": "off"},
        "metered": {"breaker": "off", "limits": {"tpm": 1_000_000}},
        "brief": {"breaker": "off", "timeouts": {"idle": "800ms"}},
    },
    "routes": [
        route("tiers", "alpha", "beta", retry={"attempts": 3, "base": "10ms"}),
        route("bounded", "alpha", total="800ms", retry={"attempts": 1}),
    ],
}
UNICODE = ["日本語", "🧑‍🚀🚀", "e\u0301", "ﬀ", "\u2028"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        "text/event-stream",
        "application/x-ndjson",
        "application/json",
        "application/octet-stream",
        "application/vnd.amazon.eventstream",
    ],
)
async def test_every_piece_passes_at_once(lab: Lab, kind: str, stream: bool) -> None:
    """The provider sends a piece only when the caller has got the one before."""
    arrived = asyncio.Event()

    def came(data: bytes) -> None:
        arrived.set()

    async def script(exchange: Exchange) -> None:
        await exchange.begin(kind)
        for number in range(8):
            arrived.clear()
            await exchange.chunk(event(str(number)))
            async with asyncio.timeout(5):
                await arrived.wait()
        await exchange.end()

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(
            request_bytes("POST", "/v1/chat/completions", body={**CHAT_STREAM, "model": "tiers", "stream": stream})
        )
        answer = await wire.answer(on_piece=came)
    assert answer.complete
    assert answer.header("content-type") == kind
    assert answer.body == b"".join(event(str(number)) for number in range(8))


CHUNKED = b"transfer-encoding: chunked"
HEADS = {
    "plain text": b"200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n" + CHUNKED,
    "shouted events": b"200 OK\r\nContent-Type: TEXT/EVENT-STREAM\r\n" + CHUNKED,
    "no type": b"200 OK\r\n" + CHUNKED,
    "json lines": b"201 Made\r\ncontent-type: application/jsonl\r\n" + CHUNKED,
    "packed json": b"200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n" + CHUNKED,
    "events in brotli": b"200 OK\r\ncontent-encoding: br\r\ncontent-type: text/event-stream\r\n" + CHUNKED,
    "json with a length": b"200 OK\r\ncontent-type: application/json\r\ncontent-length: 160",
    "until the end": b"200 OK\r\ncontent-type: application/x-ndjson",
    "an error": b"404 No\r\ncontent-type: application/json\r\n" + CHUNKED,
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/unheard/of"])
@pytest.mark.parametrize("name", HEADS)
async def test_every_piece_passes_at_once_whatever_its_head_says(lab: Lab, name: str, path: str) -> None:
    """Twenty bytes go out only when the caller has the twenty before."""
    arrived = asyncio.Event()
    chunked = b"chunked" in HEADS[name]
    pieces = [b'{"n": %d, "p": "%02d"}\n' % (number, number * 7) for number in range(8)]
    assert [len(piece) for piece in pieces] == [20] * 8

    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 " + HEADS[name] + b"\r\n\r\n")
        for piece in pieces:
            arrived.clear()
            await (exchange.chunk if chunked else exchange.send)(piece)
            async with asyncio.timeout(5):
                await arrived.wait()
        if chunked:
            await exchange.end()
        elif b"length" not in HEADS[name]:
            exchange.close()

    lab["metered"].script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/metered" + path, body={"model": "m", "messages": [], "max_tokens": 9}))
        answer = await wire.answer(on_piece=lambda piece: arrived.set())
    assert (answer.complete, answer.body) == (True, b"".join(pieces))


def whole_stream() -> bytes:
    """Returns a stream of every grammar that the standard allows, with characters of several bytes."""
    texts = b"".join(event(text) for text in UNICODE)
    raw = "".join(f'data: {{"choices":[{{"delta":{{"content":"{text}"}}}}]}}\n\n' for text in UNICODE).encode()
    odd = (
        b": OPENROUTER PROCESSING\n\n:\n\nretry: 3000\n\nid: 7\nevent: ping\ndata: {}\n\n"
        b'data:{"choices":[{"delta":{"content":"x"}}]}\r\n\r\n'
        b'data: {"choices":\ndata: [{"delta":{"content":"y"}}]}\r\r'
    )
    return odd + texts + raw + DONE + b": after the end\n\ndata: unended"


@pytest.mark.parametrize("framed", [True, False], ids=["one chunk a byte", "one write a byte"])
async def test_stream_written_byte_by_byte_arrives_identical(lab: Lab, framed: bool) -> None:
    data = whole_stream()

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        if framed:
            for at in range(len(data)):
                await exchange.chunk(data[at : at + 1])
                await asyncio.sleep(0)
        else:
            wire = b"%x\r\n%b\r\n" % (len(data), data)
            for at in range(len(wire)):
                await exchange.send(wire[at : at + 1])
                await asyncio.sleep(0)
        await exchange.end()

    lab["alpha"].script = script
    answer = await lab.chat("tiers", stream=True)
    assert (answer.status, answer.provider, answer.complete) == (200, "alpha", True)
    assert answer.body == data


async def test_what_was_held_back_is_passed_on_unchanged(lab: Lab) -> None:
    parts = [b"\xef\xbb\xbf: hello\n\n", event(None), b"event: ping\ndata: {}\n\n", event("a"), DONE]
    lab["alpha"].script = streams(*parts, gap=0.02)
    answer = await lab.chat("tiers", stream=True)
    assert answer.body == b"".join(parts)
    assert answer.provider == "alpha"


async def test_beginning_without_content_is_held_back_for_two_seconds_at_most(lab: Lab) -> None:
    """The provider goes on only when the caller has what was held."""
    arrived = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event(None))
        async with asyncio.timeout(10):
            await arrived.wait()
        await exchange.chunk(event("a"))
        await exchange.chunk(DONE)
        await exchange.end()

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/v1/chat/completions", body={**CHAT_STREAM, "model": "tiers"}))
        answer = await wire.answer(on_piece=lambda piece: arrived.set())
    assert (answer.complete, answer.provider) == (True, "alpha")
    assert answer.pieces[0][1] == event(None)
    assert answer.body == event(None) + event("a") + DONE


async def test_events_keep_a_stream_alive(lab: Lab) -> None:
    lab["brief"].script = streams(*[event("a"), b": ping\n\n"] * 4, DONE, gap=0.15)
    answer = await lab.call("/brief/v1/chat/completions", CHAT_STREAM)
    assert answer.complete
    assert answer.body.endswith(DONE)


async def test_total_does_not_bind_a_stream_that_has_begun(lab: Lab) -> None:
    lab["alpha"].script = streams(*[event("a")] * 6, DONE, gap=0.15)
    answer = await lab.chat("bounded", stream=True)
    assert (answer.complete, answer.body.count(b"data:")) == (True, 7)


async def test_caller_that_does_not_read_holds_the_provider_back(lab: Lab) -> None:
    # Far more than the sockets of both connections and this test's own reader take by themselves.
    size, sent = 96 << 20, 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.begin("application/octet-stream")
        for _ in range(size >> 16):
            await exchange.chunk(b"y" * 65536)
            sent += 65536
        await exchange.end()

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(request_bytes("GET", "/alpha/v1/files/f/content"))
        await lab["alpha"].has_seen(1)
        held = -1
        while held != sent or not sent:
            held = sent
            await asyncio.sleep(0.25)
        assert held < size
        answer = await wire.answer(method="GET")
    assert (answer.complete, len(answer.body)) == (True, size)
