from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fields import Fields, fields_of
from proxy.websocket.handshake import agrees, asks, model_of, offer_line, with_model

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
"""The key and its answer are the example of RFC 6455 §1.3."""
ACCEPT = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def offer(*more: tuple[bytes, bytes]) -> Fields:
    return fields_of([(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Key", KEY), *more])


def test_a_get_with_a_key_asks_for_a_websocket() -> None:
    assert asks("GET", (1, 1), offer())
    assert asks("GET", (1, 1), fields_of([(b"upgrade", b"WebSocket"), (b"sec-websocket-key", KEY)]))
    assert asks("GET", (1, 1), offer((b"content-length", b"0")))


@pytest.mark.parametrize(
    ("method", "version", "fields"),
    [
        pytest.param("POST", (1, 1), offer(), id="post"),
        pytest.param("GET", (1, 0), offer(), id="version 1.0"),
        pytest.param("GET", (1, 1), fields_of([(b"Upgrade", b"websocket")]), id="no key"),
        pytest.param("GET", (1, 1), offer((b"sec-websocket-key", KEY)), id="two keys"),
        pytest.param("GET", (1, 1), offer((b"upgrade", b"h2c")), id="two offers"),
        pytest.param("GET", (1, 1), fields_of([(b"Upgrade", b"h2c"), (b"Sec-WebSocket-Key", KEY)]), id="h2c"),
        pytest.param("GET", (1, 1), offer((b"content-length", b"4")), id="a body by length"),
        pytest.param("GET", (1, 1), offer((b"transfer-encoding", b"chunked")), id="a chunked body"),
    ],
)
def test_anything_doubtful_is_an_ordinary_request(method: str, version: tuple[int, int], fields: Fields) -> None:
    assert not asks(method, version, fields)


def test_only_the_answer_to_this_very_key_agrees() -> None:
    good = [(b"Upgrade", b"websocket"), (b"Sec-WebSocket-Accept", ACCEPT)]
    assert agrees(offer(), fields_of(good))
    assert not agrees(offer(), fields_of([(b"Upgrade", b"h2c"), good[1]]))
    assert not agrees(offer(), fields_of([good[0]]))
    assert not agrees(offer(), fields_of([good[0], (b"Sec-WebSocket-Accept", ACCEPT.lower())]))


def test_an_offer_loses_its_secrets_and_nothing_else() -> None:
    asked = offer(
        (b"Sec-WebSocket-Protocol", b"realtime, openai-insecure-api-key.sk-123"),
        (b"sec-websocket-protocol", b"OpenAI-Organization.org-9 ,openai-beta.realtime-v1,openai-project.p"),
    )
    assert offer_line(asked, secrets=False) == b"sec-websocket-protocol: realtime, openai-beta.realtime-v1\r\n"
    assert b"sk-123" in offer_line(asked, secrets=True)


def test_an_empty_offer_is_none() -> None:
    assert offer_line(offer(), secrets=True) == b""
    secret = offer((b"sec-websocket-protocol", b" openai-insecure-api-key.sk-1 , "))
    assert offer_line(secret, secrets=False) == b""


@pytest.mark.parametrize(
    ("query", "model"),
    [
        ("", None),
        ("?", None),
        ("?model=", None),
        ("?a=1&model=voice-1&models=other", "voice-1"),
        ("?m%6Fdel=voice-2", "voice-2"),
        ("?model=org%2Fvoice+one", "org/voice one"),
        ("?xmodel=a", None),
    ],
)
def test_the_model_stands_in_the_query(query: str, model: str | None) -> None:
    assert model_of(query) == model


@pytest.mark.parametrize("query", ["?model=a&model=b", "?model=&v=1&model=b", "?model=a&mod%65l=a"])
def test_several_models_are_none_that_can_be_relied_on(query: str) -> None:
    with pytest.raises(ValueError, match="several"):
        model_of(query)


def test_another_model_takes_the_place_of_the_one_that_was_named() -> None:
    assert with_model("?a=%2f&model=x&b", "org/y z") == "?a=%2f&model=org%2Fy%20z&b"
    assert with_model("?a=1", "y") == "?a=1"
    assert with_model("?%6dodel=x&a", "y") == "?model=y&a"


@given(st.text(min_size=1, max_size=30))
def test_a_model_that_was_put_in_is_read_again(model: str) -> None:
    model = model.encode("utf-8", "replace").decode()
    assert model_of(with_model("?k=v&model=old", model)) == model
