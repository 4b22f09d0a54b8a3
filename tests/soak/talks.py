"""WebSockets in the soak: a provider that says everything again, and ends as it likes; callers who do likewise."""

from __future__ import annotations

import asyncio
import random

from tests.integration.caller import Wire
from tests.integration.scripted import Exchange
from tests.websocket.encoding import BINARY, CLOSE, KEY, MASK, PING, TEXT, accept_of, closing, decoded, encoded

REALTIME = "/v1/realtime"
SIZES = (0, 5, 126, 70_000)
ENDS = ("close", "fail", "reset", "end", "half")
PATIENCE_SECONDS = 60.0
_OPEN = (
    f"GET {REALTIME}?model=rough-talk HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    f"sec-websocket-key: {KEY}\r\nsec-websocket-version: 13\r\n\r\n"
).encode()
_AGREED = (
    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: "
    + accept_of(KEY)
    + b"\r\n\r\n"
)


async def repeats(exchange: Exchange, draw: random.Random) -> None:
    """Agrees, says again what it hears, and now and then ends before the caller does."""
    await exchange.send(_AGREED.replace(accept_of(KEY), accept_of(exchange.request.header("sec-websocket-key") or "")))
    most = draw.choice((3, 1_000))
    try:
        for _ in range(most):
            opcode, payload = await heard(exchange.ears)
            await exchange.send(encoded(opcode, payload))
            if opcode == CLOSE:
                break
        else:
            await _ends(exchange, draw.choice(ENDS))
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    exchange.close()


async def _ends(exchange: Exchange, how: str) -> None:
    if how == "reset":
        exchange.reset()
    elif how == "half":
        await exchange.send(encoded(BINARY, bytes(1000))[:500])
    elif how != "end":
        await exchange.send(encoded(CLOSE, closing(1000 if how == "close" else 1011, how)))


async def heard(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Returns the next frame that is no ping. Raises IncompleteReadError at the end."""
    while True:
        data = await reader.readexactly(2)
        while (frame := decoded(data)) is None:
            data += await reader.readexactly(1 if len(data) < 14 else _missing(data))
        if frame[0].opcode != PING:
            return frame[0].opcode, frame[0].payload


def _missing(data: bytes) -> int:
    wide = {126: 2, 127: 8}.get(data[1] & 0x7F, 0)
    length = int.from_bytes(data[2 : 2 + wide], "big") if wide else data[1] & 0x7F
    return 2 + wide + 4 * (data[1] >> 7) + length - len(data)


async def converse(port: int, draw: random.Random) -> str:
    """Talks over a WebSocket and ends it in some way; returns what came of it. Raises ValueError for a changed message.

    Whoever is refused, or finds the provider gone, is told so by a status or a close.
    """
    async with Wire(port) as wire, asyncio.timeout(PATIENCE_SECONDS):
        await wire.send(_OPEN)
        head = await wire.reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101 "):
            return f"{head[9:10].decode()}xx"
        for _ in range(draw.randrange(6)):
            said = draw.randbytes(draw.choice(SIZES))
            await wire.send(encoded(draw.choice((TEXT, BINARY)), said, mask=MASK))
            try:
                opcode, payload = await heard(wire.reader)
            except (ConnectionError, asyncio.IncompleteReadError):
                return "broken off"
            if opcode == CLOSE:
                return f"closed with {int.from_bytes(payload[:2], 'big')}"
            if payload != said:
                raise ValueError(f"{len(said)} bytes came back as others")
        if draw.random() < 0.5:
            wire.leave(reset=draw.random() < 0.5)
            return "left"
        await wire.send(encoded(CLOSE, closing(1000), mask=MASK))
        try:
            opcode, _ = await heard(wire.reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            return "broken off"
    return "closed" if opcode == CLOSE else "crossed"
