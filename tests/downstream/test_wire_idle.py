"""Connections that ask for nothing any more are ended, also those whose client does not take its answer."""

from __future__ import annotations

import pytest

from proxy.downstream.arrival import Arrival
from proxy.downstream.lasting import KEEP_ALIVE_SECONDS
from tests.downstream.visitor import ASK, serving, until, visiting
from tests.hurried import HurriedLoop, hurried

MUCH = 1 << 25


@pytest.mark.parametrize("answer_bytes", [10, MUCH], ids=["taken", "never taken"])
def test_an_idle_connection_is_gone_after_the_keep_alive_time(answer_bytes: int) -> None:
    async def answering(arrival: Arrival) -> bool:
        assert arrival.transport is not None
        arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % answer_bytes)
        arrival.transport.write(bytes(answer_bytes))
        return True

    async def scene(loop: HurriedLoop) -> None:
        async with serving(answering) as served, visiting(served.port, patience=10 * KEEP_ALIVE_SECONDS) as visitor:
            await visitor.send(ASK)
            await until(lambda: len(served.arrivals) == 1)
            assert served.protocols.connections
            await loop.pass_time(KEEP_ALIVE_SECONDS + 1)
            await until(lambda: not served.protocols.connections)

    hurried(scene)
