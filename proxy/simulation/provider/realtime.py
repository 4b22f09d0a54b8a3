"""A realtime session over a WebSocket, in OpenAI's shape: text in, text out, usage at the end of each response."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from proxy.simulation.provider.answers import echo, words
from proxy.simulation.provider.settings import AnswerStyle, SimulatorSettings

PATH = "/v1/realtime"
PROTOCOL = "realtime"
_MOST_BYTES = 1 << 24


class Session:
    """One conversation."""

    def __init__(self, settings: SimulatorSettings, *, model: str, rng: random.Random) -> None:
        self._settings = settings
        self._model = model
        self._rng = rng
        self._said: list[str] = []
        self._socket = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=_MOST_BYTES, compress=False)

    async def run(self, request: web.Request) -> web.WebSocketResponse:
        """Talks until either side closes."""
        await self._socket.prepare(request)
        await self._say("session.created", session=self._session())
        async for message in self._socket:
            if message.type is WSMsgType.TEXT:
                await self._hear(message.data)
            elif message.type is WSMsgType.BINARY:
                await self._complain("expected a text message", code="invalid_message")
        return self._socket

    async def _hear(self, text: str) -> None:
        try:
            event = orjson.loads(text)
        except orjson.JSONDecodeError:
            await self._complain("could not read the message as JSON", code="invalid_json")
            return
        kind = event.get("type") if isinstance(event, dict) else None
        match kind:
            case "session.update":
                await self._say("session.updated", session=self._session())
            case "conversation.item.create":
                item = event.get("item") or {}
                parts = [part for part in item.get("content") or () if isinstance(part, dict)]
                self._said += [str(part.get("text", "")) for part in parts]
                await self._say("conversation.item.created", item={**item, "id": self._id("item")})
            case "response.create":
                await self._respond()
            case _:
                await self._complain(f"unknown event type {kind!r}", code="unknown_event")

    async def _respond(self) -> None:
        """Answers what was said since the last response, a word at a time."""
        settings, heard = self._settings, " ".join(self._said)
        self._said.clear()
        told = echo(heard) if settings.answer is AnswerStyle.ECHO else words(settings.output_tokens, self._rng)
        response: dict[str, Any] = {"object": "realtime.response", "id": self._id("resp"), "output": []}
        await self._say("response.created", response={**response, "status": "in_progress"})
        await asyncio.sleep(settings.latency.sample(self._rng))
        place = {"response_id": response["id"], "item_id": self._id("item"), "output_index": 0, "content_index": 0}
        for word in told:
            if settings.tokens_per_second:
                await asyncio.sleep(1 / settings.tokens_per_second)
            await self._say("response.output_text.delta", delta=word, **place)
        await self._say("response.output_text.done", text="".join(told), **place)
        usage = {
            "total_tokens": len(echo(heard)) + len(told),
            "input_tokens": len(echo(heard)),
            "output_tokens": len(told),
            "input_token_details": {"cached_tokens": 0, "text_tokens": len(echo(heard)), "audio_tokens": 0},
        }
        await self._say("response.done", response={**response, "status": "completed", "usage": usage})

    async def _complain(self, message: str, *, code: str) -> None:
        await self._say("error", error={"type": "invalid_request_error", "code": code, "message": message})

    async def _say(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "event_id": self._id("event"), **fields}
        await self._socket.send_str(orjson.dumps(event).decode())

    def _session(self) -> dict[str, Any]:
        return {"type": "realtime", "object": "realtime.session", "id": self._id("sess"), "model": self._model}

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._rng.getrandbits(64):016x}"


def asks_for_session(request: web.Request) -> bool:
    """Returns whether this is the handshake of a realtime session."""
    return request.path == PATH and request.headers.get("upgrade", "").lower() == "websocket"


def key_offered(request: web.Request) -> str | None:
    """Returns the key that browsers offer as a subprotocol, None without one."""
    mark = "openai-insecure-api-key."
    offers = (word.strip() for word in request.headers.get("sec-websocket-protocol", "").split(","))
    return next((word.removeprefix(mark) for word in offers if word.startswith(mark)), None)
