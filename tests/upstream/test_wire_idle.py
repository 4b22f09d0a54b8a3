"""Bytes that nobody asked for are nobody's answer, whenever they come."""

from __future__ import annotations

import asyncio

import pytest

from proxy.outcome import OutcomeKind
from proxy.upstream.wire import UpstreamConnection
from tests.upstream.peer import ASK, OK, PeerWire, ask, dialled, until
from tests.upstream.rig import rigged

HEAD = b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n"
ANSWERS = {
    "length": OK,
    "length 0": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "trailer": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
    "204": b"HTTP/1.1 204 No Content\r\n\r\n",
    "head": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
}
PARTS = {
    "a letter": b"H",
    "a status line": b"HTTP/1.1 200 OK\r\n",
    "a field without its end": b"HTTP/1.1 200 OK\r\nx-junk: ",
    "a head without its end": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length",
    "a whole answer": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "an interim answer": b"HTTP/1.1 103 Early Hints\r\n\r\n",
}


async def asked(connection: UpstreamConnection, name: str) -> None:
    head = name == "head"
    await ask(connection, head=HEAD if head else ASK, body=not head)
    connection.rest(0.0)


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_connection_that_rests_in_silence_serves_again_and_again(name: str) -> None:
    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await wire.send(ANSWERS[name])

    async with dialled(script) as connection:
        for _ in range(4):
            await asked(connection, name)
            assert connection.usable


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ANSWERS)
async def test_what_came_along_with_an_answer_ends_the_use_of_its_connection(name: str, part: str) -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(ANSWERS[name] + PARTS[part])
        await wire.gone()

    async with dialled(script) as connection:
        await asked(connection, name)
        assert not connection.usable


@pytest.mark.parametrize("part", [*PARTS, "an empty line", "no answer"])
async def test_what_came_while_a_connection_rested_ends_its_use(part: str) -> None:
    spoken = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(OK)
        await spoken.wait()
        await wire.send({**PARTS, "an empty line": b"\r\n", "no answer": b"\x16\x03"}[part])
        await wire.gone()

    async with dialled(script) as connection:
        await asked(connection, "length")
        assert connection.usable
        spoken.set()
        await until(lambda: not connection.usable)


@pytest.mark.parametrize("together", [True, False], ids=["with the answer", "while idle"])
async def test_half_a_head_does_not_become_the_beginning_of_the_next_answer(together: bool) -> None:
    spoken = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(OK + b"HTTP/1.1 200 OK\r\nx-junk: " * together)
        if not together:
            await spoken.wait()
            await wire.send(b"HTTP/1.1 200 OK\r\nx-junk: ")
        if await wire.request():
            await wire.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    async with rigged(script) as rig:
        await rig.call()
        kept = rig.pool._idle[0]
        spoken.set()
        await until(lambda: not kept.usable)
        outcome, attempt = await rig.call()
        assert (outcome.kind, attempt.reused, rig.peer.connections) == (OutcomeKind.OK, False, 2)
        assert rig.reply.headers == []
