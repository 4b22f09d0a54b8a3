"""Slow heads, slow bodies and silent clients at once: each ends in its time, and who asks properly never notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from proxy.downstream.incoming import STALL_SECONDS
from proxy.downstream.lasting import AGAIN_SECONDS, FAREWELL_SECONDS, HEAD_SECONDS, KEEP_ALIVE_SECONDS
from tests.downstream.doubles import Running, data_server
from tests.downstream.test_stalled_uploads import reading_or_not
from tests.downstream.visitor import Visitor, until, visiting
from tests.hurried import HurriedLoop, hurried

EACH = 40
PAUSE = 2.0
ORDER = b"POST /order HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 4\r\n\r\ntea\n"
HEAD = b"GET /patience HTTP/1.1\r\nhost: shop.test\r\naccept: "
BODY = b"POST /drip HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5000\r\n\r\n"


class Crowd:
    """So many clients of a kind, and what each sends between two normal orders."""

    def __init__(self, visitors: list[Visitor], bytes_at: Callable[[int], bytes]) -> None:
        self.visitors = visitors
        self._bytes_at = bytes_at
        self.ends = [asyncio.ensure_future(visitor.rest()) for visitor in visitors]

    def send(self, turn: int) -> None:
        for visitor in self.visitors:
            if not visitor.writer.transport.is_closing() and (data := self._bytes_at(turn)):
                visitor.writer.write(data)

    @property
    def here(self) -> int:
        return sum(not end.done() for end in self.ends)


async def orders(running: Running, regular: Visitor) -> None:
    """One on a kept connection, one on a new one."""
    await regular.send(ORDER)
    assert (await regular.answer()).body == b"tea\n"
    async with visiting(running.port, patience=3600.0) as new:
        await new.send(ORDER)
        assert (await new.answer()).body == b"tea\n"


def test_a_crowd_of_slow_clients_goes_kind_by_kind() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with data_server(reading_or_not) as running, AsyncExitStack() as stack:

            async def crowd(bytes_at: Callable[[int], bytes]) -> Crowd:
                visitors = [
                    await stack.enter_async_context(visiting(running.port, patience=3600.0)) for _ in range(EACH)
                ]
                return Crowd(visitors, bytes_at)

            regular = await stack.enter_async_context(visiting(running.port, patience=3600.0))
            heads = await crowd(lambda turn: HEAD[turn : turn + 1])
            bodies = await crowd(lambda turn: b"." if turn else BODY)
            silent = await crowd(lambda turn: b"")
            await until(lambda: len(running.server.protocols.connections) == 3 * EACH + 1)
            gone: dict[str, float] = {}
            began = loop.time()
            for turn in range(int((KEEP_ALIVE_SECONDS + FAREWELL_SECONDS + 8.0) / PAUSE)):
                for kind in (heads, bodies, silent):
                    kind.send(turn)
                await orders(running, regular)
                await loop.pass_time(PAUSE)
                for name, kind in {"heads": heads, "bodies": bodies, "silent": silent}.items():
                    if kind.here == 0:
                        gone.setdefault(name, loop.time() - began)
                    elif name not in gone:
                        assert kind.here == EACH or loop.time() - began > HEAD_SECONDS
            assert HEAD_SECONDS <= gone["heads"] < HEAD_SECONDS + AGAIN_SECONDS + 2 * PAUSE + 2.0
            assert STALL_SECONDS <= gone["bodies"] < STALL_SECONDS + FAREWELL_SECONDS + 3 * PAUSE + 2.0
            assert KEEP_ALIVE_SECONDS <= gone["silent"] < KEEP_ALIVE_SECONDS + 3 * PAUSE + 2.0
            await until(lambda: len(running.server.protocols.connections) == 1)
            assert {end.result()[:12] for end in bodies.ends} == {b"HTTP/1.1 400"}
            assert {end.result() for end in heads.ends + silent.ends} == {b""}

    hurried(scene)
