"""Providers that send what nobody should: endless framing, storms of heads, bodies where none may be."""

from __future__ import annotations

import asyncio

import pytest

from proxy.body import BodyBroken
from proxy.fields import MAX_FIELDS, MAX_HEAD
from proxy.outcome import OutcomeKind
from proxy.upstream.answer import MalformedAnswer
from tests.upstream.peer import ASK, OK, PeerWire, answering, ask, dialled, until
from tests.upstream.rig import rigged

MUCH = 1 << 25
PIECE = b"z" * 65536
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENDLESS = {
    "a phrase": (b"HTTP/1.1 200 ", PIECE),
    "a name": (b"HTTP/1.1 200 OK\r\n", PIECE),
    "a value": (b"HTTP/1.1 200 OK\r\nx: ", PIECE),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 8192),
    "empty lines": (b"", b"\r\n" * 32768),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" * 1024),
    "a trailer's value": (CHUNKED + b"2\r\nhe\r\n0\r\nx: ", PIECE),
    "a trailer's name": (CHUNKED + b"2\r\nhe\r\n0\r\n", PIECE),
    "trailers": (CHUNKED + b"2\r\nhe\r\n0\r\n", b"x: y\r\n" * 8192),
    "a chunk's extension": (CHUNKED + b"2\r\nhe\r\n2;a=", PIECE),
    "a chunk's size": (CHUNKED + b"2\r\nhe\r\n", b"0" * 65536),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_what_never_ends_is_an_error_and_not_kept(name: str) -> None:
    begin, more = ENDLESS[name]
    sent = 0

    async def script(wire: PeerWire) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(begin)
        while sent < MUCH:
            await wire.send(more)
            sent += len(more)
            await asyncio.sleep(0)

    async with dialled(script) as connection:
        with pytest.raises((MalformedAnswer, BodyBroken)):
            await ask(connection)
        assert not connection.usable
        assert sent < MUCH


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_call_that_is_answered_so_fails_and_its_connection_ends(name: str) -> None:
    begin, more = ENDLESS[name]
    gone = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        try:
            await wire.send(begin)
            while True:
                await wire.send(more)
                await asyncio.sleep(0)
        finally:
            gone.set()

    async with rigged(script) as rig:
        outcome, _ = await rig.call()
        assert outcome.kind in (OutcomeKind.BAD_ANSWER, OutcomeKind.STREAM_BROKEN)
        assert rig.reply.end in ("", "aborted")
        await gone.wait()
        assert (rig.pool.idle, rig.pool.busy) == (0, 0)


async def test_a_body_in_tiny_chunks_may_be_of_any_size() -> None:
    async with dialled(answering(CHUNKED + b"1;e\r\nz\r\n" * MAX_HEAD + b"0\r\n\r\n", OK)) as connection:
        assert await ask(connection) == (200, b"z" * MAX_HEAD)
        assert await ask(connection) == (200, b"ok")


async def test_answers_without_a_byte_of_body_do_not_add_up() -> None:
    answer = b"HTTP/1.1 200 OK\r\nx: %b\r\ncontent-length: 0\r\n\r\n" % (b"v" * 4096)
    count = 2 * MAX_HEAD // 4096
    async with dialled(answering(*[answer] * count)) as connection:
        for _ in range(count):
            assert await ask(connection) == (200, b"")
            assert connection.usable


async def test_interim_answers_that_nobody_waits_for_are_not_kept() -> None:
    storm = b"HTTP/1.1 103 E\r\n\r\n" * 10_000
    async with dialled(answering(storm + OK, OK)) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        code, kept = 0, 0
        while code < 200:
            message, _ = await connection.head()
            code, kept = message.code, max(kept, len(connection._heads))
        assert (code, connection.usable) == (200, True)
        assert kept <= 1
        assert await ask(connection) == (200, b"ok")


async def test_too_many_fields_are_no_answer() -> None:
    lines = b"".join(b"x-%d: y\r\n" % index for index in range(MAX_FIELDS + 1))
    async with dialled(answering(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n")) as connection:
        with pytest.raises(MalformedAnswer):
            await ask(connection)


@pytest.mark.parametrize("place", [b"HTTP/1.1 200 O\0K\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n"])
async def test_nul_is_passed_on_nowhere(place: bytes) -> None:
    async with dialled(answering(place)) as connection:
        with pytest.raises(MalformedAnswer):
            await ask(connection)


@pytest.mark.parametrize("line", [b"content-length: 2", b"transfer-encoding: chunked", b"content-length : 2"])
async def test_after_a_204_that_announces_a_body_its_connection_serves_no_other(line: bytes) -> None:
    async with dialled(answering(b"HTTP/1.1 204 No Content\r\n" + line + b"\r\n\r\n")) as connection:
        assert await ask(connection) == (204, b"")
        assert not connection.usable


@pytest.mark.parametrize("line", [b"content-length: 0\r\n", b""])
async def test_after_a_204_without_a_body_its_connection_serves_another(line: bytes) -> None:
    async with dialled(answering(b"HTTP/1.1 204 No Content\r\n" + line + b"\r\n", OK)) as connection:
        assert await ask(connection) == (204, b"")
        assert await ask(connection) == (200, b"ok")


async def test_an_offer_of_another_protocol_in_an_answer_is_only_an_offer() -> None:
    answer = b"HTTP/1.1 200 OK\r\nupgrade: h2,h2c\r\nconnection: Upgrade\r\ncontent-length: 2\r\n\r\nok"
    async with dialled(answering(answer, answer)) as connection:
        for _ in range(2):
            assert await ask(connection) == (200, b"ok")
            assert connection.usable


@pytest.mark.parametrize("eager", [OK, b"HTTP/1.1 200 OK\r\ncontent-le", b"\r\n"], ids=["whole", "part", "line"])
async def test_what_a_provider_says_before_it_is_asked_answers_nothing(eager: bytes) -> None:
    said = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.send(eager)
        said.set()
        await wire.request()
        await wire.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        await wire.gone()

    async with dialled(script) as connection:
        await said.wait()
        await until(lambda: not connection.usable)
        assert await ask(connection) == (404, b"")
        assert not connection.usable


async def test_two_answers_at_once_are_one_answer() -> None:
    second = b"HTTP/1.1 500 Second\r\ncontent-length: 3\r\n\r\ntwo"

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(OK + second)
        await wire.gone()

    async with rigged(script) as rig:
        for number in range(3):
            outcome, attempt = await rig.call()
            assert (outcome.kind, attempt.reused, rig.reply.pieces) == (OutcomeKind.OK, False, [b"ok"])
            assert rig.peer.connections == number + 1


@pytest.mark.parametrize("end", ["fin", "reset"])
async def test_a_kept_connection_that_closes_in_the_moment_of_its_reuse_fails_before_the_head(end: str) -> None:
    rest = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(OK)
        await wire.request()
        if end == "reset":
            wire.reset()
        rest.set()

    async with rigged(script) as rig:
        assert (await rig.call())[0].kind is OutcomeKind.OK
        outcome, attempt = await rig.call()
        await rest.wait()
        assert (outcome.kind, attempt.reused) == (OutcomeKind.DISCONNECTED, True)
        assert (rig.pool.idle, rig.pool.busy) == (0, 0)


async def test_a_connection_lost_while_idle_is_not_used_again() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        await wire.send(OK)

    async with rigged(script) as rig:
        assert (await rig.call())[0].kind is OutcomeKind.OK
        (kept,) = rig.pool._idle
        await until(lambda: not kept.usable)
        outcome, attempt = await rig.call()
        assert (outcome.kind, attempt.reused, rig.peer.connections) == (OutcomeKind.OK, False, 2)


@pytest.mark.parametrize("steps", range(1, 12))
async def test_a_call_may_be_cancelled_at_any_step_while_its_answer_comes(steps: int) -> None:
    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await wire.body(28)
            await wire.send_bytewise(CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")

    async with rigged(script) as rig:
        call = rig.start(rig.exchange())
        for _ in range(steps * 5):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: rig.pool.busy == 0)
        assert (await rig.call())[0].kind is OutcomeKind.OK
        assert b"".join(rig.reply.pieces) == b"hello"
