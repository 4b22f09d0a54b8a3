"""A transport in front of a scripted provider, with a clock and a reply that the test holds in its hands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from proxy.dialects.lookup import operation_of
from proxy.exchange import Attempt, Exchange, PhaseLimits
from proxy.outcome import Outcome
from proxy.upstream.dialer import Dialer
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from proxy.upstream.pool import Pool
from proxy.upstream.transport import Transport
from tests.fakes import CHAT, LIMITS, Ask, FakeClock, FakeReply, make_exchange, with_attempt
from tests.upstream.peer import Peer, PeerWire, Script, provider

STREAM = Ask(stream=True)
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
WORD = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"
OVERLOADED = b'data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def with_length(head: bytes, body: bytes) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def begins(*pieces: bytes, head: bytes = EVENTS_HEAD, breaks: bool = True) -> Script:
    """A stream that begins like this, and then breaks or stands still."""

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(head)
        for piece in pieces:
            await wire.send(chunk(piece))
            await wire.seen()
        if not breaks:
            await wire.gone()

    return script


@dataclass(slots=True)
class Milestones:
    """What a breaker would be told."""

    wire: list[float] = field(default_factory=list)
    content: list[float] = field(default_factory=list)

    def on_wire(self, now: float) -> None:
        self.wire.append(now)

    def first_content(self, now: float) -> None:
        self.content.append(now)


class Rig:
    """One provider's transport; `call` makes an exchange of an ask and runs it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.clock = FakeClock()
        self.pool = Pool(Dialer(peer.address), idle_seconds=25.0)
        self.progress = Milestones()
        self.reply = FakeReply()
        self.transport = Transport(
            pool=self.pool,
            headers=HeaderPlan(host="provider.test", own_credential=False, propagate_trace=False),
            answer_headers=AnswerHeaders(),
            clock=self.clock,
        )

    def exchange(self, ask: Ask = CHAT, *, limits: PhaseLimits = LIMITS, **changes: Any) -> Exchange:
        """An exchange with its attempt, ready for the transport; `changes` are attributes of it."""
        self.reply = FakeReply()
        exchange = make_exchange(ask, now=self.clock.now(), reply=self.reply)
        exchange.upstream_path = ask.target
        exchange.operation = operation_of(exchange.request.path)
        exchange.dialect = exchange.operation.dialect if exchange.operation else None
        exchange.progress = self.progress
        for name, value in changes.items():
            setattr(exchange, name, value)
        with_attempt(exchange, limits=limits)
        return exchange

    async def call(self, ask: Ask = CHAT, **changes: Any) -> tuple[Outcome, Attempt]:
        """One attempt, to its end."""
        exchange = self.exchange(ask, **changes)
        outcome = await self.transport(exchange)
        assert exchange.attempt is not None
        return outcome, exchange.attempt

    def start(self, exchange: Exchange) -> asyncio.Task[Outcome]:
        """One attempt, in a task of its own."""
        return asyncio.ensure_future(self._run(exchange))

    async def _run(self, exchange: Exchange) -> Outcome:
        return await self.transport(exchange)


@asynccontextmanager
async def rigged(script: Script) -> AsyncIterator[Rig]:
    """A rig in front of this script."""
    async with provider(script) as peer:
        rig = Rig(peer)
        try:
            yield rig
        finally:
            await rig.pool.close()
