"""Answers, stream events and errors in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from proxy.simulation.provider.answers import Answer, Event, embedding, embedding_base64
from proxy.simulation.provider.asks import Ask, Endpoint

_TYPES = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "not_found"),
    408: ("timeout", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "service_unavailable"),
    504: ("server_error", "timeout"),
    529: ("server_error", "overloaded"),
}


def error(
    status: int, message: str, *, code: str | None = None, param: str | None = None, kind: str | None = None
) -> dict[str, Any]:
    """Returns the body of an error answer; type and code follow the status unless `kind` and `code` are given."""
    default = ("invalid_request_error", None) if status < 500 else ("server_error", None)
    type_, usual = _TYPES.get(status, default)
    return {"error": {"message": message, "type": kind or type_, "param": param, "code": code or usual}}


def body(ask: Ask, answer: Answer) -> dict[str, Any]:
    """Returns a chat or completion answer in one piece."""
    chat = ask.endpoint is Endpoint.CHAT
    choices = [_choice(chat, index, "".join(tokens), answer) for index, tokens in enumerate(answer.texts)]
    return {
        "id": answer.id,
        "object": "chat.completion" if chat else "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": choices,
        "usage": usage(answer),
    }


def _choice(chat: bool, index: int, text: str, answer: Answer) -> dict[str, Any]:
    said: dict[str, Any] = (
        {"message": {"role": "assistant", "content": text, "refusal": None}} if chat else {"text": text}
    )
    return {"index": index, **said, "logprobs": None, "finish_reason": _finish(answer)}


def _finish(answer: Answer) -> str:
    return "stop" if answer.complete else "length"


def usage(answer: Answer) -> dict[str, Any]:
    """Returns the token counts of an answer."""
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def events(ask: Ask, answer: Answer) -> Iterator[Event]:
    """Yields a stream: roles (chat), tokens, finishes, usage if asked for, `[DONE]`; choices interleave."""
    chat = ask.endpoint is Endpoint.CHAT
    if chat:
        for index in range(len(answer.texts)):
            yield _event(_chunk(ask, answer, _delta(index, {"role": "assistant", "content": ""})))
    for step in range(max(map(len, answer.texts))):
        for index, tokens in enumerate(answer.texts):
            if step < len(tokens):
                piece = _delta(index, {"content": tokens[step]}) if chat else _piece(index, tokens[step])
                yield _event(_chunk(ask, answer, piece), content=True)
    for index in range(len(answer.texts)):
        end = _delta(index, {}) if chat else _piece(index, "")
        yield _event(_chunk(ask, answer, {**end, "finish_reason": _finish(answer)}))
    if ask.include_usage:
        yield _event({**_chunk(ask, answer, None), "usage": usage(answer)})
    yield Event(b"data: [DONE]\n\n")


def _delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _piece(index: int, text: str) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": None}


def _chunk(ask: Ask, answer: Answer, choice: dict[str, Any] | None) -> dict[str, Any]:
    chunk = {
        "id": answer.id,
        "object": "chat.completion.chunk" if ask.endpoint is Endpoint.CHAT else "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [] if choice is None else [choice],
    }
    return {**chunk, "usage": None} if ask.include_usage else chunk


def _event(value: dict[str, Any], *, content: bool = False) -> Event:
    return Event(b"data: %b\n\n" % orjson.dumps(value), content)


def error_event(value: dict[str, Any]) -> Event:
    """Returns an error body as it stands in a stream."""
    return _event(value)


def heartbeat() -> Event:
    """Returns what keeps a silent stream alive: a comment, which is no event."""
    return Event(b": keep-alive\n\n")


def embeddings(ask: Ask, *, default_dimensions: int) -> dict[str, Any]:
    """Returns one vector for each input, in order."""
    size = ask.dimensions or default_dimensions
    vectors = (embedding(text, model=ask.model, dimensions=size) for text in ask.texts)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": embedding_base64(vector) if ask.base64 else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    counts = {"prompt_tokens": ask.input_tokens, "total_tokens": ask.input_tokens}
    return {"object": "list", "data": data, "model": ask.model, "usage": counts}


def models(names: tuple[str, ...], *, owner: str) -> dict[str, Any]:
    """Returns the list of models."""
    return {"object": "list", "data": [model(name, owner=owner) for name in names]}


def model(name: str, *, owner: str) -> dict[str, Any]:
    """Returns one model of the list."""
    return {"id": name, "object": "model", "created": 1_700_000_000, "owned_by": owner}
