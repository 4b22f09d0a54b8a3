from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from proxy.simulation.provider.asks import MODERATION_MODEL, BadAsk, Endpoint, decoded, read_ask


def read(endpoint: Endpoint, **fields: Any) -> Any:
    return read_ask(endpoint, json.dumps({"model": "m", **fields}).encode())


def test_a_chat_is_read_with_its_options() -> None:
    messages = [
        {"role": "system", "content": "12345678"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]
    ask = read(
        Endpoint.CHAT,
        messages=messages,
        stream=True,
        stream_options={"include_usage": True},
        n=2,
        max_completion_tokens=7,
    )
    assert ask.texts == ("hi",)
    assert (ask.input_tokens, ask.stream, ask.include_usage, ask.choices, ask.max_tokens) == (
        3,
        True,
        True,
        2,
        7,
    )


@pytest.mark.parametrize(
    ("value", "texts", "tokens"),
    [
        ("hello", ("hello",), 2),
        (["a", "b"], ("a", "b"), 2),
        ([5, 6, 7], ("<5><6><7>",), 3),
        ([[5], [6, 7]], ("<5>", "<6><7>"), 3),
    ],
)
def test_inputs_are_texts_or_tokens(value: Any, texts: tuple[str, ...], tokens: int) -> None:
    for endpoint, field in ((Endpoint.EMBEDDINGS, "input"), (Endpoint.COMPLETIONS, "prompt")):
        ask = read(endpoint, **{field: value})
        assert (ask.texts, ask.input_tokens) == (texts, tokens)


@pytest.mark.parametrize(
    ("value", "texts", "tokens"),
    [
        ("hello", ("hello",), 2),
        (["a", "b"], ("a", "b"), 2),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}], ("a",), 1),
    ],
)
def test_parts_of_a_moderation_are_one_input(value: Any, texts: tuple[str, ...], tokens: int) -> None:
    ask = read(Endpoint.MODERATIONS, input=value)
    assert (ask.texts, ask.input_tokens) == (texts, tokens)


def test_a_moderation_needs_no_model() -> None:
    assert read_ask(Endpoint.MODERATIONS, b'{"input": "x"}').model == MODERATION_MODEL


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (Endpoint.CHAT, {"model": ""}, "model"),
        (Endpoint.CHAT, {"messages": []}, "messages"),
        (Endpoint.CHAT, {"messages": ["hi"]}, "messages"),
        (Endpoint.CHAT, {"messages": [{"content": "x"}], "n": 0}, "n"),
        (Endpoint.CHAT, {"messages": [{"content": "x"}], "max_tokens": "9"}, "max_tokens"),
        (Endpoint.MESSAGES, {"messages": [{"content": "x"}]}, "max_tokens"),
        (Endpoint.EMBEDDINGS, {"input": []}, "input"),
        (Endpoint.EMBEDDINGS, {"input": ["a", 1]}, "input"),
        (Endpoint.MODERATIONS, {"input": []}, "input"),
        (Endpoint.MODERATIONS, {"input": ""}, "input"),
        (Endpoint.MODERATIONS, {"input": [1, 2]}, "input"),
        (Endpoint.MODERATIONS, {"input": [{"type": "text", "text": "a"}, "b"]}, "input"),
        (Endpoint.EMBEDDINGS, {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        (Endpoint.EMBEDDINGS, {"input": "a", "dimensions": True}, "dimensions"),
    ],
)
def test_a_bad_field_is_named(endpoint: Endpoint, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadAsk) as caught:
        read(endpoint, **fields)
    assert caught.value.param == param


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadAsk):
        read_ask(Endpoint.CHAT, body)


def test_content_encodings_are_undone() -> None:
    assert decoded(b"x", None) == b"x"
    assert decoded(gzip.compress(b"x"), "gzip") == b"x"
    assert decoded(zlib.compress(b"x"), "deflate") == b"x"
    for body, encoding in ((b"x", "gzip"), (b"x", "br")):
        with pytest.raises(BadAsk):
            decoded(body, encoding)
