"""The admin port: probes, `/metrics`, `/policy`, `/status`. Reading only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

INDEX = b"""sponson admin

/livez     the event loop runs
/readyz    requests are accepted
/startupz  the listeners are bound and the policy is compiled
/metrics   Prometheus text format
/policy    revision, hash, age and problems of the policy
/status    targets, breakers, permits, queues and keys as JSON
"""


NO_ACCESS_LOG: Final[dict[str, Any]] = {"access_log": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSources:
    """Where the answers come from; all are cheap and synchronous."""

    live: Callable[[], bool]
    ready: Callable[[], bool]
    started: Callable[[], bool]
    metrics: Callable[[], tuple[str, bytes]]
    policy: Callable[[], dict[str, Any]]
    status: Callable[[], dict[str, Any]]


class AdminConnection(web.RequestHandler):
    """A connection that repeats nothing of what it cannot read: aiohttp logs the line, and sends it back."""

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers a malformed request, and closes; a bug of ours is told in full."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        answer = web.Response(status=status, text="the request is malformed\n")
        answer.force_close()
        return answer


class AdminServer:
    """A small web application beside the data port."""

    def __init__(self, sources: AdminSources) -> None:
        self._sources = sources
        self._runner: web.AppRunner | None = None
        self._listeners: list[asyncio.Server] = []

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Starts to answer on bound sockets."""
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/livez", self._probe(self._sources.live)),
                web.get("/readyz", self._probe(self._sources.ready)),
                web.get("/startupz", self._probe(self._sources.started)),
                web.get("/metrics", self._metrics),
                web.get("/policy", self._document(self._sources.policy)),
                web.get("/status", self._document(self._sources.status)),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        assert self._runner.server is not None
        loop = asyncio.get_running_loop()
        make = partial(AdminConnection, self._runner.server, loop=loop, **NO_ACCESS_LOG)
        for bound in sockets:
            self._listeners.append(await loop.create_server(make, sock=bound))

    async def close(self) -> None:
        """Stops answering."""
        for listener in self._listeners:
            listener.close()
        if self._runner is not None:
            async with asyncio.timeout(1.0):
                await self._runner.cleanup()

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(body=INDEX, content_type="text/plain")

    async def _metrics(self, request: web.Request) -> web.Response:
        content_type, body = self._sources.metrics()
        return web.Response(body=body, headers={"content-type": content_type})

    def _probe(self, holds: Callable[[], bool]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            good = holds()
            return web.Response(status=200 if good else 503, text="ok\n" if good else "no\n")

        return answer

    def _document(self, source: Callable[[], dict[str, Any]]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            body = orjson.dumps(source(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
            return web.Response(body=body + b"\n", content_type="application/json")

        return answer
