"""Anthropic's wire format: messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from proxy.dialects.base import Operation
from proxy.dialects.errors import AnswerError, error_in
from proxy.dialects.stream import EventShape, Signs, StreamScanner
from proxy.dialects.usage import anthropic_usage
from proxy.dialects.wording import sentence, status_of
from proxy.exchange import Usage

_ERROR_TYPES: Final = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_EMPTY_AT_START: Final = frozenset({"text", "thinking"})


class Anthropic:
    """The dialect `anthropic`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The word for it in the policy."""
        return "anthropic"

    def error_body(self, *, status: int, reason: str, message: str, request_id: str) -> bytes:
        """Returns `{"type": "error", "error": {"type", "message", "code"}, "request_id"}`."""
        error = _error_object(status, reason, message)
        return orjson.dumps({"type": "error", "error": error, "request_id": request_id})

    def error_event(self, *, reason: str, message: str, operation: Operation | None = None) -> bytes:
        """Returns an `error` event."""
        document = {"type": "error", "error": _error_object(status_of(reason), reason, message)}
        return b"event: error\ndata: %b\n\n" % orjson.dumps(document)

    def usage_of(self, document: Mapping[str, Any]) -> Usage | None:
        """Returns the tokens of a message's `usage`."""
        return anthropic_usage(document.get("usage"))

    def scanner(self, operation: Operation) -> StreamScanner:
        """Returns a scanner for the events of a message."""
        return StreamScanner(MESSAGE_EVENTS)


def _error_object(status: int, reason: str, message: str) -> dict[str, str]:
    kind = _ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": kind, "message": sentence(reason, message), "code": reason}


def _read_event(name: bytes, document: Any) -> Signs:
    if not isinstance(document, dict):
        return Signs(content=True)
    error = error_in(document)
    if error is None and name == b"error":
        error = AnswerError(500, "error")
    kind = document.get("type") or name.decode("ascii", "replace")
    carrier = document.get("message") if kind == "message_start" else document
    usage = anthropic_usage(carrier.get("usage")) if isinstance(carrier, dict) else None
    return Signs(content=_has_content(kind, document), done=kind == "message_stop", error=error, usage=usage)


def _has_content(kind: Any, document: Mapping[str, Any]) -> bool:
    """Returns False for `message_start`, pings, the start of an empty block, and events not known yet."""
    if kind == "content_block_start":
        block = document.get("content_block")
        return isinstance(block, dict) and block.get("type") not in _EMPTY_AT_START
    return kind in ("content_block_delta", "message_delta")


MESSAGE_EVENTS: Final = EventShape(read=_read_event, words=(b"message_stop",))
