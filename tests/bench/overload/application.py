"""An application that calls a model with an official SDK's habits, and how each of its calls ended.

An attempt has 10 s; a timeout, a lost connection or a status of 408, 409, 429 or 5xx is tried again, twice at most,
after 0.5 s, then 1 s, each less up to a quarter; `x-should-retry: false` ends it. Connections are kept and used again.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import cast

from tests.bench import traffic

RETRIED = frozenset({408, 409, 429})
ASK_FOR_TRAIL = b"\r\nX-Sponson-Trail: 1\r\n\r\n"
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an attempt may take, how many more may follow the first, and after how long the first of those."""

    attempt_seconds: float = 10.0
    retries: int = 2
    back_off_seconds: float = 0.5


class Ending(StrEnum):
    """How a call ended, as the application sees it."""

    MODEL = "model"
    """The model's own answer; the first tier's, behind Sponson."""
    SMALL = "small model"
    """The second tier's."""
    STATIC = "static answer"
    REFUSED = "refused"
    """An error status, or the proxy's own refusal, after all retries."""
    TIMED_OUT = "timed out"
    """Some attempt, here or in the proxy, met its limit, whatever came of the call later; or no end in sight."""
    BROKEN = "broken"
    """A wrong answer, or connections lost on every attempt."""


TIERS = {b"1": Ending.MODEL, b"2": Ending.SMALL, b"3": Ending.STATIC}


@dataclass(slots=True, kw_only=True)
class Call:
    """One call with all its attempts; times of the loop's clock."""

    due: float
    request: bytes
    mark: bytes
    attempts: int = 0
    timed_out: bool = False
    ending: Ending | None = None
    ended_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    connection: Connection | None = None


class Application:
    """Sends a call when told to; all calls go to one port of 127.0.0.1."""

    def __init__(self, port: int, *, random: Random, patience: Patience = Patience()) -> None:
        self._port = port
        self._patience = patience
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._opening: set[asyncio.Task[None]] = set()
        self.calls: list[Call] = []

    def begin(self, due: float) -> None:
        """Make the first attempt of a new call, which was due at this time."""
        mark = traffic.mark_of(len(self.calls))
        request = traffic.request(mark, stream=False).replace(b"\r\n\r\n", ASK_FOR_TRAIL, 1)
        call = Call(due=due, request=request, mark=mark)
        self.calls.append(call)
        self._attempt(call)

    def close(self) -> None:
        """Drop everything: calls that have not ended count as timed out now."""
        for task in self._opening:
            task.cancel()
        for call in self.calls:
            if call.ending is None:
                self._drop(call)
                self._end(call, Ending.TIMED_OUT)
        for connection in self._idle:
            connection.abort()

    def answered(self, call: Call, connection: Connection, reader: traffic.MessageReader) -> None:
        """Judge the answer to an attempt; the connection is free again."""
        call.connection = None
        self._idle.append(connection)
        head = reader.head.lower()
        call.timed_out |= b"_timeout" in (traffic.field(head, b"x-sponson-trail") or b"")
        refused = reader.status in RETRIED or reader.status >= 500
        if refused and traffic.field(head, b"x-should-retry") != b"false":
            self._retry(call, Ending.REFUSED)
        else:
            self._end(call, _judge(call, head, reader))

    def lost(self, call: Call) -> None:
        """The connection of an attempt broke."""
        call.connection = None
        self._retry(call, Ending.BROKEN)

    def forget(self, connection: Connection) -> None:
        """An idle connection was closed by its other end."""
        if connection in self._idle:
            self._idle.remove(connection)

    def _attempt(self, call: Call) -> None:
        call.attempts += 1
        call.timer = self._loop.call_later(self._patience.attempt_seconds, self._expire, call)
        if self._idle:
            self._idle.pop().carry(call)
            return
        task = self._loop.create_task(self._open(call, call.attempts))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, call: Call, attempt: int) -> None:
        made = Connection(self)
        try:
            await self._loop.create_connection(lambda: made, "127.0.0.1", self._port)
        except OSError:
            if call.attempts == attempt and call.ending is None:
                self._retry(call, Ending.BROKEN)
            return
        if call.attempts == attempt and call.ending is None:
            made.carry(call)
        else:
            self._idle.append(made)

    def _expire(self, call: Call) -> None:
        call.timed_out = True
        self._drop(call)
        self._retry(call, Ending.TIMED_OUT)

    def _drop(self, call: Call) -> None:
        if call.connection is not None:
            call.connection.abort()
            call.connection = None

    def _retry(self, call: Call, last: Ending) -> None:
        if call.timer is not None:
            call.timer.cancel()
        if call.attempts > self._patience.retries:
            self._end(call, last)
            return
        seconds = self._patience.back_off_seconds * 2 ** (call.attempts - 1)
        call.timer = self._loop.call_later(seconds * (1 - 0.25 * self._random.random()), self._attempt, call)

    def _end(self, call: Call, ending: Ending) -> None:
        if call.timer is not None:
            call.timer.cancel()
        call.ending = Ending.TIMED_OUT if call.timed_out else ending
        call.ended_at = self._loop.time()


def _judge(call: Call, head: bytes, reader: traffic.MessageReader) -> Ending:
    if reader.status != 200:
        return Ending.REFUSED
    ending = TIERS.get(traffic.field(head, b"x-sponson-tier") or b"1", Ending.BROKEN)
    if ending is not Ending.STATIC and reader.body != traffic.answer_body(call.mark):
        return Ending.BROKEN
    return ending


class Connection(asyncio.Protocol):
    """One connection of the application: carries one attempt at a time."""

    def __init__(self, owner: Application) -> None:
        self._owner = owner
        self._reader = traffic.MessageReader()
        self._transport: asyncio.WriteTransport
        self._call: Call | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        # Thousands of attempts are given up a minute: none of them may keep its port for one.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)

    def data_received(self, data: bytes) -> None:
        if not self._reader.feed(data) or self._call is None:
            return
        call, self._call = self._call, None
        self._owner.answered(call, self, self._reader)
        self._reader.forget()

    def connection_lost(self, exc: Exception | None) -> None:
        call, self._call = self._call, None
        if call is None:
            self._owner.forget(self)
        else:
            self._owner.lost(call)

    def carry(self, call: Call) -> None:
        """Send an attempt of this call."""
        self._call, call.connection = call, self
        self._transport.write(call.request)

    def abort(self) -> None:
        """End the connection; its call is nobody's concern any more."""
        self._call = None
        self._transport.abort()
