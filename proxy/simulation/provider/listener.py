"""A listening socket that can be shut and opened again without losing its port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection

from aiohttp import web


class Listener:
    """Listens for `runner`; while shut, a socket that is bound only keeps the port: connections fail."""

    def __init__(self, runner: web.AppRunner, host: str, port: int) -> None:
        self._runner = runner
        self._host = host
        self._port = port
        self._held: socket.socket | None = None
        self._site: web.SockSite | None = None

    def __repr__(self) -> str:
        return f"Listener({self._host}:{self._port}, {'open' if self._site else 'shut'})"

    @property
    def port(self) -> int:
        """The real port, once opened."""
        return self._port

    async def open(self) -> None:
        """Begins to listen, if it does not; OSError when the address cannot be had."""
        if self._site is not None:
            return
        held = self._held or await self._bound()
        self._held = None
        self._site = web.SockSite(self._runner, held)
        try:
            await self._site.start()
        except OSError:
            self._site = None
            held.close()
            raise

    async def shut(self, *, busy: Collection[object]) -> None:
        """Refuses connections from now on; of the kept ones, `busy` ones are closed after their answer."""
        if self._site is None:
            return
        await self._site.stop()
        self._site = None
        self._held = await self._bound()
        if (server := self._runner.server) is not None:
            for connection in server.connections:
                if connection in busy:
                    connection.close()
                else:
                    connection.force_close()

    def drop(self) -> None:
        """Gives up the port of a shut listener; the runner closes an open one."""
        if self._held is not None:
            self._held.close()
            self._held = None

    async def _bound(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        self._port = bound.getsockname()[1]
        return bound
