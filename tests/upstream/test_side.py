"""One end of a tunnel between two links that are only watched: who waits for whom, and whose silence counts."""

from __future__ import annotations

import asyncio
from typing import cast

from proxy.link import Link
from proxy.upstream.side import Side
from proxy.upstream.tunnel import Tunnel
from proxy.websocket.frames import MOST_FRAMES, Violation
from tests.websocket.encoding import MASK, PING, TEXT, decoded, encoded

IDLE = 30.0


class Wire(Link):
    """A connection that keeps what is written, and whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = self  # type: ignore[assignment]
        self.data = b""

    @property
    def read(self) -> bool:
        return not self._pauses

    def write(self, data: bytes) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._pauses += 1

    def resume_reading(self) -> None:
        self._pauses -= 1


class Watching:
    """What two sides ask of their tunnel."""

    mark = b"ours"

    def __init__(self) -> None:
        self.time = 100.0
        self.ended: list[bytes] = []
        self.client, self.provider = Wire(), Wire()
        tunnel = cast(Tunnel, self)
        near = Side(tunnel, self.client, most=1 << 20, mask=None)
        far = Side(tunnel, self.provider, most=1 << 20, mask=MASK)
        near.other, far.other = far, near
        self.near, self.far = near, far
        self.client.taker, self.provider.taker = near, far

    def now(self) -> float:
        return self.time

    def wrote(self, side: Side, size: int) -> None:
        """Counts nothing."""

    def lost(self, side: Side) -> None:
        self.ended.append(side.other.link.transport.data)  # type: ignore[union-attr]

    def closing(self) -> None:
        """Nobody does."""

    def violated(self, side: Side, violation: Violation) -> None:
        raise violation


def test_who_is_asked_to_wait_is_not_silent_until_it_may_go_on() -> None:
    tunnel = Watching()
    tunnel.client.pause_writing()
    tunnel.far.received(encoded(TEXT, b"more than it takes"))
    assert not tunnel.provider.read
    for _ in range(9):
        tunnel.time += IDLE / 3
        assert not tunnel.far.gone_by(tunnel.time, IDLE)
    assert tunnel.provider.data == b""
    tunnel.client.resume_writing()
    assert tunnel.provider.read
    tunnel.time += IDLE
    assert not tunnel.far.gone_by(tunnel.time, IDLE)
    asked = decoded(tunnel.provider.data)
    assert asked is not None
    assert (asked[0].opcode, asked[0].payload) == (PING, b"ours")
    tunnel.time += IDLE
    assert tunnel.far.gone_by(tunnel.time, IDLE)


def test_who_takes_nothing_for_so_long_is_gone_and_counts_anew_when_it_takes_again() -> None:
    tunnel = Watching()
    tunnel.client.pause_writing()
    assert not tunnel.near.gone_by(tunnel.time, IDLE)
    tunnel.time += IDLE - 1.0
    assert not tunnel.near.gone_by(tunnel.time, IDLE)
    tunnel.client.resume_writing()
    tunnel.client.pause_writing()
    tunnel.time += 2.0
    assert not tunnel.near.gone_by(tunnel.time, IDLE)
    tunnel.time += IDLE
    assert tunnel.near.gone_by(tunnel.time, IDLE)


def test_whoever_lets_go_reads_on() -> None:
    tunnel = Watching()
    tunnel.client.pause_writing()
    tunnel.far.received(encoded(TEXT, b"x"))
    tunnel.far.received(encoded(TEXT, b"y"))
    tunnel.far.let_go()
    assert tunnel.provider.read
    assert tunnel.provider.taker is None
    tunnel.near.writable()
    assert tunnel.provider.read


FLOOD = encoded(TEXT, b"") * (3 * MOST_FRAMES)


async def test_a_flood_passes_a_part_at_a_time_and_nothing_more_is_read_meanwhile() -> None:
    tunnel = Watching()
    tunnel.far.received(FLOOD)
    turns = 1
    while not tunnel.provider.read:
        assert len(tunnel.client.data) == turns * MOST_FRAMES * 2
        turns += 1
        await asyncio.sleep(0)
    assert (tunnel.client.data, turns) == (FLOOD, 3)


async def test_what_a_lost_connection_had_brought_passes_first() -> None:
    tunnel = Watching()
    tunnel.far.received(FLOOD)
    tunnel.provider.end_writing(ConnectionResetError())
    assert tunnel.ended == [FLOOD]
    await asyncio.sleep(0)
    assert tunnel.client.data == FLOOD


async def test_of_a_flood_nothing_passes_once_it_is_an_end_no_longer() -> None:
    tunnel = Watching()
    tunnel.far.received(FLOOD)
    passed = tunnel.client.data
    tunnel.far.let_go()
    await asyncio.sleep(0)
    assert tunnel.provider.read
    assert tunnel.client.data == passed
