"""Answers on their way to the socket: in one piece or in paced events, dripping, cut or reset."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from aiohttp import web

from proxy.simulation.provider.answers import Event
from proxy.simulation.provider.bending import bent_body, bent_stream
from proxy.simulation.provider.faults import CutBy, Fault
from proxy.simulation.provider.ledger import Ending, Received

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One answer on one connection; `drip_seconds` apart come its bytes, `event_seconds` apart its tokens.

    `thinking_seconds` pass before the first token of a stream; `beat` is sent where it is silent for `beat_seconds`.
    """

    request: web.Request
    seen: Received
    headers: Headers
    drip_seconds: float | None = None
    event_seconds: float = 0.0
    thinking_seconds: float = 0.0
    beat_seconds: float = 0.0
    beat: bytes = b""
    fault: Fault | None = None

    async def whole(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> web.StreamResponse:
        """Answers with a JSON body, as far as the fault lets it."""
        self.seen.status = status
        head = [("content-type", "application/json"), *self.headers, *headers]
        if status in (204, 304):
            return web.Response(status=status, headers=self.headers)
        piece, cut = bent_body(body, self.fault)
        if cut is None and self.drip_seconds is None:
            return web.Response(status=status, body=body, headers=head)
        response = web.StreamResponse(status=status, headers=head)
        response.content_length = len(piece) if cut is CutBy.END else len(body)
        await response.prepare(self.request)
        await self._write(response, piece)
        self._cut(cut)
        return response

    async def stream(self, events: list[Event], error: Event) -> web.StreamResponse:
        """Answers 200 with server-sent events, as far as the fault lets them; it may send `error` instead."""
        self.seen.status = 200
        head = [
            ("content-type", "text/event-stream; charset=utf-8"),
            ("cache-control", "no-cache"),
            *self.headers,
            ("server-timing", f"token;dur={(self.thinking_seconds + self.event_seconds) * 1000:.3f}"),
        ]
        response = web.StreamResponse(headers=head)
        sent, cut = bent_stream(events, error, self.fault)
        await response.prepare(self.request)
        for event, due in self._paced(sent):
            await self._until(due, response)
            await self._write(response, event.data)
        self._cut(cut)
        return response

    def _paced(self, events: list[Event]) -> Iterator[tuple[Event, float]]:
        """Yields each event and when it is due; lateness does not shift the timetable."""
        due = asyncio.get_running_loop().time()
        thinking = self.thinking_seconds
        for event in events:
            if event.content:
                due += self.event_seconds + thinking
                thinking = 0.0
            yield event, due

    async def _until(self, due: float, response: web.StreamResponse) -> None:
        """Waits, and lets the heart beat meanwhile."""
        now = asyncio.get_running_loop().time
        while self.beat_seconds and due - now() > self.beat_seconds:
            await asyncio.sleep(self.beat_seconds)
            await self._write(response, self.beat)
        if (wait := due - now()) > 0:
            await asyncio.sleep(wait)

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        if self.drip_seconds is None:
            await response.write(data)
            return
        for index in range(len(data)):
            await asyncio.sleep(self.drip_seconds)
            await response.write(data[index : index + 1])

    def _cut(self, by: CutBy | None) -> None:
        if by is None:
            return
        self.seen.ended = Ending.CUT
        match by:
            case CutBy.CLOSE:
                if (transport := self.request.transport) is not None:
                    transport.close()
            case CutBy.RESET:
                reset(self.request)
            case CutBy.END:
                pass
            case _:
                assert_never(by)


def reset(request: web.Request) -> None:
    """Ends the connection with a TCP reset: a linger time of zero makes the kernel send RST, not FIN."""
    if (transport := request.transport) is None:
        return
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
