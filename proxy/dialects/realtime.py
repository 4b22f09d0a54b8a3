"""Realtime events: the tokens that a WebSocket's server messages report, one response after the other."""

from __future__ import annotations

from typing import Any, Final

import orjson

from proxy.dialects.usage import openai_usage
from proxy.exchange import Usage

LOOK_BYTES: Final = 256
"""Where in a message its type stands."""
MOST_BYTES: Final = 1 << 20
_REPORTS: Final = frozenset(
    {"response.done", "response.completed", "response.incomplete", "response.failed"}
    | {"conversation.item.input_audio_transcription.completed"}
)
_MARKS: Final = tuple(f'"{kind}"'.encode() for kind in sorted(_REPORTS))


class RealtimeMeter:
    """Adds up what messages report; `usage` is None while none has."""

    __slots__ = ("_looks", "_message", "usage")

    def __init__(self) -> None:
        self._message = bytearray()
        self._looks = True
        self.usage: Usage | None = None

    def __repr__(self) -> str:
        return f"<RealtimeMeter {self.usage}>"

    def feed(self, piece: bytes, final: bool) -> None:
        """Takes a piece of a text message; `final` ends the message."""
        if self._looks:
            before = len(self._message)
            self._message += piece
            if len(self._message) > MOST_BYTES or (before < LOOK_BYTES <= len(self._message) and not self._may_tell()):
                self._looks = False
                self._message.clear()
        if final:
            if self._looks and self._may_tell():
                self._read(bytes(self._message))
            self._message.clear()
            self._looks = True

    def _may_tell(self) -> bool:
        return any(self._message.find(mark, 0, LOOK_BYTES) >= 0 for mark in _MARKS)

    def _read(self, message: bytes) -> None:
        try:
            document: Any = orjson.loads(message)
        except orjson.JSONDecodeError:
            return
        if not isinstance(document, dict) or document.get("type") not in _REPORTS:
            return
        response = document.get("response")
        found = openai_usage((response if isinstance(response, dict) else document).get("usage"))
        if found is not None:
            total = self.usage = self.usage or Usage()
            total.input += found.input
            total.output += found.output
            total.cached_input += found.cached_input
