"""Connections that end at the very moment at which they are to serve again."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.outcome import OutcomeKind
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.pool import RECENT_SECONDS, Ending
from tests.fakes import CHAT
from tests.upstream.peer import PATIENCE_SECONDS, RESET_ON_CLOSE, Peer, answering
from tests.upstream.rig import JSON_HEAD, Rig, with_length

NO_LINGER = struct.pack("ii", 0, 0)
ANSWER = with_length(JSON_HEAD, b"{}")


async def serve(listener: socket.socket) -> socket.socket:
    """Answers the first request of the next connection; returns that connection's other end, which nobody reads."""
    loop = asyncio.get_running_loop()
    accepted, _ = await loop.sock_accept(listener)
    accepted.setblocking(False)
    await loop.sock_recv(accepted, 1 << 16)
    await loop.sock_sendall(accepted, ANSWER)
    return accepted


@asynccontextmanager
async def served_once() -> AsyncIterator[tuple[Rig, socket.socket, socket.socket]]:
    """A rig with a connection that has served, its other end, and who accepts the next one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        rig = Rig(Peer(answering(), scheme="http"))
        rig.pool.dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=port))
        async with asyncio.timeout(PATIENCE_SECONDS):
            serving = asyncio.ensure_future(serve(listener))
            outcome, _ = await rig.call(repeatable=False)
            assert (outcome.kind, rig.pool.idle) == (OutcomeKind.OK, 1)
            with await serving as accepted:
                yield rig, accepted, listener
        await rig.pool.close()


@pytest.mark.parametrize("why", ["repeatable", "replayable", "rested"])
@pytest.mark.parametrize("way", ["fin", "reset", "half-close", "bytes"])
async def test_what_must_not_be_sent_twice_or_comes_after_a_rest_goes_to_no_peer_that_has_ended(
    way: str, why: str
) -> None:
    async with served_once() as (rig, accepted, listener):
        # The event loop does not run between this and the choice of the connection: it has not heard of it.
        if way == "bytes":
            accepted.send(b"HTTP/1.1 408 Request Timeout\r\n")
        elif way == "half-close":
            accepted.shutdown(socket.SHUT_WR)
        else:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE if way == "reset" else NO_LINGER)
            accepted.close()
        serving = asyncio.ensure_future(serve(listener))
        if why == "rested":
            rig.clock.advance(RECENT_SECONDS)
        outcome, attempt = await rig.call(CHAT, **({why: False} if why != "rested" else {}))
        (await serving).close()
        assert (outcome.kind, attempt.reused, rig.pool.dials) == (OutcomeKind.OK, False, 2)
        assert (rig.pool.reuses, rig.pool.ended) == (0, {Ending.PEER: 1})


async def test_a_silent_connection_serves_what_must_not_be_sent_twice() -> None:
    async with served_once() as (rig, accepted, _):
        running = asyncio.ensure_future(rig.call(repeatable=False))
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(accepted, 1 << 16)
        await loop.sock_sendall(accepted, ANSWER)
        outcome, attempt = await running
        assert (outcome.kind, attempt.reused) == (OutcomeKind.OK, True)
