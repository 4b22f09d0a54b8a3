"""How a connection breaks, is ended, and slows its other side down."""

from __future__ import annotations

import asyncio

import pytest

from proxy.body import BodyBroken
from proxy.upstream.answer import ConnectionEnded
from proxy.upstream.dialer import Dialer
from proxy.upstream.wire import UpstreamConnection
from tests.upstream.peer import ASK, OK, PATIENCE_SECONDS, PeerWire, answering, ask, dialled, provider, stalled, until

PIECE = b"z" * (1 << 16)
MUCH = 1 << 25


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 OK\r\ncontent-le"], ids=["no byte", "part of the head"])
@pytest.mark.parametrize("before", [0, 1], ids=["first use", "reused"])
async def test_an_end_before_the_head_raises_whatever_part_of_it_came(end: str, part: bytes, before: int) -> None:
    came = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        for _ in range(before):
            await wire.request()
            await wire.send(OK)
        await wire.request()
        if part:
            await wire.send(part)
            came.set()
            await wire.request()
        if end == "reset":
            wire.reset()

    async with dialled(script) as connection:
        for _ in range(before):
            await ask(connection)
        connection.expect(body=True)
        connection.write(ASK, b"")
        if part:
            await came.wait()
            connection.write(ASK, b"")  # the script goes on
        with pytest.raises(ConnectionEnded if end == "fin" else ConnectionResetError):
            await connection.head()
        assert not connection.usable


CUT = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhello",
    "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "inside a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\na\r\nhello",
}


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("name", CUT)
async def test_a_body_that_is_cut_gives_its_bytes_and_then_raises(name: str, end: str) -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(CUT[name])
        await wire.request()
        if end == "reset":
            wire.reset()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        assert await payload.readany() == b"hello"
        connection.write(ASK, b"")  # the script goes on
        with pytest.raises(BodyBroken):
            await payload.readany()
        assert not connection.usable


async def test_what_a_slow_reader_has_not_read_when_the_body_breaks_is_not_lost() -> None:
    async with dialled(answering(CUT["length"], hold=False)) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        await until(lambda: payload.broken is not None)
        assert await payload.readany() == b"hello"
        with pytest.raises(BodyBroken):
            await payload.readany()


async def test_a_reset_breaks_a_body_without_a_length() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await wire.request()
        wire.reset()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        assert await payload.readany() == b"hello"
        connection.write(ASK, b"")  # the script goes on
        with pytest.raises(BodyBroken):
            await payload.readany()


async def test_writing_to_a_lost_connection_is_silent_and_shows_at_the_next_read() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(OK)

    async with dialled(script) as connection:
        await ask(connection)
        await until(lambda: not connection.usable)
        connection.expect(body=True)
        connection.write(ASK, b"body")
        with pytest.raises(ConnectionError):
            await connection.head()
        with pytest.raises(ConnectionError):
            await connection.drain()


@pytest.mark.parametrize("how", ["kill", "abort"])
async def test_a_connection_that_is_ended_while_its_answer_comes_is_seen_by_the_peer_at_once(how: str) -> None:
    gone = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(CUT["chunked"])
        await wire.gone()
        gone.set()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        await connection.head()
        getattr(connection, how)()
        await gone.wait()


async def test_abort_wakes_who_waits_for_the_head() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.gone()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        asyncio.get_running_loop().call_later(0.01, connection.abort)
        with pytest.raises(ConnectionError):
            await connection.head()


async def test_kill_does_not_wait_for_what_is_still_to_be_sent() -> None:
    release, gone = asyncio.Event(), asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await release.wait()
        await wire.gone()
        gone.set()

    async with provider(script) as peer:
        dialer = Dialer(peer.address)
        connection = await dialer.dial(PATIENCE_SECONDS)
        connection.expect(body=True)
        connection.write(ASK, bytes(MUCH))
        assert connection.paused
        connection.kill()
        connection.kill()
        await dialer.close()
        release.set()
        await gone.wait()
        assert not connection.usable


async def test_an_answer_that_nobody_reads_is_not_piled_up() -> None:
    sent = 0

    async def script(wire: PeerWire) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MUCH)
        while sent < MUCH:
            await wire.send(PIECE)
            sent += len(PIECE)
        await wire.gone()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        assert await stalled(lambda: sent) < MUCH
        size = 0
        while piece := await payload.readany():
            size += len(piece)
        assert size == MUCH
        assert connection.usable


async def test_a_peer_that_does_not_read_pauses_the_writer_until_it_does() -> None:
    release = asyncio.Event()
    came = 0

    async def script(wire: PeerWire) -> None:
        nonlocal came
        await wire.request()
        await release.wait()
        while came < MUCH:
            came += len(await wire.reader.read(1 << 16))
        await wire.send(OK)
        await wire.gone()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        sent = MUCH // 4 * 3
        connection.write(bytes(sent), b"")
        assert connection.paused
        draining = asyncio.ensure_future(connection.drain())
        assert await stalled(lambda: came) == 0
        assert not draining.done()
        release.set()
        await draining
        assert not connection.paused
        while sent < MUCH:
            connection.write(PIECE, b"")
            sent += len(PIECE)
            await connection.drain()
        message, _ = await connection.head()
        assert message.code == 200


async def drain_for_ever(connection: UpstreamConnection) -> None:
    while True:
        await connection.drain()


async def test_a_writer_that_waits_is_woken_when_the_connection_ends() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.reader.readexactly(1 << 20)
        wire.reset()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, bytes(MUCH))
        with pytest.raises(ConnectionError):
            await drain_for_ever(connection)


async def test_an_early_answer_is_read_while_the_upload_still_waits() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig")
        await wire.gone()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n", PIECE)
        message, payload = await connection.head()
        assert (message.code, await payload.readany()) == (413, b"big")


async def test_a_malformed_chunk_after_good_ones_wakes_who_reads_the_body() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(CUT["chunked"])
        await wire.request()
        await wire.send(b"zz\r\nhello\r\n")
        await wire.gone()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        assert await payload.readany() == b"hello"
        connection.write(ASK, b"")  # the script goes on
        with pytest.raises(BodyBroken):
            await payload.readany()
