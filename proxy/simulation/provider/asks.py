"""A request body, read as far as an answer needs it."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson


class Endpoint(StrEnum):
    """The calls that a model answers, by path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    MODERATIONS = "/v1/moderations"
    MESSAGES = "/v1/messages"
    COUNT_TOKENS = "/v1/messages/count_tokens"


class BadAsk(ValueError):
    """A body that the provider answers with 400; `param` is the field at fault."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a caller wants; `texts` are the prompts, the inputs, or the last message alone.

    `field` is where a body has them if it may have several, "" elsewhere.
    """

    endpoint: Endpoint
    model: str
    texts: tuple[str, ...]
    input_tokens: int
    field: str = ""
    stream: bool = False
    include_usage: bool = False
    choices: int = 1
    max_tokens: int | None = None
    base64: bool = False
    dimensions: int | None = None


Counted = tuple[tuple[str, ...], int]
MODERATION_MODEL = "omni-moderation-latest"
"""The model of a moderation that names none."""
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


def decoded(body: bytes, encoding: str | None) -> bytes:
    """Undoes a content encoding; raises BadAsk for a broken or an unknown one."""
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return body
    if name not in _WINDOW_BITS:
        raise BadAsk(f"Unsupported content encoding {name!r}")
    try:
        return zlib.decompress(body, _WINDOW_BITS[name])
    except zlib.error:
        raise BadAsk(f"The body is not valid {name}") from None


def read_ask(endpoint: Endpoint, body: bytes) -> Ask:
    """Reads a JSON body; raises BadAsk as a provider would answer 400."""
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadAsk("We could not parse the JSON body of your request.") from None
    if not isinstance(data, dict):
        raise BadAsk("The JSON body of a request must be an object.")
    model = data.get("model", MODERATION_MODEL if endpoint is Endpoint.MODERATIONS else None)
    if not isinstance(model, str) or not model:
        raise BadAsk("you must provide a model parameter", "model")
    if endpoint is Endpoint.EMBEDDINGS:
        return _embeddings(data, model)
    if endpoint is Endpoint.MODERATIONS:
        return _moderation(data, model)
    texts, tokens = _prompts(data) if endpoint is Endpoint.COMPLETIONS else _messages(data)
    options = data.get("stream_options")
    return Ask(
        endpoint=endpoint,
        model=model,
        texts=texts if endpoint is Endpoint.COMPLETIONS else texts[-1:],
        input_tokens=tokens,
        field="prompt" if endpoint is Endpoint.COMPLETIONS else "",
        stream=data.get("stream") is True and endpoint is not Endpoint.COUNT_TOKENS,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        choices=_choices(data, endpoint),
        max_tokens=_max_tokens(data, endpoint),
    )


def _embeddings(data: dict[str, Any], model: str) -> Ask:
    encoding = data.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise BadAsk("'encoding_format' must be 'float' or 'base64'", "encoding_format")
    texts, tokens = _inputs(data.get("input"), "input")
    return Ask(
        endpoint=Endpoint.EMBEDDINGS,
        model=model,
        texts=texts,
        input_tokens=tokens,
        field="input",
        base64=encoding == "base64",
        dimensions=_positive(data, "dimensions", 65536),
    )


def _moderation(data: dict[str, Any], model: str) -> Ask:
    """Texts are an input each; parts, as of a message, are one input together."""
    value = data.get("input")
    parts = isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)
    texts, tokens = _counted([_text(value)]) if parts else _texts(value, "input")
    return Ask(endpoint=Endpoint.MODERATIONS, model=model, texts=texts, input_tokens=tokens, field="input")


def _prompts(data: dict[str, Any]) -> Counted:
    prompt = data.get("prompt")
    return (("",), 1) if prompt in (None, "") else _inputs(prompt, "prompt")


def _inputs(value: Any, param: str) -> Counted:
    if isinstance(value, list) and value:
        if _is_tokens(value):
            return (_token_text(value),), len(value)
        if all(isinstance(item, list) and item and _is_tokens(item) for item in value):
            return tuple(map(_token_text, value)), sum(map(len, value))
    return _texts(value, param, or_else=", or tokens")


def _texts(value: Any, param: str, *, or_else: str = "") -> Counted:
    if isinstance(value, str) and value:
        return _counted([value])
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _counted(value)
    raise BadAsk(f"'{param}' must be a text or a list of texts{or_else}", param)


def _counted(texts: list[str]) -> Counted:
    """A token is estimated as four characters."""
    return tuple(texts), sum(max(1, math.ceil(len(text) / 4)) for text in texts)


def _is_tokens(value: list[Any]) -> bool:
    return all(type(item) is int and item >= 0 for item in value)


def _token_text(tokens: list[int]) -> str:
    return "".join(f"<{token}>" for token in tokens)


def _messages(data: dict[str, Any]) -> Counted:
    messages = data.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadAsk("'messages' must be a list of at least one message", "messages")
    if not all(isinstance(message, dict) for message in messages):
        raise BadAsk("each of 'messages' must be an object", "messages")
    system = [_text(data["system"])] if "system" in data else []
    return _counted([*system, *(_text(message.get("content")) for message in messages)])


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def _choices(data: dict[str, Any], endpoint: Endpoint) -> int:
    one = endpoint in (Endpoint.MESSAGES, Endpoint.COUNT_TOKENS)
    return 1 if one else _positive(data, "n", 128) or 1


def _max_tokens(data: dict[str, Any], endpoint: Endpoint) -> int | None:
    if endpoint is Endpoint.CHAT and (limit := _positive(data, "max_completion_tokens", 10_000_000)):
        return limit
    if endpoint is Endpoint.COUNT_TOKENS:
        return None
    limit = _positive(data, "max_tokens", 10_000_000)
    if endpoint is Endpoint.MESSAGES and limit is None:
        raise BadAsk("max_tokens: Field required", "max_tokens")
    return limit


def _positive(data: dict[str, Any], name: str, most: int) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise BadAsk(f"'{name}' must be a whole number between 1 and {most}", name)
    return value
