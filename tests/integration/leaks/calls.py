"""Ways of calls to end that the table of reasons does not provoke, with a provider that repeats all it was sent.

Some gateways do so in their error texts. What such a provider tells the caller is its own doing; what the proxy tells
anybody else is not.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tests.integration.caller import Headers, request_bytes
from tests.integration.leaks.marks import HEADERS, OFFER, PROMPT, QUERY, TRACED, mark
from tests.integration.messages import DONE, closes, event, hangs, says
from tests.integration.scripted import Exchange, Script

if TYPE_CHECKING:
    from tests.integration.leaks.scene import Scene

STATUSES = (300, 400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 501, 503, 529)
CHAT = "/v1/chat/completions"
WEBSOCKET: Headers = [
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("sec-websocket-protocol", OFFER),
]


def heard(exchange: Exchange) -> str:
    """Returns every secret that came, on one line."""
    values = [value.decode("latin-1") for _, value in exchange.request.headers]
    return " ".join([*values, exchange.request.target.decode("latin-1")])


def error(exchange: Exchange) -> dict[str, Any]:
    """Returns an error object that repeats them, in each of its fields."""
    return {"error": dict.fromkeys(("message", "type", "code", "param"), heard(exchange))}


def repeats(status: int) -> Script:
    """A provider that refuses, and repeats what it was sent in the body, in fields and in the phrase."""

    async def script(exchange: Exchange) -> None:
        said = heard(exchange)
        headers = [("x-said", said), ("www-authenticate", f'Bearer realm="{said}"'), ("x-request-id", said)]
        await exchange.reply(status, error(exchange), headers=headers, phrase=said)

    return script


def raw(before: bytes, after: bytes) -> Script:
    """A provider that sends these bytes, what it was sent between them, and closes."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(before + heard(exchange).encode("latin-1") + after)
        exchange.close()

    return script


GARBAGE = {
    "status line": raw(b"HTTP/1.1 2", b" OK\r\n\r\n"),
    "no HTTP": raw(b"", b"\r\n\r\n"),
    "field without colon": raw(b"HTTP/1.1 200 OK\r\n", b"\r\n\r\n"),
    "length": raw(b"HTTP/1.1 200 OK\r\ncontent-length: ", b"\r\n\r\n"),
    "coding": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: ", b"\r\n\r\n"),
    "chunk size": raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"\r\n"),
    "half a body": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n", b""),
    "too long a field": raw(b"HTTP/1.1 200 OK\r\nx-long: ", b"y" * 2_000_000 + b"\r\n\r\n"),
    "no JSON": raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{", b""),
    "no gzip": raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n\r\n", b""),
    "interim": raw(b"HTTP/1.1 103 Early Hints\r\nlink: ", b"\r\n\r\n"),
    "switch": raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\nx: ", b"\r\n\r\n"),
    "closed": closes,
}


async def fine(scene: Scene) -> None:
    scene.lab["keyed"].script = says("hi")
    await scene.call("keyed")
    await scene.call("keyed", headers=TRACED)
    await scene.call("keyed", headers=[("traceparent", mark("traceparent")), ("tracestate", "a=b")])
    for choices in (1, 1, 2):
        await scene.call("next", headers=[("idempotency-key", mark("once"))], n=choices)


async def failing_answers(scene: Scene) -> None:
    for status in STATUSES:
        scene.lab[f"echo-{status}"].script = repeats(status)
        await scene.call(f"echo-{status}", echoed=True)
        await scene.call(f"echo-{status}", path="/v1/messages", echoed=True, max_tokens=9)
    await scene.call("tiers")
    await scene.call("tiers", stream=True)
    await scene.call("answered")


async def errors_inside_answers(scene: Scene) -> None:
    async def whole(exchange: Exchange) -> None:
        await exchange.reply(200, error(exchange))

    async def event_first(exchange: Exchange) -> None:
        await exchange.stream([b'data: {"error": {"code": "%b"}}\n\n' % heard(exchange).encode(), DONE])

    async def event_later(exchange: Exchange) -> None:
        await exchange.stream([event("a"), b'data: {"error": {"code": "%b"}}\n\n' % heard(exchange).encode()])

    async def broken(exchange: Exchange) -> None:
        await exchange.begin(headers=[("x-said", heard(exchange))])
        await exchange.chunk(event("a") + b'data: {"x": "%b' % heard(exchange).encode())
        exchange.reset()

    scene.lab["keyed"].script = whole
    await scene.call("keyed", echoed=True)
    for script in (event_first, event_later, broken):
        scene.lab["keyed"].script = script
        await scene.call("keyed", echoed=True, stream=True)


async def garbage(scene: Scene) -> None:
    for script in GARBAGE.values():
        scene.lab["keyed"].script = script
        await scene.call("keyed", echoed=True)
        await scene.call("keyed", echoed=True, stream=True)


async def no_connection(scene: Scene) -> None:
    for name in ("untrusted", "no-tls"):
        await scene.call(name)


async def ends_by_time(scene: Scene) -> None:
    async def goes_on(exchange: Exchange) -> None:
        await exchange.begin()
        while True:
            await exchange.chunk(event(heard(exchange)))
            await asyncio.sleep(0.05)

    scene.lab["short"].script = goes_on
    await scene.call("short", echoed=True, stream=True)


async def leaves(scene: Scene) -> None:
    """A caller that goes away while it is answered."""
    keyed = scene.lab["keyed"]
    keyed.script = hangs
    seen = len(keyed.seen)
    async with scene.lab.wire() as wire:
        body = {"model": "keyed", **PROMPT}
        await wire.send(request_bytes("POST", f"{CHAT}{QUERY}", headers=HEADERS, body=body))
        await keyed.has_seen(seen + 1, within=20)
        wire.leave()
    await scene.lab.idle()


def opens(*frames: tuple[int, bytes]) -> Script:
    """A provider that agrees to a WebSocket, sends these frames, each with what it was sent, and goes."""

    async def script(exchange: Exchange) -> None:
        asked = (exchange.request.header("sec-websocket-key") or "").encode()
        digest = base64.b64encode(hashlib.sha1(asked + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        head = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        await exchange.send(head + b"sec-websocket-protocol: realtime\r\nsec-websocket-accept: " + digest + b"\r\n\r\n")
        for opcode, before in frames:
            payload = before + heard(exchange).encode("latin-1")[: 120 - len(before)]
            await exchange.send(bytes([0x80 | opcode, len(payload)]) + payload)
        exchange.close()

    return script


async def sockets(scene: Scene) -> None:
    """WebSockets: refused by a status and by garbage, closed with a reason, broken by what is no frame."""
    refusals = (repeats(401), repeats(503), GARBAGE["switch"], GARBAGE["no HTTP"])
    for script in (*refusals, opens((8, b"\x03\xf3")), opens((1, b"")), opens((1, b"{"), (7, b""))):
        for name in ("keyed", "next"):
            scene.lab[name].script = script
            ask = request_bytes("GET", f"/v1/realtime{QUERY}&model={name}", headers=[*HEADERS, *WEBSOCKET])
            await scene.send("websocket", ask, echoed=True)


CALLS: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    *(fine, failing_answers, errors_inside_answers, garbage, no_connection, ends_by_time, leaves),
    sockets,
)
