"""Pools that keep connections ready, in front of real sockets, under a clock that the test holds in its hands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.upstream.dialer import Dialer
from proxy.upstream.pool import Pool
from proxy.upstream.warmth import Warmth
from proxy.upstream.wire import UpstreamConnection
from tests.fakes import FakeClock, settle
from tests.upstream.peer import PATIENCE_SECONDS, Peer, PeerWire, provider, until
from tests.upstream.rig import JSON_HEAD, Rig, with_length

ANSWER = with_length(JSON_HEAD, b"{}")


def warmed(pool: Pool, clock: FakeClock, *, want: int, most: int = 100) -> Warmth:
    warmth = pool.warmth = Warmth(pool, clock=clock, jitter=lambda: 1.0)
    pool.dialer.before = warmth.give_way
    warmth.reconfigure(want=want, most=most, seconds=PATIENCE_SECONDS)
    return warmth


async def serving(wire: PeerWire) -> None:
    while await wire.request():
        await wire.body(28)
        await wire.send(ANSWER)


@asynccontextmanager
async def warm(*, want: int, most: int = 100) -> AsyncIterator[tuple[Rig, Warmth]]:
    """A rig whose pool keeps connections ready at a provider that serves; none is dialled yet."""
    async with provider(serving) as peer:
        rig = Rig(peer)
        try:
            yield rig, warmed(rig.pool, rig.clock, want=want, most=most)
        finally:
            await rig.pool.close()
            await all_accepted(peer.port)


async def all_accepted(port: int) -> None:
    """Returns once a server has taken over every connection that was made to it: this one is the last in its line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write_eof()
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def holding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Says nothing, and ends a connection when its other side has."""
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


async def look(rig: Rig, *, idle: int) -> None:
    rig.pool.sweep(rig.clock.now())
    rig.pool.keep_warm(rig.clock.now())
    await until(lambda: rests(rig.pool, idle) and not rig.pool.busy)


def rests(pool: Pool, idle: int) -> bool:
    """Whether so many are idle, and no dial is under way, not even one whose end has not been noted yet."""
    assert pool.warmth is not None
    return pool.idle == idle and not pool.warmth._dialling


async def ended(pool: Pool, server: asyncio.Server) -> None:
    """Closes both sides, and lets the server's connections hear of it."""
    await pool.close()
    await all_accepted(server.sockets[0].getsockname()[1])
    server.close()
    await until(lambda: not [task for task in asyncio.all_tasks() if "holding" in repr(task)])


class Stuck:
    """A dialer whose spare dials never end; `seen` is how many connections there were at most."""

    def __init__(self) -> None:
        self.seen = 0

    def dialer(self, peer: Peer) -> Dialer:
        outer = self

        class _Stuck(Dialer):
            async def dial(self, seconds: float, *, spare: bool = False) -> UpstreamConnection:
                if not spare:
                    assert self.before is not None
                    await self.before()
                    connection = await super().dial(seconds, spare=True)
                    outer.seen = max(outer.seen, self.open)
                    return connection
                self._connector._acquired.add(marker := object())  # type: ignore[arg-type]
                try:
                    never: asyncio.Future[UpstreamConnection] = asyncio.get_running_loop().create_future()
                    return await never
                finally:
                    self._connector._acquired.discard(marker)

        return _Stuck(peer.address)


async def failed(rig: Rig, warmth: Warmth, number: int) -> None:
    rig.pool.keep_warm(rig.clock.now())
    await until(lambda: warmth.failures == number and not warmth.begun)
    await settle()
