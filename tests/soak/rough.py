"""The provider from which everything that providers do wrong can be had, by the model that is asked for."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable

from tests.integration.scripted import Exchange, ScriptedProvider
from tests.soak.talks import REALTIME, repeats

PREFIX = "rough-"
FILES, EARLY = "/v1/files", "/v1/early"
SPOILS = 0.6
"""So many calls for a fault get it, the others are answered well: breakers open, and close again."""
LARGE_BYTES = 3 << 20
EVENTS = 5
DONE = b"data: [DONE]\n\n"


def _event(number: int) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"line %d"}}]}\n\n' % number


async def _well(exchange: Exchange, draw: random.Random) -> None:
    if exchange.request.json().get("stream"):
        await exchange.stream([*map(_event, range(EVENTS)), DONE], gap=0.01)
    else:
        await exchange.reply(200, {"choices": [{"index": 0, "message": {"role": "assistant", "content": "well"}}]})


async def _status(exchange: Exchange, draw: random.Random) -> None:
    status = draw.choice((500, 502, 503, 529, 408, 418))
    await exchange.reply(status, {"error": {"message": "something broke", "type": "server_error"}})


async def _limit(exchange: Exchange, draw: random.Random) -> None:
    headers = [("retry-after-ms", "50")] if draw.random() < 0.5 else []
    await exchange.reply(429, {"error": {"message": "slow down", "type": "requests"}}, headers=headers)


async def _reset(exchange: Exchange, draw: random.Random) -> None:
    exchange.reset()


async def _close(exchange: Exchange, draw: random.Random) -> None:
    exchange.close()


async def _cut(exchange: Exchange, draw: random.Random) -> None:
    """A stream breaks off: by closing, by a reset, or by what is no chunk."""
    await exchange.begin()
    for number in range(draw.randrange(3)):
        await exchange.chunk(_event(number))
    end = draw.choice((exchange.close, exchange.reset, None))
    if end is None:
        await exchange.send(b"this is no chunk\r\n\r\n")
        end = exchange.close
    end()


async def _half(exchange: Exchange, draw: random.Random) -> None:
    """Half of an answer whose length is told, or of its head."""
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 400\r\n\r\n" + b"[" * 200
    await exchange.send(whole[: draw.choice((len(whole), 40))])
    exchange.close()


async def _hole(exchange: Exchange, draw: random.Random) -> None:
    await asyncio.get_running_loop().create_future()


async def _stall(exchange: Exchange, draw: random.Random) -> None:
    await exchange.begin()
    await exchange.chunk(_event(0))
    await _hole(exchange, draw)


async def _garbage(exchange: Exchange, draw: random.Random) -> None:
    await exchange.send(draw.choice((b"220 mail.test ESMTP\r\n", b"\x16\x03\x01\x02\x00\x01", b"HTTP/9.9 OK\r\n\r\n")))
    exchange.close()


async def _error(exchange: Exchange, draw: random.Random) -> None:
    """A stream that tells of an error, before or after it has said something."""
    said = [_event(0)] if draw.random() < 0.5 else []
    await exchange.stream([*said, b'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n', DONE])


async def _large(exchange: Exchange, draw: random.Random) -> None:
    """More than all buffers between here and a reader who takes his time hold."""
    piece = _event(0) * 500
    await exchange.stream([*[piece] * (LARGE_BYTES // len(piece)), DONE])


Fault = Callable[[Exchange, random.Random], Awaitable[None]]
FAULTS: dict[str, Fault] = {
    "status": _status,
    "limit": _limit,
    "reset": _reset,
    "close": _close,
    "cut": _cut,
    "half": _half,
    "hole": _hole,
    "stall": _stall,
    "garbage": _garbage,
    "error": _error,
}
"""By what follows the prefix in the model's name; `large` and `well` are no faults."""


class Rough:
    """Plays that provider; `calm`: from now on everything is answered well."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.provider = ScriptedProvider()
        self.provider.script = self._answer
        self.provider.reads_bodies = False
        self.calm = False

    async def _answer(self, exchange: Exchange) -> None:
        self.provider.forget()
        path = exchange.request.target.decode()
        if path == EARLY:
            await exchange.reply(413, {"error": {"message": "too large", "type": "invalid_request_error"}})
            exchange.close()
            return
        if path.startswith(REALTIME):
            await repeats(exchange, self._draw)
            return
        await exchange.read_body()
        if path == FILES:
            await exchange.reply(200, {"sha256": hashlib.sha256(exchange.request.body).hexdigest()})
            return
        model = str(exchange.request.json()["model"]).removeprefix(PREFIX)
        fault: Fault = _large if model == "large" else _well
        if model in FAULTS and not self.calm and self._draw.random() < SPOILS:
            fault = FAULTS[model]
        await fault(exchange, self._draw)
