"""What callers do besides asking well, and what they may see: one function for each kind of traffic, in `KINDS`.

A visit returns a word for what came of it, or raises Surprise: whatever providers and callers do, an answer is whole or
visibly broken off, says what it is, and comes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.integration.caller import Answer, Wire, request_bytes
from tests.soak.rough import DONE, EARLY, FAULTS, FILES, PREFIX
from tests.soak.talks import converse

PATIENCE_SECONDS = 60.0
CHAT = "/v1/chat/completions"
SLOW_PIECE = 64 << 10
STOPPED_SECONDS = 2.5


class Surprise(Exception):
    """What no caller may see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One visit to the proxy."""

    port: int
    draw: random.Random

    def chat(self, model: str, *, stream: bool = False, words: int = 20) -> bytes:
        """A call of the rough provider."""
        text = "please " * words
        body = {"model": PREFIX + model, "messages": [{"role": "user", "content": text}], "stream": stream}
        return request_bytes("POST", CHAT, body=body)


def judge(answer: Answer) -> str:
    """Says what an answer is; raises Surprise, or ValueError where a document should be."""
    if answer.seconds >= PATIENCE_SECONDS:
        raise Surprise("the answer does not end")
    if not answer.status:
        raise Surprise("no answer at all")
    if answer.status >= 400:
        return _refusal(answer)
    if not answer.complete:
        return "broken off"
    if "event-stream" not in (answer.header("content-type") or ""):
        json.loads(answer.body)
        return "whole"
    if answer.body.endswith(DONE) or b'"error"' in answer.body:
        return "whole"
    raise Surprise(f"a stream that is not whole looks so: {answer.body[-200:]!r}")


def _refusal(answer: Answer) -> str:
    if not answer.complete:
        return "broken off"
    if "error" not in json.loads(answer.body):
        raise Surprise(f"{answer.status} says nothing: {answer.body[:200]!r}")
    return f"{answer.status // 100}xx"


async def asks(visit: Visit) -> str:
    """Meets a fault of the provider."""
    model, stream = visit.draw.choice(tuple(FAULTS)), visit.draw.random() < 0.6
    async with Wire(visit.port) as wire:
        await wire.send(visit.chat(model, stream=stream))
        answer = await wire.answer(within=PATIENCE_SECONDS)
    try:
        return judge(answer)
    except (Surprise, ValueError) as surprise:
        raise Surprise(f"{model}: {surprise!r} at {answer.head!r} {answer.body[:300]!r}") from None


async def leaves(visit: Visit) -> str:
    """Goes away: in the head, in the body, while it waits, in the stream; by closing or by a reset."""
    request = visit.chat("large", stream=True, words=visit.draw.choice((20, 20_000)))
    body_at = request.index(b"\r\n\r\n") + 4
    phases = {"head": request[: body_at // 2], "body": request[: (body_at + len(request)) // 2]}
    phase = visit.draw.choice((*phases, "wait", "stream"))
    if phase == "wait":
        phases[phase] = visit.chat("hole", stream=visit.draw.random() < 0.5)
    async with Wire(visit.port) as wire:
        await wire.send(phases.get(phase, request))
        if phase == "stream":
            await wire.reader.read(1)
        await asyncio.sleep(visit.draw.uniform(0.0, 0.1))
        wire.leave(reset=visit.draw.random() < 0.5)
    return f"left in its {phase}"


async def reads_slowly(visit: Visit) -> str:
    """Takes a large answer at its leisure."""
    async with Wire(visit.port) as wire:
        await wire.send(visit.chat("large", stream=True))
        async with asyncio.timeout(PATIENCE_SECONDS):
            pieces = [await wire.reader.read(SLOW_PIECE)]
            if not pieces[0].startswith(b"HTTP/1.1 200"):
                return "refused"
            while pieces[-1] and not b"".join(pieces[-2:]).endswith(b"0\r\n\r\n"):
                pieces.append(await wire.reader.read(SLOW_PIECE))
                await asyncio.sleep(0.005)
    return "whole" if pieces[-1] else "broken off"


async def stops_reading(visit: Visit) -> str:
    """Reads no further, for longer than the proxy waits; then looks what is there."""
    async with Wire(visit.port) as wire:
        await wire.send(visit.chat("large", stream=True))
        await wire.reader.read(1)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(STOPPED_SECONDS)
        wire.leave()
    return "left unread"


async def uploads(visit: Visit) -> str:
    """Sends a file by length or in chunks; the provider must have every byte."""
    data = visit.draw.randbytes(visit.draw.choice((1, 70_000, 3 << 20)))
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    chunked = visit.draw.random() < 0.5
    framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(data)))
    async with Wire(visit.port) as wire:
        await wire.send(request_bytes("POST", FILES, headers=[("content-type", "application/octet-stream"), framing]))
        try:
            for piece in pieces:
                await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await wire.send(b"0\r\n\r\n" if chunked else b"")
        except ConnectionError:
            return "cut short"
        answer = await wire.answer(within=PATIENCE_SECONDS)
    if answer.status != 200:
        return judge(answer)
    if answer.json()["sha256"] != hashlib.sha256(data).hexdigest():
        raise Surprise(f"{len(data)} bytes arrived as others")
    return "whole"


async def is_refused_early(visit: Visit) -> str:
    """Sends more than a provider wants, who says so before it has it."""
    async with Wire(visit.port) as wire:
        await wire.send(request_bytes("POST", EARLY, headers=[("content-length", str(4 << 20))]))
        try:
            for _ in range(8):
                await wire.send(bytes(1 << 19))
        except ConnectionError:
            return "cut short"
        answer = await wire.answer(within=PATIENCE_SECONDS)
    return judge(answer) if answer.status else "cut short"


async def pipelines(visit: Visit) -> str:
    """Sends several requests before it reads an answer: all come, in their order."""
    sizes = [(bytes([65 + number]) * 3000) for number in range(4)]
    wanted = [hashlib.sha256(data).hexdigest() for data in sizes]
    async with Wire(visit.port) as wire:
        await wire.send(b"".join(request_bytes("POST", FILES, body=data) for data in sizes))
        answers = [await wire.answer(within=PATIENCE_SECONDS) for _ in sizes]
    for answer, digest in zip(answers, wanted, strict=True):
        word = judge(answer)
        if word != "whole":
            return word
        if answer.json()["sha256"] != digest:
            raise Surprise("answers came in another order")
    return "whole"


async def stays(visit: Visit) -> str:
    """Asks again and again on one connection."""
    async with Wire(visit.port) as wire:
        for number in range(5):
            await wire.send(visit.chat("well", stream=number % 2 == 1))
            word = judge(await wire.answer(within=PATIENCE_SECONDS))
            if word != "whole":
                return word
    return "whole"


async def says_nothing(visit: Visit) -> str:
    """Connects, and is silent for a while."""
    async with Wire(visit.port):
        await asyncio.sleep(visit.draw.uniform(0.0, 1.0))
    return "left"


_NONSENSE = (
    b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03",
    b"GET /nowhere HTTP/1.1\r\nhost: here\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n",
    b"POST /nowhere HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n\r\n",
    b"WHAT IS THIS\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost : here\r\n\r\n",
)


async def talks_nonsense(visit: Visit) -> str:
    """Sends what is no request: it is told so, and the connection ends."""
    async with Wire(visit.port) as wire:
        await wire.send(visit.draw.choice(_NONSENSE))
        answer = await wire.answer(within=PATIENCE_SECONDS)
        if answer.status != 400 or not await wire.closed(within=PATIENCE_SECONDS):
            raise Surprise(f"nonsense was answered with {answer.status} on a connection that stays")
    return "4xx"


async def talks(visit: Visit) -> str:
    """Holds a conversation over a WebSocket."""
    try:
        return await converse(visit.port, visit.draw)
    except (ValueError, asyncio.IncompleteReadError) as error:
        raise Surprise(f"a conversation: {error!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of traffic; `weight` is how often it comes beside the others."""

    name: str
    weight: float
    visit: Callable[[Visit], Awaitable[str]]


KINDS = (
    Kind(name="meets a fault", weight=10, visit=asks),
    Kind(name="leaves", weight=6, visit=leaves),
    Kind(name="reads slowly", weight=1, visit=reads_slowly),
    Kind(name="stops reading", weight=1, visit=stops_reading),
    Kind(name="uploads", weight=2, visit=uploads),
    Kind(name="is refused early", weight=1, visit=is_refused_early),
    Kind(name="pipelines", weight=1, visit=pipelines),
    Kind(name="stays", weight=1, visit=stays),
    Kind(name="says nothing", weight=2, visit=says_nothing),
    Kind(name="converses", weight=3, visit=talks),
    Kind(name="talks nonsense", weight=1, visit=talks_nonsense),
)
"""All traffic beside the calls that must not fail. Another kind is another function and a line here."""
