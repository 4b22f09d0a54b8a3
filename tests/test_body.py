from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.body import BOUND_BYTES, Body, BodyBroken


class Connection:
    """Counts how often it was asked to pause."""

    def __init__(self) -> None:
        self.paused = False
        self.asked: list[str] = []

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True
        self.asked.append("pause")

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False
        self.asked.append("resume")


async def read_to_end(body: Body) -> bytes:
    pieces = []
    while piece := await body.readany():
        pieces.append(piece)
    return b"".join(pieces)


async def flow_to_end(body: Body, *, stop_after: int) -> bytes:
    """Takes pieces as they come; stops after every so many of them, and goes on."""
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return len(taken) % stop_after != 0

    while not await body.flow(take):
        await asyncio.sleep(0)
    return b"".join(taken)


@given(
    pieces=st.lists(st.binary(min_size=1, max_size=9), max_size=9),
    pauses=st.lists(st.booleans(), min_size=10, max_size=10),
    stop_after=st.integers(0, 3),
)
def test_every_byte_reaches_its_reader_once_and_in_order(
    pieces: list[bytes], pauses: list[bool], stop_after: int
) -> None:
    async def scene() -> bytes:
        body = Body(Connection())
        work = flow_to_end(body, stop_after=stop_after) if stop_after else read_to_end(body)
        reading = asyncio.ensure_future(work)
        for piece, pause in zip(pieces, pauses, strict=False):
            body.feed(piece)
            if pause:
                await asyncio.sleep(0)
        body.end()
        return await asyncio.wait_for(reading, 10.0)

    assert asyncio.run(scene()) == b"".join(pieces)


@pytest.mark.parametrize("flows", [False, True])
async def test_a_break_comes_after_all_that_came_before_it(flows: bool) -> None:
    body = Body(Connection())
    body.feed(b"came")
    body.fail("cut")
    taken: list[bytes] = []

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return True

    if not flows:
        take(await body.readany())
    with pytest.raises(BodyBroken):
        await (body.flow(take) if flows else body.readany())
    assert taken == [b"came"]


async def test_a_break_wakes_who_waits_and_an_end_after_it_changes_nothing() -> None:
    body = Body(Connection())
    reading = asyncio.ensure_future(body.readany())
    await asyncio.sleep(0)
    body.fail("cut")
    body.end()
    with pytest.raises(BodyBroken):
        await reading
    assert not body.is_eof()


async def test_a_break_after_the_end_changes_nothing() -> None:
    body = Body(Connection())
    body.feed(b"all")
    body.end()
    body.fail("the connection was closed")
    assert (await read_to_end(body), body.at_eof()) == (b"all", True)


async def test_what_nobody_takes_is_bounded_and_the_connection_goes_on_once_it_was_taken() -> None:
    connection = Connection()
    body = Body(connection)
    for _ in range(3):
        body.feed(bytes(BOUND_BYTES))
    assert connection.asked == ["pause"]
    assert len(await body.readany()) == 3 * BOUND_BYTES
    assert connection.asked == ["pause", "resume"]


async def test_a_reader_that_is_cancelled_takes_nothing_and_leaves_the_body_readable() -> None:
    body = Body(Connection())
    for work in (body.readany(), body.flow(lambda piece: True)):
        reading = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    body.feed(b"later")
    assert await body.readany() == b"later"


async def test_a_taker_that_fails_fails_its_reader_and_not_its_connection() -> None:
    body = Body(Connection())

    def take(piece: bytes) -> bool:
        raise ZeroDivisionError

    reading = asyncio.ensure_future(body.flow(take))
    await asyncio.sleep(0)
    body.feed(b"piece")
    with pytest.raises(ZeroDivisionError):
        await reading
