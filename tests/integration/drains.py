"""Callers in every phase of a call: how each gets there, and how it goes on after the proxy was asked to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.caller import HOST, Answer, Wire, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, event, said
from tests.integration.scripted import Exchange

MUCH = 16 << 20
"""Bytes that the buffers between the proxy and a client that takes nothing do not hold."""

ORDERS = {"native": ["--linger", "0s"], "classic": ["--linger", "500ms"]}
"""As a sidecar that ends after its application, and as a container that ends together with it."""


def policy(hole: int, *, connect: str = "300ms", base: str = "300ms") -> dict[str, Any]:
    """A provider for each kind of waiting; nobody ever answers at the port `hole`."""
    return {
        "version": 1,
        "providers": {
            "one": {"limits": {"concurrency": 1}, "timeouts": {"queue": "60s"}, "breaker": "off"},
            "many": {"breaker": "off"},
            "down": {"breaker": "off"},
            "hole": {"base_url": f"http://{HOST}:{hole}/v1", "timeouts": {"connect": connect}, "breaker": "off"},
        },
        "routes": [
            route("queueing", "one"),
            route("backing-off", "down", retry={"attempts": 2, "base": base}),
            route("connecting", "hole", "many", retry={"attempts": 1}),
            route("held-back", "many", retry={"attempts": 2}),
            route("plain", "many"),
            route("upload", "many", match={"path": "/v1/audio/transcriptions"}),
        ],
    }


@dataclass(slots=True, kw_only=True)
class Case:
    """One caller on its connection; `gate` lets the providers go on."""

    lab: Lab
    wire: Wire
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    rest: bytes = b""
    reading: asyncio.Task[Answer] | None = None

    async def begin(self, model: str, *, at: str, stream: bool = False) -> None:
        """Sends a whole call for the route of this name, and waits until the provider has it."""
        before = len(self.lab[at].seen)
        await self.wire.send(asks(model, stream=stream))
        await self.lab[at].has_seen(before + 1)

    async def send(self, data: bytes) -> None:
        """Sends what is no whole call, or one that no provider sees, and waits until the proxy knows of it."""
        before = (await self.lab.proxy.status())["in_flight"]
        await self.wire.send(data)
        await self.lab.proxy.until(lambda status: status["in_flight"] > before)

    async def go_on(self) -> None:
        """Lets everybody do what is left: the client its sending and reading, the providers their answers."""
        self.gate.set()
        self.resume()
        if self.rest:
            await self.wire.send(self.rest)

    def pause(self) -> None:
        """Takes nothing of what comes."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Takes what has come, and what comes."""
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        transport = self.wire.writer.transport
        assert isinstance(transport, asyncio.Transport)
        return transport

    async def answer(self) -> Answer:
        """Reads the answer, from its beginning."""
        return await (self.reading or self.wire.answer())

    async def waits(self, exchange: Exchange) -> None:
        """A provider that answers after the gate."""
        await self.gate.wait()
        await exchange.reply(200, said("hi"))


def asks(model: str, *, stream: bool = False) -> bytes:
    """Returns a chat for the route of this name."""
    body = {**(CHAT_STREAM if stream else CHAT), "model": model}
    return request_bytes("POST", "/v1/chat/completions", body=body)


async def idle(case: Case) -> None:
    """A connection that was never used."""


async def between(case: Case) -> None:
    """Between two requests of a connection."""
    case.gate.set()
    case.lab["many"].script = case.waits
    await case.begin("plain", at="many")
    assert (await case.wire.answer()).status == 200


async def head_half_in(case: Case) -> None:
    """A request whose head is partly sent."""
    case.lab["many"].script = case.waits
    whole = asks("plain")
    await case.wire.send(whole[:40])
    case.rest = whole[40:]
    await asyncio.sleep(0.1)


async def body_half_in(case: Case) -> None:
    """A request whose body, read before it is routed, is partly sent."""
    case.lab["many"].script = case.waits
    whole = asks("plain")
    await case.send(whole[:-10])
    case.rest = whole[-10:]


async def upload_half_in(case: Case) -> None:
    """An upload that is passed on while it comes."""
    case.lab["many"].script = case.waits
    kind = [("content-type", "multipart/form-data; boundary=x"), ("transfer-encoding", "chunked")]
    await case.send(request_bytes("POST", "/v1/audio/transcriptions", headers=kind) + b"5\r\nhello\r\n")
    case.rest = b"5\r\nworld\r\n0\r\n\r\n"


async def queued(case: Case) -> None:
    """Waits for a permit that another call has."""
    case.lab["one"].script = case.waits
    before = asyncio.ensure_future(case.lab.chat("queueing"))
    await case.lab["one"].has_seen(1)
    before.add_done_callback(lambda done: done.exception())
    await case.wire.send(asks("queueing"))
    await case.lab.proxy.until(lambda status: any(row["waiting"] == 1 for row in status["queues"]))


async def backing_off(case: Case) -> None:
    """Waits before it tries again."""

    async def fails_first(exchange: Exchange) -> None:
        if exchange.number:
            await case.waits(exchange)
        else:
            await exchange.reply(503, {"error": {"message": "full", "type": "error"}})

    case.lab["down"].script = fails_first
    await case.begin("backing-off", at="down")


async def connecting(case: Case) -> None:
    """Dials a provider that does not answer; another tier can."""
    case.lab["many"].script = case.waits
    await case.send(asks("connecting"))


async def before_head(case: Case) -> None:
    """Waits for the provider's head."""
    case.lab["many"].script = case.waits
    await case.begin("plain", at="many")


async def held_back(case: Case) -> None:
    """Has an answer that may still be replaced: its client has seen nothing of it."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event(None))
        await case.gate.wait()
        await exchange.chunk(event("a") + DONE)
        await exchange.end()

    case.lab["many"].script = script
    await case.begin("held-back", at="many", stream=True)


async def mid_stream(case: Case) -> None:
    """Has a stream of which its client has seen a part."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("a"))
        await case.gate.wait()
        await exchange.chunk(event("b") + DONE)
        await exchange.end()

    case.lab["many"].script = script
    await case.begin("plain", at="many", stream=True)
    begun = asyncio.Event()
    case.reading = asyncio.create_task(case.wire.answer(on_piece=lambda piece: begun.set()))
    await begun.wait()


async def unread(case: Case) -> None:
    """Has a whole answer of which its client takes nothing for a while."""

    async def script(exchange: Exchange) -> None:
        await exchange.reply(200, b"x" * MUCH)

    case.lab["many"].script = script
    case.pause()
    await case.begin("plain", at="many")
    await asyncio.sleep(0.2)


Phase = Callable[[Case], Awaitable[None]]

BEGUN: Mapping[str, Phase] = {
    "body half in": body_half_in,
    "upload half in": upload_half_in,
    "queued": queued,
    "backing off": backing_off,
    "connecting": connecting,
    "before the head": before_head,
    "held back": held_back,
    "mid-stream": mid_stream,
    "unread": unread,
}
"""Phases of a call that has begun."""

WITHOUT_CALL: Mapping[str, Phase] = {"idle": idle, "between requests": between, "head half in": head_half_in}
"""Phases of a connection without one."""
