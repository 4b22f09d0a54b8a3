"""Streams that are kept or shared: byte for byte, from the first event to the last, at everybody's own pace."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.dialects.recorded import RECORDED
from tests.dialects.streams import CHAT as CHAT_WITH_USAGE
from tests.dialects.streams import Recorded
from tests.integration.caller import HOST, Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT_STREAM, DONE, event, in_turn
from tests.integration.scripted import Exchange, Script

WAIT = 30.0
ONCE = {"attempts": 1}
CACHE = {"ttl": "1h"}
PATIENT = {"idle": "20s", "first_byte": "60s"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "openai": {"breaker": "off", "timeouts": PATIENT},
        "anthropic": {"breaker": "off", "dialect": "anthropic", "timeouts": PATIENT},
        "hasty": {"breaker": "off", "timeouts": {**PATIENT, "idle": "8s"}},
    },
    "routes": [
        route("hasty", "hasty", cache=CACHE, retry=ONCE),
        route("messages", "anthropic", match={"path": "/v1/messages"}, cache=CACHE, retry=ONCE),
        route("all", "openai", match={"path": "*"}, cache=CACHE, retry=ONCE),
    ],
}
PACKINGS: dict[str, Callable[[bytes], bytes]] = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}
PATH = "/v1/chat/completions"
END = b"0\r\n\r\n"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


def used(answer: Answer) -> str | None:
    """Returns what part the cache had."""
    return answer.header("x-sponson-cache")


def body(case: str, **more: Any) -> dict[str, Any]:
    """Returns the body of a test's own stream."""
    return {**CHAT_STREAM, "input": "hello", "max_tokens": 9, "case": case, **more}


def pieces(data: bytes, size: int, packing: str = "identity") -> Script:
    """A provider that sends a stream in pieces of this size."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin(headers=[("content-encoding", packing)] if packing != "identity" else [])
        for at in range(0, len(data), size):
            await exchange.chunk(data[at : at + size])
        await exchange.end()

    return script


async def joined(lab: Lab, count: int) -> None:
    """Waits until so many have joined a call since the lab began."""
    await lab.proxy.until(lambda status: status["single_flight"]["joined"] == count, within=WAIT)


async def joined_so_far(lab: Lab) -> int:
    """Returns how many have joined a call."""
    count: int = (await lab.proxy.status())["single_flight"]["joined"]
    return count


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("stream", RECORDED, ids=lambda stream: stream.name)
async def test_a_whole_stream_is_given_again_byte_for_byte(lab: Lab, stream: Recorded, packing: str) -> None:
    provider = lab["anthropic" if stream.path.endswith("messages") else "openai"]
    packed = PACKINGS[packing](stream.data)
    provider.script = pieces(packed, 97, packing)
    ask = body(f"{stream.name} {packing}")
    asked = [await lab.call(stream.path, ask, headers=[("accept-encoding", "gzip, deflate")]) for _ in range(3)]
    assert {answer.body for answer in asked} == {packed}
    assert {answer.header("content-encoding") for answer in asked} == {None if packing == "identity" else packing}
    assert {answer.header("content-type") for answer in asked} == {"text/event-stream"}
    again = "miss" if stream.error is not None or not stream.done else "hit"
    assert [used(answer) for answer in asked] == ["miss", again, again]
    assert [answer.complete for answer in asked[1:]] == [True, True]
    if again == "hit" and stream.usage is not None:
        line = await lab.proxy.line_of(asked[2])
        assert (line["saved_input_tokens"], line["saved_output_tokens"]) == (stream.usage.input, stream.usage.output)


async def test_who_did_not_ask_for_usage_is_told_none_and_who_did_is(lab: Lab) -> None:
    plain = event(None) + event("hi") + DONE

    async def script(exchange: Exchange) -> None:
        options = exchange.request.json().get("stream_options") or {}
        await pieces(CHAT_WITH_USAGE.data if options.get("include_usage") else plain, 50)(exchange)

    lab["openai"].script = script
    without, asks = body("usage"), body("usage", stream_options={"include_usage": True})
    told = [await lab.call(PATH, ask) for ask in (without, asks, without, asks)]
    assert [used(answer) for answer in told] == ["miss", "miss", "hit", "hit"]
    assert [b'"usage":{' in answer.body for answer in told] == [False, True, False, True]
    assert [told[2].body, told[3].body] == [told[0].body, told[1].body]
    assert (await lab.proxy.line_of(told[3]))["saved_output_tokens"] == 3


@pytest.mark.parametrize("packing", ["identity", "gzip"])
async def test_who_comes_late_gets_the_part_before_and_then_what_comes(lab: Lab, packing: str) -> None:
    whole = PACKINGS[packing](event(None) + event("one ") + event("two") + DONE)
    steps = [asyncio.Event() for _ in range(3)]
    cuts = [0, len(whole) // 3, 2 * len(whole) // 3, len(whole)]

    async def script(exchange: Exchange) -> None:
        await exchange.begin(headers=[("content-encoding", packing)] if packing != "identity" else [])
        for step, begin, end in zip(steps, cuts, cuts[1:], strict=False):
            await exchange.chunk(whole[begin:end])
            await step.wait()
        await exchange.end()

    lab["openai"].script = script
    ask, before = body(f"late {packing}"), await joined_so_far(lab)
    headers = [("accept-encoding", "gzip")]
    callers = [asyncio.ensure_future(lab.call(PATH, ask, headers=headers))]
    await lab["openai"].has_seen(1, within=WAIT)
    for number, step in enumerate(steps):
        callers += [asyncio.ensure_future(lab.call(PATH, ask, headers=headers)) for _ in range(2)]
        await joined(lab, before + 2 * number + 2)
        step.set()
    told = await asyncio.gather(*callers)
    assert {answer.body for answer in told} == {whole}
    assert [used(answer) for answer in told] == ["miss"] + ["shared"] * 6
    assert all(answer.complete for answer in told)
    assert len(lab["openai"].seen) == 1


@pytest.mark.parametrize("by", [Exchange.reset, Exchange.close], ids=["reset", "closed"])
async def test_a_stream_that_breaks_breaks_for_all_who_are_there_and_for_nobody_after(
    lab: Lab, by: Callable[[Exchange], None]
) -> None:
    gate = asyncio.Event()

    async def breaks(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("half"))
        await gate.wait()
        by(exchange)

    lab["openai"].script = in_turn(breaks, pieces(event("whole") + DONE, 9))
    ask, before = body(f"break {by.__name__}"), await joined_so_far(lab)
    callers = [asyncio.ensure_future(lab.call(PATH, ask)) for _ in range(4)]
    await joined(lab, before + 3)
    gate.set()
    for told in await asyncio.gather(*callers):
        assert told.body.startswith(event("half"))
        assert b'"error"' in told.body
        assert not told.complete
    after = [await lab.call(PATH, ask) for _ in range(2)]
    assert [(used(answer), answer.body) for answer in after] == [
        ("miss", event("whole") + DONE),
        ("hit", event("whole") + DONE),
    ]


class Deaf:
    """A caller that reads no more of its answer than it says, and whose system keeps little for it."""

    def __init__(self, lab: Lab, ask: dict[str, Any]) -> None:
        self._port, self._ask = lab.proxy.port, ask
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self._socket.setblocking(False)

    async def __aenter__(self) -> Deaf:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (HOST, self._port))
        await loop.sock_sendall(self._socket, request_bytes("POST", PATH, body=self._ask))
        assert await self.read()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def read(self) -> bytes:
        """Reads a little."""
        return await asyncio.get_running_loop().sock_recv(self._socket, 1 << 16)

    async def reads_to(self, end: bytes) -> int:
        """Reads on until something has come; returns how many bytes it took."""
        read, last = 0, b""
        async with asyncio.timeout(WAIT):
            while end not in last:
                data = await self.read()
                assert data, "the answer ends before its end"
                read, last = read + len(data), last[-len(end) :] + data
        return read


async def test_one_who_does_not_read_holds_up_nobody(lab: Lab) -> None:
    rest, gate = b"".join(event("x" * 60_000) for _ in range(40)) + DONE, asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("first"))
        await gate.wait()
        for at in range(0, len(rest), 50_000):
            await exchange.chunk(rest[at : at + 50_000])
        await exchange.end()

    lab["openai"].script = script
    ask, before = body("slow"), await joined_so_far(lab)
    async with Deaf(lab, ask) as deaf:
        callers = [asyncio.ensure_future(lab.call(PATH, ask, within=WAIT)) for _ in range(3)]
        await joined(lab, before + 3)
        gate.set()
        told = await asyncio.gather(*callers)
        assert {(answer.complete, answer.body) for answer in told} == {(True, event("first") + rest)}
        hit = await lab.call(PATH, ask)
        assert (used(hit), hit.body) == ("hit", event("first") + rest), "kept while one has not read it"
        assert await deaf.reads_to(END) > len(rest)


async def test_one_who_reads_nothing_of_a_large_stream_is_let_go_before_the_others_suffer(lab: Lab) -> None:
    gate, count = asyncio.Event(), 160

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("first"))
        await gate.wait()
        for _ in range(count):
            await exchange.chunk(event("x" * 100_000))
        await exchange.chunk(DONE)
        await exchange.end()

    lab["hasty"].script = script
    ask, before = body("large", model="hasty"), await joined_so_far(lab)
    async with Deaf(lab, ask):
        reads = asyncio.ensure_future(lab.call(PATH, ask, within=WAIT))
        await joined(lab, before + 1)
        gate.set()
        told = await reads
        assert told.complete
        assert len(told.body) == len(event("first") + DONE) + count * len(event("x" * 100_000))
    again = asyncio.ensure_future(lab.call(PATH, ask, within=WAIT))
    assert (used(await again), len(lab["hasty"].seen)) == ("miss", 2), "too large to be kept"


async def test_every_cut_of_a_stream_is_the_same_answer(lab: Lab) -> None:
    ends = {}
    for size in (1, 2, 3, 7, 64, 100_000):
        lab["openai"].script = pieces(CHAT_WITH_USAGE.data, size)
        ask = body("cut", size=size)
        first, again = await lab.call(PATH, ask), await lab.call(PATH, ask)
        assert used(again) == "hit"
        ends[size] = (first.body, again.body)
    assert set(ends.values()) == {(CHAT_WITH_USAGE.data, CHAT_WITH_USAGE.data)}


async def test_nothing_is_left(lab: Lab) -> None:
    await lab.idle()
    status = await lab.proxy.until(
        lambda status: (
            status["single_flight"]["running"] == status["refreshes"]["running"] == status["bodies"]["bytes"] == 0
        ),
        within=WAIT,
    )
    assert status["idempotency"]["bytes"] == 0, json.dumps(status["idempotency"])
