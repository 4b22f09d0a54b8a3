"""Which operation a path is, and which dialect a name means: two small tables."""

from __future__ import annotations

from typing import Final

from proxy.dialects.anthropic import Anthropic
from proxy.dialects.base import Dialect, Operation
from proxy.dialects.opaque import Opaque
from proxy.dialects.openai import OpenAI

OPENAI: Final[Dialect] = OpenAI()
ANTHROPIC: Final[Dialect] = Anthropic()
OPAQUE: Final[Dialect] = Opaque()
_DIALECTS: Final = {dialect.name: dialect for dialect in (OPENAI, ANTHROPIC, OPAQUE)}

_MESSAGES: Final = Operation(name="chat", kind="messages", dialect=ANTHROPIC, streams=True)
_RERANK: Final = Operation(name="rerank", kind="rerank", dialect=OPENAI)

_BY_PAIR: Final = {
    ("chat", "completions"): Operation(name="chat", kind="chat", dialect=OPENAI, streams=True, usage_on_request=True),
    ("fim", "completions"): Operation(name="text_completion", kind="completions", dialect=OPENAI, streams=True),
    ("v1", "messages"): _MESSAGES,
    ("messages", "count_tokens"): Operation(name="count_tokens", kind="count_tokens", dialect=ANTHROPIC),
    ("responses", "input_tokens"): Operation(name="count_tokens", kind="count_tokens", dialect=OPENAI),
}
_BY_LAST: Final = {
    "completions": Operation(
        name="text_completion", kind="completions", dialect=OPENAI, streams=True, usage_on_request=True
    ),
    "embeddings": Operation(name="embeddings", kind="embeddings", dialect=OPENAI),
    "responses": Operation(name="chat", kind="responses", dialect=OPENAI, streams=True),
    "moderations": Operation(name="moderations", kind="moderations", dialect=OPENAI),
    "rerank": _RERANK,
}


def operation_of(path: str) -> Operation | None:
    """Returns the operation whose whole segments end the raw path (without query), or None."""
    rest, _, last = path.rpartition("/")
    before, _, previous = rest.rpartition("/")
    found = _BY_PAIR.get((previous, last)) or _BY_LAST.get(last)
    if found is None and last == "messages" and not before:
        # `/messages`, `/<provider>/messages`; deeper, other interfaces have collections of that name.
        return _MESSAGES
    return found


def dialect_named(name: str) -> Dialect:
    """Returns the dialect that the policy calls `name`. Raises KeyError for any other name."""
    return _DIALECTS[name]
