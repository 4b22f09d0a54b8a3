"""A wire format that is not understood: everything passes, and every byte is content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from proxy.dialects.base import Operation
from proxy.dialects.openai import error_object
from proxy.dialects.stream import EventShape, Signs, StreamScanner
from proxy.dialects.wording import status_of
from proxy.exchange import Usage


class Opaque:
    """The dialect `opaque`. Its errors are small JSON objects in the most common shape."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The word for it in the policy."""
        return "opaque"

    def error_body(self, *, status: int, reason: str, message: str, request_id: str) -> bytes:
        """Returns `{"error": {"message", "type", "code"}, "request_id"}`."""
        return orjson.dumps({"error": _error_object(status, reason, message), "request_id": request_id})

    def error_event(self, *, reason: str, message: str, operation: Operation | None = None) -> bytes:
        """Returns an `error` event."""
        return b"event: error\ndata: %b\n\n" % orjson.dumps(
            {"error": _error_object(status_of(reason), reason, message)}
        )

    def usage_of(self, document: Mapping[str, Any]) -> Usage | None:
        """Returns None: nothing is known."""
        return None

    def scanner(self, operation: Operation) -> StreamScanner:
        """Returns a scanner that takes the first byte for content."""
        return PassingScanner()


class PassingScanner(StreamScanner):
    """Reads nothing: the first byte is content, every piece is a sign of life, and no events are told apart."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        super().__init__(_NOTHING)
        self._end = b""

    @property
    def between_events(self) -> bool:
        """True when the bytes so far end with a blank line."""
        return not self.content or self._end.endswith(_BLANK_LINES)

    def feed(self, piece: bytes) -> None:
        """Takes the next bytes of the stream."""
        self.content = self.content or bool(piece)
        self.events += bool(piece)
        self._end = (self._end + piece[-4:])[-4:]

    def finish(self) -> None:
        """Takes the end of the stream."""


def _error_object(status: int, reason: str, message: str) -> dict[str, Any]:
    error = error_object(status, reason, message)
    del error["param"]
    return error


_BLANK_LINES: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
_NOTHING: Final = EventShape(read=lambda name, document: Signs())
