"""From an Ask to what is sent: the answer's words, then its body or its events in the caller's dialect."""

from __future__ import annotations

import math
import random
from typing import Any

from proxy.simulation.provider import anthropic, moderations, openai
from proxy.simulation.provider.answers import Answer, Event, echo, words
from proxy.simulation.provider.asks import Ask, Endpoint
from proxy.simulation.provider.dialect import Dialect
from proxy.simulation.provider.settings import AnswerStyle, SimulatorSettings

_NUMBERED = {Endpoint.EMBEDDINGS: "data", Endpoint.COMPLETIONS: "choices", Endpoint.CHAT: "choices"}
"""Where the answers stand that say which one each is."""
_EPOCH = 1_700_000_000
_WORDLESS = (Endpoint.EMBEDDINGS, Endpoint.MODERATIONS)
_PREFIX = {Endpoint.CHAT: "chatcmpl-", Endpoint.COMPLETIONS: "cmpl-", Endpoint.MESSAGES: "msg_"}


def compose(ask: Ask, settings: SimulatorSettings, *, rng: random.Random, number: int) -> Answer:
    """Returns what the model says to request `number`; equal `rng` and requests give equal answers."""
    full = [_tokens(text, settings, rng) for text in ask.texts for _ in range(ask.choices)]
    limit = ask.max_tokens
    texts = tuple(tokens if limit is None else tokens[:limit] for tokens in full)
    return Answer(
        id=f"{_PREFIX.get(ask.endpoint, '')}{rng.getrandbits(96):024x}",
        model=ask.model,
        created=_EPOCH + number,
        texts=texts,
        complete=all(limit is None or len(tokens) <= limit for tokens in full),
        input_tokens=ask.input_tokens,
    )


def output_tokens(ask: Ask, settings: SimulatorSettings) -> int:
    """Returns how many tokens the answer to a chat, completion or message has; 0 for vectors and scores."""
    if ask.endpoint in _WORDLESS:
        return 0
    most = math.inf if ask.max_tokens is None else ask.max_tokens
    return ask.choices * sum(int(min(_length(text, settings), most)) for text in ask.texts)


def most_output_tokens(ask: Ask, settings: SimulatorSettings) -> int:
    """Returns what the caller allows the answer to have; without a maximum, what it will have."""
    if ask.max_tokens is None or ask.endpoint in _WORDLESS:
        return output_tokens(ask, settings)
    return ask.choices * len(ask.texts) * ask.max_tokens


def _length(text: str, settings: SimulatorSettings) -> int:
    return len(echo(text)) if settings.answer is AnswerStyle.ECHO else settings.output_tokens


def _tokens(text: str, settings: SimulatorSettings, rng: random.Random) -> tuple[str, ...]:
    return echo(text) if settings.answer is AnswerStyle.ECHO else words(settings.output_tokens, rng)


def body(ask: Ask, settings: SimulatorSettings, *, rng: random.Random, number: int) -> dict[str, Any]:
    """Returns the JSON body of a successful answer."""
    whole = _in_order(ask, settings, rng=rng, number=number)
    results = whole.get(_NUMBERED.get(ask.endpoint, ""))
    if settings.shuffle and results is not None:
        rng.shuffle(results)
    return whole


def _in_order(ask: Ask, settings: SimulatorSettings, *, rng: random.Random, number: int) -> dict[str, Any]:
    match ask.endpoint:
        case Endpoint.EMBEDDINGS:
            return openai.embeddings(ask, default_dimensions=settings.embedding_dimensions)
        case Endpoint.MODERATIONS:
            return moderations.body(ask, id=f"modr-{rng.getrandbits(96):024x}")
        case Endpoint.COUNT_TOKENS:
            return {"input_tokens": ask.input_tokens}
        case Endpoint.MESSAGES:
            return anthropic.body(compose(ask, settings, rng=rng, number=number))
        case _:
            return openai.body(ask, compose(ask, settings, rng=rng, number=number))


def events(ask: Ask, settings: SimulatorSettings, *, rng: random.Random, number: int) -> list[Event]:
    """Returns the whole stream of a successful answer."""
    answer = compose(ask, settings, rng=rng, number=number)
    if ask.endpoint is Endpoint.MESSAGES:
        return list(anthropic.events(answer))
    return list(openai.events(ask, answer))


def heartbeat(dialect: Dialect) -> Event:
    """Returns what keeps a silent stream alive."""
    return anthropic.heartbeat() if dialect is Dialect.ANTHROPIC else openai.heartbeat()


def error_event(dialect: Dialect, body: dict[str, Any]) -> Event:
    """Returns the event that ends a stream with an error."""
    return anthropic.error_event(body) if dialect is Dialect.ANTHROPIC else openai.error_event(body)
