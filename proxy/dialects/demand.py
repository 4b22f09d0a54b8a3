"""Demand: what a request's body asks for, in what tokens are made of, before any provider has counted them.

Owns the reading. Text is weighed by the size of the body; only lists are looked into, never strings, so that a body of
plain text costs a glance at each message. How many tokens that makes is learned elsewhere (`decisions/estimates`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from proxy.exchange import Exchange

MOST_OUTPUT: Final = 10_000_000
"""Tokens; a larger `max_tokens` is one that nobody meant, and must not become an infinity."""
MOST_CHOICES: Final = 128
MOST_PROMPTS: Final = 2048
"""What OpenAI's interface takes at most for `n`, and for the prompts of one call."""
DEEPEST: Final = 8
"""Levels of lists that are looked into: messages, their parts, a tool's result, a document in it, its parts."""

_PROMPTS: Final = ("messages", "system", "input", "prompt")
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_NESTED: Final = ("content", "output", "source")
_MEDIA: Final = frozenset(
    {"image_url", "input_image", "image", "image_base64", "computer_screenshot", "image_generation_call"}
    | {"input_audio", "audio", "audio_url", "video", "video_url", "file", "input_file", "document"}
)
_TEXT_SOURCES: Final = frozenset({"text", "content"})
_GENERATING: Final = frozenset({"chat", "completions", "messages", "responses"})
_COUNTING: Final = "count_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one call asks for.

    `text_bytes` of its body become input tokens; `tokens` more were counted by the caller (token arrays), and there
    are `media` images, recordings and files. `max_output`: most tokens of one answer, None where the caller named
    none; `choices`: how many answers to each of its `prompts`, 0 for a call that generates nothing.
    """

    text_bytes: int
    tokens: int = 0
    media: int = 0
    max_output: int | None = None
    choices: int = 1
    prompts: int = 1

    @property
    def answers(self) -> int:
        """How many answers are generated in all."""
        return self.choices * self.prompts

    @property
    def output_limit(self) -> int | None:
        """Most output tokens of the whole call; None where nothing bounds them."""
        if not self.choices:
            return 0
        return self.max_output * self.answers if self.max_output is not None else None

    def changed_by(self, fields: Mapping[str, Any]) -> Demand:
        """Returns the demand of the same body with these top-level fields set: a tier's `set`."""
        if not self.choices or not any(name in fields for name in (*_LIMITS, "n", "best_of")):
            return self
        limit = _max_output(fields) if any(name in fields for name in _LIMITS) else self.max_output
        choices = _choices(fields) if "n" in fields or "best_of" in fields else self.choices
        return replace(self, max_output=limit, choices=choices)


NOTHING: Final = Demand(text_bytes=0, choices=0)
"""The demand of a call that only asks what another one would cost."""


def measure(document: Mapping[str, Any], size: int, *, generates: bool = True) -> Demand:
    """Reads the demand of a body of `size` bytes, parsed. Never fails: what is no sane value is read as absent.

    `generates`: whether the call is answered with tokens; embeddings and their like are not.
    """
    media = embedded = tokens = 0
    for name in _PROMPTS:
        prompts = document.get(name)
        if type(prompts) is list and prompts:
            counted = _token_ids(prompts)
            tokens += counted
            if not counted:
                found, found_bytes = _media_in(prompts, DEEPEST)
                media += found
                embedded += found_bytes
    return Demand(
        text_bytes=0 if tokens else max(size - embedded, 0),
        tokens=tokens,
        media=media,
        max_output=_max_output(document),
        choices=_choices(document) if generates else 0,
        prompts=_prompt_count(document.get("prompt")),
    )


def demand_of(exchange: Exchange) -> Demand | None:
    """Returns what the caller asks for, measured once and kept; None where the body is not understood."""
    demand: Demand | None = exchange.demand
    if demand is None and exchange.document is not None and exchange.operation is not None:
        kind = exchange.operation.kind
        if kind == _COUNTING:
            demand = NOTHING
        else:
            size = len(exchange.request.body or b"")
            demand = measure(exchange.document, size, generates=kind in _GENERATING)
        exchange.demand = demand
    return demand


def _token_ids(prompts: Sequence[Any]) -> int:
    """Counts token arrays: one prompt of numbers, or several; 0 where the prompts are something else."""
    first = prompts[0]
    if type(first) is int:
        return len(prompts)
    if type(first) is list and first and type(first[0]) is int:
        return sum(len(one) for one in prompts if type(one) is list)
    return 0


def _prompt_count(prompt: Any) -> int:
    """Counts the prompts of a completions call, each of which is answered by itself."""
    if type(prompt) is not list or not prompt or type(prompt[0]) is int:
        return 1
    return min(len(prompt), MOST_PROMPTS)


def _media_in(items: Sequence[Any], levels: int) -> tuple[int, int]:
    """Counts images, recordings and files among messages or parts, and the bytes that are embedded for them."""
    media = embedded = 0
    for item in items:
        if type(item) is not dict:
            continue
        if _is_media(item):
            media += 1
            embedded += _string_bytes(item, levels)
            continue
        for name in _NESTED:
            inner = item.get(name)
            if type(inner) is not str and inner and levels:
                found, found_bytes = _media_in(_as_list(inner), levels - 1)
                media += found
                embedded += found_bytes
    return media, embedded


def _is_media(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if type(kind) is not str:
        # Some embeddings take `{"image": ...}` beside `{"text": ...}`.
        return type(part.get("image")) is str
    if kind not in _MEDIA:
        return False
    source = part.get("source")
    return not (kind == "document" and type(source) is dict and source.get("type") in _TEXT_SOURCES)


def _string_bytes(value: Any, levels: int) -> int:
    """Adds up the strings below a part: of what is embedded all else is next to nothing."""
    if type(value) is str:
        return len(value)
    if not levels:
        return 0
    if type(value) is dict:
        return sum(_string_bytes(inner, levels - 1) for inner in value.values())
    return sum(_string_bytes(inner, levels - 1) for inner in value) if type(value) is list else 0


def _as_list(value: Any) -> Sequence[Any]:
    return value if type(value) is list else (value,)


def _max_output(document: Mapping[str, Any]) -> int | None:
    """Returns the greatest of the limits that the caller named; only positive whole numbers are some."""
    most = max((_count(document.get(name), MOST_OUTPUT) for name in _LIMITS), default=0)
    return most or None


def _choices(document: Mapping[str, Any]) -> int:
    """Returns how many answers are generated to one prompt: `best_of` are, though only `n` are given."""
    return max(_count(document.get("n"), MOST_CHOICES), _count(document.get("best_of"), MOST_CHOICES), 1)


def _count(value: Any, most: int) -> int:
    return min(value, most) if type(value) is int and value > 0 else 0
