"""Encrypted connections that end at the very moment at which they are to serve again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event, Thread

import pytest
import trustme

from proxy.outcome import OutcomeKind
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.pool import RECENT_SECONDS, Ending
from tests.fakes import CHAT
from tests.upstream.peer import PATIENCE_SECONDS, RESET_ON_CLOSE, Peer, answering
from tests.upstream.rig import JSON_HEAD, Rig, with_length

ANSWER = with_length(JSON_HEAD, b"{}")


class Server:
    """Serves one request a connection, in a thread; the first has ended before the event loop hears of it."""

    def __init__(self, context: ssl.SSLContext, way: str) -> None:
        self._context = context
        self._way = way
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.served = 0
        self.end, self.ended = Event(), Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.end.set()
        self._thread.join(PATIENCE_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self._serve(accepted)

    def _serve(self, accepted: socket.socket) -> None:
        accepted.settimeout(PATIENCE_SECONDS)
        with self._context.wrap_socket(accepted, server_side=True) as wire:
            heard = wire.recv(1 << 16)
            while not heard.partition(b"\r\n\r\n")[2].endswith(b"}"):
                heard += wire.recv(1 << 16)
            self.served += 1
            wire.sendall(ANSWER)
            if self.served > 1:
                wire.recv(1)
                return
            self.end.wait(PATIENCE_SECONDS)
            if self._way == "notice":
                wire.settimeout(0.0)
                with contextlib.suppress(OSError):
                    wire.unwrap()
            elif self._way == "reset":
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.ended.set()


@asynccontextmanager
async def served_once(way: str) -> AsyncIterator[tuple[Rig, Server]]:
    authority = trustme.CA()
    context, trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(trust)
    server = Server(context, way)
    rig = Rig(Peer(answering(), scheme="https"))
    rig.pool.dialer = Dialer(Address(scheme="https", host="localhost", port=server.port), tls=trust)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            outcome, _ = await rig.call(CHAT)
            assert (outcome.kind, rig.pool.idle) == (OutcomeKind.OK, 1)
            yield rig, server
    finally:
        await rig.pool.close()
        server.close()


@pytest.mark.parametrize("why", ["repeatable", "rested"])
@pytest.mark.parametrize("way", ["notice", "no notice", "reset"])
async def test_an_encrypted_connection_that_has_just_ended_gets_no_request(way: str, why: str) -> None:
    async with served_once(way) as (rig, server):
        server.end.set()
        # The event loop does not run meanwhile.
        assert server.ended.wait(PATIENCE_SECONDS)
        if why == "rested":
            rig.clock.advance(RECENT_SECONDS)
        outcome, attempt = await rig.call(CHAT, **({"repeatable": False} if why == "repeatable" else {}))
        assert (outcome.kind, attempt.reused, rig.pool.dials) == (OutcomeKind.OK, False, 2)
        assert (server.served, rig.pool.ended) == (2, {Ending.PEER: 1})
