"""Owns the reading of usage objects. Numbers that are no counts are read as nothing, never as an error."""

from __future__ import annotations

from typing import Any, Final

from proxy.exchange import Usage

_OPENAI: Final = frozenset({"prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "total_tokens"})
_ANTHROPIC: Final = frozenset(
    {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
)
_TOO_MANY: Final = 1 << 53
_KEY: Final = b'"usage"'
_NOTHING: Final = (b'"usage":null', b'"usage": null')


def may_report(text: bytes) -> bool:
    """Returns False when these bytes of a stream surely hold no usage object: only `null`, as most chunks do."""
    if text.find(_KEY) < 0:
        return False
    return text.count(_KEY) != text.count(_NOTHING[0]) + text.count(_NOTHING[1])


def openai_usage(usage: Any) -> Usage | None:
    """Returns the tokens of a `usage` object of chat, completions, embeddings or responses, or None."""
    if not isinstance(usage, dict):
        return None
    given, output = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(given) is int and type(output) is int and 0 < given < _TOO_MANY and 0 < output < _TOO_MANY:
        details = usage.get("prompt_tokens_details")
        return Usage(given, output, _count(details.get("cached_tokens")) if isinstance(details, dict) else 0)
    return _other_openai_usage(usage)


def _other_openai_usage(usage: dict[str, Any]) -> Usage | None:
    """Reads the shapes of embeddings, responses and realtime sessions, and reports that leave something out."""
    if _OPENAI.isdisjoint(usage):
        return None
    output = _count(usage.get("completion_tokens")) or _count(usage.get("output_tokens"))
    total = max(_count(usage.get("total_tokens")) - output, 0)
    given = _count(usage.get("prompt_tokens")) or _count(usage.get("input_tokens")) or total
    names = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
    details = next(filter(None, map(usage.get, names)), None)
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return Usage(given, output, cached)


def anthropic_usage(usage: Any) -> Usage | None:
    """Returns the tokens of a messages `usage` object; None when it has none.

    Its `input_tokens` leaves out what was read from and written to the cache; `Usage.input` is all of it.
    """
    if not isinstance(usage, dict) or _ANTHROPIC.isdisjoint(usage):
        return None
    cached = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    return Usage(_count(usage.get("input_tokens")) + cached + written, _count(usage.get("output_tokens")), cached)


def later_usage(before: Usage | None, after: Usage) -> Usage:
    """Returns what a stream has used by now: reports are cumulative, maybe partial: the greatest counts."""
    if before is None:
        return after
    return Usage(
        max(before.input, after.input),
        max(before.output, after.output),
        max(before.cached_input, after.cached_input),
    )


def _count(value: Any) -> int:
    if type(value) is int or type(value) is float:
        return int(value) if 0 < value < _TOO_MANY else 0
    return 0
