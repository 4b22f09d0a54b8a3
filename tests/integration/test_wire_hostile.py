"""Hostile bytes from either side harm nobody else: one call fails, the next is good, nothing stays behind."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.caller import request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, CHAT_STREAM, event
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}},
}
PATH = "/alpha/v1/files"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = b"z" * 65536
BEFORE_THE_END = {
    "phrase": (b"HTTP/1.1 200 ", PIECE),
    "value": (b"HTTP/1.1 200 OK\r\nx: ", PIECE),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" * 1024),
    "trailer": (CHUNKED + b"2\r\nhe\r\n0\r\nx: ", PIECE),
    "chunk extension": (CHUNKED + b"2\r\nhe\r\n2;a=", PIECE),
}


@pytest.mark.parametrize("name", BEFORE_THE_END)
async def test_an_answer_that_never_ends_is_a_failure_or_a_break_that_can_be_seen(lab: Lab, name: str) -> None:
    begin, more = BEFORE_THE_END[name]

    async def script(exchange: Exchange) -> None:
        await exchange.send(begin)
        while True:
            await exchange.send(more)
            await asyncio.sleep(0)

    lab["alpha"].script = script
    answer = await lab.call(PATH, {})
    # A call that must not be repeated may have been executed.
    assert answer.status in (502, 504) or not answer.complete
    await lab["alpha"].was_left()
    lab["alpha"].forget()
    await again(lab)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
async def test_a_body_that_comes_late_after_a_204_is_no_answer_to_the_next_call(lab: Lab, answer: bytes) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(answer)
        await asyncio.sleep(0.01)
        await exchange.send(b"HTTP/1.1 500 Hidden\r\ncontent-length: 0\r\n\r\n")

    lab["alpha"].script = script
    assert (await lab.call(PATH, {})).status == 204
    await again(lab)
    assert lab["alpha"].seen[1].connection != lab["alpha"].seen[0].connection


async def again(lab: Lab) -> None:
    """Another call is answered well."""

    async def script(exchange: Exchange) -> None:
        await exchange.reply(200, {"said": "well"})

    lab["alpha"].script = script
    assert (await lab.call(PATH, {})).json() == {"said": "well"}


async def test_after_a_large_body_that_nobody_wanted_the_connection_serves_or_ends(lab: Lab) -> None:
    body = bytes(300_000)
    for path in ("/sponson/unknown", PATH):
        for pause in (0.0, 0.01):
            async with lab.wire() as wire:
                head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body))
                await wire.send(head)
                await asyncio.sleep(pause)
                await wire.send(body)
                answer = await wire.answer()
                assert answer.complete
                if answer.header("connection") != "close":
                    await wire.send(request_bytes("GET", PATH))
                    assert (await wire.answer(method="GET")).status == 200


async def test_offers_to_upgrade_by_the_hundred_are_declined_one_by_one(lab: Lab) -> None:
    offer = request_bytes("GET", PATH, headers=[("connection", "Upgrade"), ("upgrade", "websocket")])
    async with lab.wire() as wire:
        sending = asyncio.ensure_future(wire.send(offer * 600))
        for _ in range(600):
            assert (await wire.answer(method="GET")).status == 200
        await sending
    assert not any(request.header("upgrade") or request.header("connection") for request in lab["alpha"].seen)


STEPS = {
    "part of the head": request_bytes("POST", PATH, body=CHAT)[:30],
    "part of the body": request_bytes("POST", PATH, body=CHAT)[:-5],
    "part of an upload": b"POST /alpha/v1/files HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "waiting": request_bytes("POST", PATH, body=CHAT),
    "waiting, another behind": request_bytes("POST", PATH, body=CHAT) * 3,
    "in a stream": request_bytes("POST", "/alpha/v1/chat/completions", body=CHAT_STREAM),
}


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "fin"])
@pytest.mark.parametrize("step", STEPS)
async def test_clients_that_leave_at_any_step_leave_nothing_behind(lab: Lab, step: str, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        if step == "in a stream":
            await exchange.begin()
            await exchange.chunk(event("one"))
        await asyncio.sleep(60)

    lab["alpha"].script = script
    for number in range(20):
        async with lab.wire() as wire:
            await wire.send(STEPS[step])
            if step in ("waiting", "waiting, another behind", "in a stream"):
                await lab["alpha"].has_seen(number + 1)
            wire.leave(reset=reset)
    await lab.idle()
    assert len(lab["alpha"].seen) in (0, 20)
    await again(lab)


async def test_a_thousand_callers_at_once_are_answered(lab: Lab) -> None:
    wires = [lab.wire() for _ in range(1000)]
    await asyncio.gather(*(wire.__aenter__() for wire in wires))
    try:
        for _ in range(2):
            for wire in wires:
                await wire.send(request_bytes("GET", PATH))
            answers = await asyncio.gather(*(wire.answer(method="GET") for wire in wires))
            assert {(answer.status, answer.complete) for answer in answers} <= {(200, True), (429, True)}
            assert (200, True) in {(answer.status, answer.complete) for answer in answers}
    finally:
        await asyncio.gather(*(wire.__aexit__(None, None, None) for wire in wires))
    await lab.idle()
    await again(lab)
