"""What bodies ask for: text by its size, media by its parts, output by what the caller allows."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.demand import MOST_CHOICES, MOST_OUTPUT, MOST_PROMPTS, NOTHING, Demand, demand_of, measure
from proxy.dialects.lookup import operation_of
from proxy.exchange import Exchange
from tests.fakes import make_exchange

PICTURE = "data:image/png;base64," + "iVBORw0KGgo" * 1000
SOUND = "UklGRiQAAABXQVZF" * 500


def read(document: dict[str, Any], *, generates: bool = True) -> Demand:
    return measure(document, len(orjson.dumps(document)), generates=generates)


def chat(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}], **more}


TEXT = {"type": "text", "text": "What is this?"}


def test_plain_text_is_the_whole_body() -> None:
    document = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}
    size = len(orjson.dumps(document))
    assert read(document) == Demand(text_bytes=size, max_output=10)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}},
        {"type": "input_image", "image_url": PICTURE},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PICTURE}},
        {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": PICTURE}},
        {"type": "input_file", "filename": "a.pdf", "file_data": PICTURE},
        {"type": "video_url", "video_url": {"url": PICTURE}},
        {"type": "image_base64", "image_base64": PICTURE},
        {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": PICTURE}}]},
        {"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": {"data": SOUND}}]}},
        {"image": PICTURE},
    ],
    ids=lambda part: str(part.get("type", "image alone")),
)
def test_embedded_media_are_parts_and_no_text(part: dict[str, Any]) -> None:
    without = read(chat(TEXT))
    demand = read(chat(TEXT, part))
    assert demand.media == 1
    assert without.text_bytes <= demand.text_bytes <= without.text_bytes + 200


def test_a_picture_by_address_is_a_picture_too() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    assert read(chat(part, part, TEXT)).media == 2


def test_a_document_of_text_is_text() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "word " * 1000}
    document = chat({"type": "document", "source": source})
    assert read(document) == Demand(text_bytes=len(orjson.dumps(document)))


def test_media_are_found_in_responses_and_in_what_tools_gave_back() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]},
        {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": PICTURE}},
        {"type": "function_call_output", "output": "42"},
        {"type": "image_generation_call", "id": "ig_1", "result": PICTURE},
    ]
    demand = read({"model": "m", "input": items})
    assert demand.media == 3
    assert demand.text_bytes < 1000


def test_base64_that_is_written_as_text_is_text() -> None:
    document = chat({"type": "text", "text": PICTURE})
    assert read(document).media == 0
    assert read(document).text_bytes > len(PICTURE)


@pytest.mark.parametrize(
    ("prompt", "tokens", "prompts"),
    [
        ([1, 2, 3, 40000], 4, 1),
        ([[1, 2], [3], [4, 5, 6]], 6, 3),
        (["one", "two"], 0, 2),
        ("one", 0, 1),
        ([], 0, 1),
        ([[]], 0, 1),
        (None, 0, 1),
    ],
)
def test_token_arrays_count_exactly(prompt: Any, tokens: int, prompts: int) -> None:
    demand = read({"model": "m", "prompt": prompt, "max_tokens": 5})
    assert (demand.tokens, demand.prompts) == (tokens, prompts)
    assert bool(demand.text_bytes) is not bool(tokens)
    assert demand.output_limit == 5 * prompts


def test_an_embedding_generates_nothing() -> None:
    demand = read({"model": "e", "input": ["one", "two"]}, generates=False)
    assert (demand.choices, demand.answers, demand.output_limit) == (0, 0, 0)
    assert read({"model": "e", "input": [[1, 2], [3, 4]]}, generates=False).tokens == 4


@pytest.mark.parametrize(
    ("fields", "limit", "choices"),
    [
        ({"max_tokens": 7}, 7, 1),
        ({"max_completion_tokens": 8}, 8, 1),
        ({"max_output_tokens": 9}, 9, 1),
        ({"max_tokens": 7, "max_completion_tokens": 70}, 70, 1),
        ({"max_tokens": 7, "n": 3}, 7, 3),
        ({"max_tokens": 7, "n": 3, "best_of": 5}, 7, 5),
        ({}, None, 1),
        ({"max_tokens": None}, None, 1),
        ({"max_tokens": 0, "n": 0}, None, 1),
        ({"max_tokens": -1, "n": -1}, None, 1),
        ({"max_tokens": True, "n": True}, None, 1),
        ({"max_tokens": 7.5, "n": "2"}, None, 1),
        ({"max_tokens": "7", "best_of": [4]}, None, 1),
        ({"max_tokens": 10**18, "n": 10**18}, MOST_OUTPUT, MOST_CHOICES),
    ],
)
def test_what_the_caller_allows(fields: dict[str, Any], limit: int | None, choices: int) -> None:
    demand = read(chat(TEXT, **fields))
    assert (demand.max_output, demand.choices) == (limit, choices)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 512}, 512 * 6),
        ({"max_completion_tokens": 5}, 5 * 6),
        ({"n": 1}, 4096 * 2),
        ({"n": 5, "max_tokens": 2}, 5 * 2 * 2),
        ({"temperature": 0}, 4096 * 6),
        ({}, 4096 * 6),
    ],
)
def test_what_a_tier_sets_replaces_what_the_caller_allowed(fields: dict[str, Any], limit: int) -> None:
    demand = Demand(text_bytes=100, max_output=4096, choices=3, prompts=2)
    assert demand.changed_by(fields).output_limit == limit


def test_a_tier_that_sets_a_limit_gives_an_embedding_no_answer() -> None:
    assert NOTHING.changed_by({"max_tokens": 512, "n": 2}) is NOTHING


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "content", "output", "source", "image", "image_url", "data", "text"]),
            inner | st.sampled_from(["image", "document", "text", "file", "tool_result"]),
            max_size=4,
        )
    ),
    max_leaves=20,
)
FIELDS = ["messages", "system", "input", "prompt", "max_tokens", "max_output_tokens", "n", "best_of"]


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES), st.integers(0, 10**6))
def test_no_body_is_too_strange_to_be_read(document: dict[str, Any], size: int) -> None:
    demand = measure(document, size)
    assert 0 <= demand.text_bytes <= size
    assert demand.media >= 0
    assert demand.tokens >= 0
    assert demand.max_output is None or 0 < demand.max_output <= MOST_OUTPUT
    assert 1 <= demand.answers <= MOST_CHOICES * MOST_PROMPTS


def test_parts_that_are_nested_without_end_are_left_alone() -> None:
    nested: dict[str, Any] = {"type": "image", "source": {"data": "abc"}}
    for _ in range(5000):
        nested = {"content": [nested]}
    assert measure({"messages": [nested]}, 100) == Demand(text_bytes=100)


def an_exchange(path: str, document: dict[str, Any] | None) -> Exchange:
    exchange = make_exchange()
    exchange.operation = operation_of(path)
    exchange.document = document
    exchange.request.body = orjson.dumps(document)
    return exchange


def test_a_demand_is_measured_once_and_outlives_the_body() -> None:
    exchange = an_exchange("/v1/chat/completions", chat(TEXT, max_tokens=9))
    demand = demand_of(exchange)
    assert demand is not None
    assert demand.max_output == 9
    exchange.document = exchange.request.body = None
    assert demand_of(exchange) is demand


@pytest.mark.parametrize(
    ("path", "choices"),
    [
        ("/v1/chat/completions", 1),
        ("/v1/completions", 1),
        ("/v1/responses", 1),
        ("/v1/messages", 1),
        ("/v1/embeddings", 0),
        ("/v1/moderations", 0),
        ("/v1/rerank", 0),
    ],
)
def test_what_is_generated_is_known_by_the_operation(path: str, choices: int) -> None:
    demand = demand_of(an_exchange(path, {"model": "m", "input": "x"}))
    assert demand is not None
    assert demand.choices == choices
    assert demand.text_bytes


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_to_ask_what_a_call_would_cost_costs_nothing(path: str) -> None:
    assert demand_of(an_exchange(path, chat(TEXT))) == NOTHING


def test_a_body_that_is_not_understood_has_no_demand() -> None:
    assert demand_of(an_exchange("/v1/chat/completions", None)) is None
    assert demand_of(an_exchange("/v1/elsewhere", {"a": 1})) is None
