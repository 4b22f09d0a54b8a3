"""Bodies of answers: pieces are handed on inside the event that brings them."""

from __future__ import annotations

import asyncio

import pytest

from proxy.body import Body, BodyBroken
from proxy.upstream.wire import UpstreamConnection
from tests.upstream.peer import ASK, OK, PeerWire, Script, ask, dialled, stalled, until

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
MUCH = 1 << 25
PIECE = bytes(range(256)) * 256


class Taker:
    """Takes pieces; stops after each of which `stops` says so."""

    def __init__(self, *, every: int = 0) -> None:
        self.pieces: list[bytes] = []
        self._every = every

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def __call__(self, piece: bytes) -> bool:
        self.pieces.append(piece)
        return not self._every or len(self.pieces) % self._every != 0


async def begun(connection: UpstreamConnection) -> Body:
    connection.expect(body=True)
    connection.write(ASK, b"")
    return (await connection.head())[1]


def sending(*parts: bytes) -> Script:
    """Sends each part when it is asked for by another request; then ends the connection."""

    async def script(wire: PeerWire) -> None:
        for part in parts:
            await wire.request()
            await wire.send(part)

    return script


async def test_a_piece_is_taken_before_any_task_wakes_up_for_it() -> None:
    taken_in: list[asyncio.Task[object] | None] = []

    def take(piece: bytes) -> bool:
        taken_in.append(asyncio.current_task())
        return True

    async with dialled(sending(CHUNKED, b"5\r\nhello\r\n", b"0\r\n\r\n")) as connection:
        payload = await begun(connection)
        running = asyncio.ensure_future(payload.flow(take))
        await asyncio.sleep(0)
        connection.write(ASK, b"")
        await until(lambda: len(taken_in) == 1)
        assert taken_in == [None]
        connection.write(ASK, b"")
        assert await running is True


@pytest.mark.parametrize(
    "parts",
    [
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",),
        (CHUNKED + b"2\r\nhe\r\n", b"3\r\nllo\r\n", b"0\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"he", b"llo"),
        (b"HTTP/1.1 200 OK\r\n\r\nhe", b"llo"),
    ],
    ids=["at once", "chunks", "length", "close"],
)
async def test_a_body_flows_to_its_end(parts: tuple[bytes, ...]) -> None:
    async with dialled(sending(*parts)) as connection:
        taker = Taker()
        running = asyncio.ensure_future((await begun(connection)).flow(taker))
        for _ in parts[1:]:
            await asyncio.sleep(0.01)
            connection.write(ASK, b"")
        assert await running is True
        assert taker.data == b"hello"


async def test_a_connection_whose_body_has_flowed_serves_the_next_request() -> None:
    async with dialled(sending(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", OK, OK)) as connection:
        assert await (await begun(connection)).flow(Taker()) is True
        assert connection.usable
        assert await ask(connection) == (200, b"ok")


@pytest.mark.parametrize("begin", [CHUNKED + b"5\r\nhello\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello"])
async def test_a_break_raises_after_what_came_was_taken(begin: bytes) -> None:
    async with dialled(sending(begin)) as connection:
        taker = Taker()
        with pytest.raises(BodyBroken):
            await (await begun(connection)).flow(taker)
        assert taker.data == b"hello"


async def test_a_break_that_has_happened_before_raises_too() -> None:
    async with dialled(sending(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")) as connection:
        taker, payload = Taker(), await begun(connection)
        await until(lambda: payload.broken is not None)
        with pytest.raises(BodyBroken):
            await payload.flow(taker)
        assert taker.data == b"hello"


async def test_a_taker_that_stops_is_asked_again_when_it_runs_again() -> None:
    async with dialled(sending(CHUNKED + b"2\r\nhe\r\n1\r\nl\r\n2\r\nlo\r\n0\r\n\r\n")) as connection:
        taker = Taker(every=1)
        payload = await begun(connection)
        stops = 0
        while not await payload.flow(taker):
            stops += 1
        assert (taker.data, stops) == (b"hello", len(taker.pieces))


async def test_a_taker_that_fails_fails_the_run_not_the_connection_s_parser() -> None:
    def take(piece: bytes) -> bool:
        raise ZeroDivisionError

    async with dialled(sending(CHUNKED, b"5\r\nhello\r\n")) as connection:
        running = asyncio.ensure_future((await begun(connection)).flow(take))
        await asyncio.sleep(0)
        connection.write(ASK, b"")
        with pytest.raises(ZeroDivisionError):
            await running
        assert connection.usable


async def test_a_run_that_is_cancelled_takes_nothing_any_more_and_leaves_the_body_readable() -> None:
    async with dialled(sending(CHUNKED, b"5\r\nhello\r\n0\r\n\r\n")) as connection:
        taker, payload = Taker(), await begun(connection)
        running = asyncio.ensure_future(payload.flow(taker))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        connection.write(ASK, b"")
        assert (await payload.readany(), taker.data) == (b"hello", b"")


async def test_an_abort_wakes_the_run() -> None:
    async with dialled(sending(CHUNKED, b"never")) as connection:
        running = asyncio.ensure_future((await begun(connection)).flow(Taker()))
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(BodyBroken):
            await running


async def test_a_taker_that_stops_slows_the_peer_down_and_loses_nothing() -> None:
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
        taker = Taker(every=3)
        payload = await begun(connection)
        assert await payload.flow(taker) is False
        assert await stalled(lambda: sent) < MUCH
        while not await payload.flow(taker):
            pass
        assert taker.data == PIECE * (MUCH // len(PIECE))
        assert connection.usable
