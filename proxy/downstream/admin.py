"""The admin port: probes, `/metrics`, `/policy`, `/status`. Reading only.

It has room and files of its own: however many clients the data port has, and whatever they do, it answers.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from proxy.downstream.arrival import Arrival
from proxy.downstream.connections import ConnectionServer
from proxy.downstream.incoming import framing_problem
from proxy.exchange import ReaderGone

INDEX: Final = b"""sponson admin

/livez     the event loop runs
/readyz    requests are accepted
/startupz  the listeners are bound and the policy is compiled
/metrics   Prometheus text format
/policy    revision, hash, age and problems of the policy
/status    targets, breakers, permits, queues and keys as JSON
"""
MOST_CONNECTIONS: Final = 64
SPARE_FILES: Final = 8
_TEXT: Final = "text/plain; charset=utf-8"
_PHRASES: Final = {
    200: b"OK",
    400: b"Bad Request",
    404: b"Not Found",
    405: b"Method Not Allowed",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}
_log = logging.getLogger("sponson.admin")

Page = tuple[int, str, bytes]
"""Status, type and body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSources:
    """Where the answers come from; all are cheap and synchronous."""

    live: Callable[[], bool]
    ready: Callable[[], bool]
    started: Callable[[], bool]
    metrics: Callable[[], tuple[str, bytes]]
    policy: Callable[[], dict[str, Any]]
    status: Callable[[], dict[str, Any]]


class AdminServer:
    """A small server beside the data port."""

    def __init__(self, sources: AdminSources) -> None:
        self._pages: dict[str, Callable[[], Page]] = {
            "/": lambda: (200, _TEXT, INDEX),
            "/livez": lambda: _probe(sources.live()),
            "/readyz": lambda: _probe(sources.ready()),
            "/startupz": lambda: _probe(sources.started()),
            "/metrics": lambda: (200, *sources.metrics()),
            "/policy": lambda: _document(sources.policy()),
            "/status": lambda: _document(sources.status()),
        }
        self.protocols = ConnectionServer(self._handle, most=MOST_CONNECTIONS)

    def listen(self, sockets: list[socket.socket]) -> None:
        """Starts to answer on bound sockets."""
        self.protocols.listen(sockets, spare_files=SPARE_FILES)

    def close(self) -> None:
        """Stops answering."""
        self.protocols.close()

    async def _handle(self, arrival: Arrival) -> bool:
        status, kind, body = self._page(arrival)
        closes = status == 400 or arrival.should_close or arrival.closing or not arrival.payload.is_eof()
        lines = [
            b"HTTP/1.1 %d %b" % (status, _PHRASES[status]),
            b"content-type: %b" % kind.encode("ascii"),
            b"content-length: %d" % len(body),
            b"cache-control: no-store",
        ]
        if status == 405:
            lines.append(b"allow: GET, HEAD")
        if closes or arrival.version == (1, 0):
            lines.append(b"connection: close" if closes else b"connection: keep-alive")
        head = b"\r\n".join(lines) + b"\r\n\r\n"
        if arrival.transport is not None:
            arrival.transport.write(head if arrival.method == "HEAD" else head + body)
        with contextlib.suppress(ReaderGone):
            await arrival.drain()
        return not closes

    def _page(self, arrival: Arrival) -> Page:
        if arrival.malformed or framing_problem(arrival) is not None:
            return 400, _TEXT, b"the request is not well-formed HTTP\n"
        path = arrival.target.partition("?")[0]
        page = self._pages.get(path)
        if page is None:
            return 404, _TEXT, b"unknown path; / names those that there are\n"
        if arrival.method not in ("GET", "HEAD"):
            return 405, _TEXT, b"this port is for reading only\n"
        try:
            return page()
        except Exception:  # noqa: BLE001 - whoever looks at one page that fails must still get the others
            _log.exception("the page %s met a bug", path)
            return 500, _TEXT, b"a bug; the log has it\n"


def _probe(holds: bool) -> Page:
    return (200, _TEXT, b"ok\n") if holds else (503, _TEXT, b"no\n")


def _document(document: dict[str, Any]) -> Page:
    body = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)
    return 200, "application/json; charset=utf-8", body + b"\n"
