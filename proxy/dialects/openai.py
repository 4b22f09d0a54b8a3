"""OpenAI's wire format, which many speak: chat, completions, embeddings, responses and relatives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from proxy.dialects.base import Operation
from proxy.dialects.errors import AnswerError, error_in
from proxy.dialects.stream import EventShape, Signs, StreamScanner
from proxy.dialects.usage import openai_usage
from proxy.dialects.wording import sentence, status_of
from proxy.exchange import Usage

_DELTA_CONTENT: Final = (
    "content",
    "tool_calls",
    "function_call",
    "refusal",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "audio",
)
_RESPONSES: Final = "responses"
_ERROR_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_KEEP_ALIVES: Final = frozenset({"ping", "keepalive"})
_PREAMBLE: Final = frozenset({"response.created", "response.in_progress", "response.queued"})
_PARTS: Final = frozenset({"response.content_part.added", "response.reasoning_summary_part.added"})
_EMPTY_AT_START: Final = frozenset({"message", "reasoning"})
_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class OpenAI:
    """The dialect `openai`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The word for it in the policy."""
        return "openai"

    def error_body(self, *, status: int, reason: str, message: str, request_id: str) -> bytes:
        """Returns `{"error": {"message", "type", "param", "code"}, "request_id"}`."""
        return orjson.dumps({"error": error_object(status, reason, message), "request_id": request_id})

    def error_event(self, *, reason: str, message: str, operation: Operation | None = None) -> bytes:
        """Returns an event with an error object, for which the SDKs raise; one of `responses` has its own shape too."""
        error = error_object(status_of(reason), reason, message)
        if operation is None or operation.kind != _RESPONSES:
            return b"data: %b\n\n" % orjson.dumps({"error": error})
        own = {"type": "error", "code": error["code"], "message": error["message"], "param": None, "error": error}
        return b"event: error\ndata: %b\n\n" % orjson.dumps(own)

    def usage_of(self, document: Mapping[str, Any]) -> Usage | None:
        """Returns the tokens of an answer's `usage`."""
        return openai_usage(document.get("usage"))

    def scanner(self, operation: Operation) -> StreamScanner:
        """Returns a scanner for chunks, or for the typed events of `responses`."""
        return StreamScanner(RESPONSES_EVENTS if operation.kind == _RESPONSES else CHUNKS)


def error_object(status: int, reason: str, message: str) -> dict[str, Any]:
    """Returns what stands under `error`."""
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"message": sentence(reason, message), "type": kind, "param": None, "code": reason}


def _read_chunk(name: bytes, document: Any) -> Signs:
    error = error_in(document)
    if not isinstance(document, dict):
        return Signs(content=True, error=error)
    usage = openai_usage(document.get("usage"))
    if error is None and name == b"error":
        error = AnswerError(500, "error")
    return Signs(content=_chunk_has_content(document), error=error, usage=usage)


def _chunk_has_content(document: Mapping[str, Any]) -> bool:
    """Returns False for role preambles, keep-alives, and chunks of usage or filter results alone.

    An object that is no chunk at all counts as content: nothing is known that could hold it back.
    """
    choices = document.get("choices")
    if not isinstance(choices, list):
        return bool(document) and "usage" not in document and document.get("type") not in _KEEP_ALIVES
    return any(_choice_has_content(choice) for choice in choices)


def _choice_has_content(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return True
    if choice.get("finish_reason") is not None or choice.get("text") or choice.get("message"):
        return True
    delta = choice.get("delta")
    if isinstance(delta, dict):
        for name in _DELTA_CONTENT:
            if delta.get(name):
                return True
    return False


def _read_response_event(name: bytes, document: Any) -> Signs:
    error = error_in(document)
    if not isinstance(document, dict):
        return Signs(content=True, error=error)
    kind = document.get("type") or name.decode("ascii", "replace")
    response = document.get("response")
    usage = None
    if kind in _ENDS and isinstance(response, dict):
        usage = openai_usage(response.get("usage"))
        error = error or error_in(response)
    if error is None and (kind == "response.failed" or name == b"error"):
        error = AnswerError(500, "error")
    return Signs(content=_response_has_content(kind, document), done=kind in _ENDS, error=error, usage=usage)


def _response_has_content(kind: Any, document: Mapping[str, Any]) -> bool:
    """Returns False for keep-alives, the state of the response, and the start of what is still empty."""
    if kind == "response.output_item.added":
        item = document.get("item")
        return not isinstance(item, dict) or item.get("type") not in _EMPTY_AT_START or bool(item.get("content"))
    if kind in _PARTS:
        part = document.get("part")
        return not isinstance(part, dict) or bool(part.get("text") or part.get("refusal"))
    return kind not in _PREAMBLE and kind not in _KEEP_ALIVES


CHUNKS: Final = EventShape(read=_read_chunk)
RESPONSES_EVENTS: Final = EventShape(read=_read_response_event, words=(b'"response"',))
