"""Batchable calls: what their inputs are, and whose result is whose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.batchable import (
    Batchable,
    Inputs,
    Layout,
    batchable_of,
    deal,
    inputs_of,
    joined,
    most_inputs,
    rest_of,
)
from proxy.dialects.lookup import operation_of


def known(path: str) -> Batchable:
    call = batchable_of(operation_of(path), path, inputs=None, results=None)
    assert call is not None
    return call


EMBED = known("/v1/embeddings")
COMPLETE = known("/v1/completions")
MODERATE = known("/v1/moderations")
DECLARED = Batchable(inputs="texts", results="vectors", layout=Layout.EITHER)


def read(document: dict[str, Any], call: Batchable = EMBED) -> Inputs | None:
    return inputs_of(document, call)


def parts(call: Batchable, *values: Any, **rest: Any) -> list[Inputs]:
    found = [inputs_of({call.inputs: value, **rest}, call) for value in values]
    assert all(part is not None for part in found)
    return [part for part in found if part is not None]


def bodies(call: Batchable, answer: Any, asked: list[Inputs]) -> list[dict[str, Any]] | None:
    dealt = deal(json.dumps(answer).encode(), call, asked)
    return None if dealt is None else [json.loads(one.body) for one in dealt]


@pytest.mark.parametrize(
    ("value", "kind", "count"),
    [
        ("a", "text", 1),
        (["a"], "text", 1),
        (["a", "b"], "text", 2),
        ([1, 2, 3], "tokens", 1),
        ([[1, 2], [3]], "tokens", 2),
    ],
)
def test_texts_and_token_arrays_alone_or_in_lists_are_inputs(value: Any, kind: str, count: int) -> None:
    found = read({"input": value})
    assert found is not None
    assert (found.kind, len(found.values), found.results) == (kind, count, count)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        [],
        [""],
        ["a", ""],
        ["a", 1],
        [1, "a"],
        [[1], "a"],
        ["a", [1]],
        [[]],
        [[1], []],
        [1.5],
        [True],
        [[True]],
        {"text": "a"},
        [{"type": "text", "text": "a"}],
        5,
        True,
        [None],
        [1, [2]],
        [[[1]]],
    ],
)
def test_anything_else_travels_alone(value: Any) -> None:
    assert read({"input": value}) is None


def test_who_names_no_inputs_or_wants_a_stream_travels_alone() -> None:
    assert read({}) is None
    assert read({"prompt": "a", "stream": True}, COMPLETE) is None
    assert read({"prompt": "a", "stream": "yes"}, COMPLETE) is None
    assert read({"prompt": "a", "stream": False}, COMPLETE) is not None


@pytest.mark.parametrize(
    ("rest", "each"),
    [({}, 1), ({"n": None}, 1), ({"n": 3}, 3), ({"n": 2, "best_of": 5}, 2), ({"best_of": 5}, 1)],
)
def test_a_prompt_has_as_many_results_as_it_asks_for(rest: dict[str, Any], each: int) -> None:
    found = read({"prompt": ["a", "b"], **rest}, COMPLETE)
    assert found is not None
    assert found.results == 2 * each


@pytest.mark.parametrize(
    "rest", [{"n": 0}, {"n": True}, {"n": 1.0}, {"n": "2"}, {"n": 129}, {"best_of": "2"}, {"n": -1}]
)
def test_an_odd_number_of_results_travels_alone(rest: dict[str, Any]) -> None:
    assert read({"prompt": "a", **rest}, COMPLETE) is None
    assert read({"input": "a", **rest}) is not None


def test_a_text_has_no_more_tokens_than_bytes() -> None:
    found = read({"input": ["aaaa", "éé"]})
    assert found is not None
    assert found.bound == 8
    assert found.tokens == (2, 2)
    counted = read({"input": [[5, 6], [7]]})
    assert counted is not None
    assert (counted.bound, counted.tokens) == (3, (2, 1))


@pytest.mark.parametrize(
    ("path", "merges"),
    [
        ("/v1/embeddings", True),
        ("/openai/deployments/d/embeddings", True),
        ("/v1/completions", True),
        ("/v1/moderations", True),
        ("/v1/fim/completions", False),
        ("/v1/chat/completions", False),
        ("/v1/responses", False),
        ("/v1/messages", False),
        ("/embed", False),
    ],
)
def test_which_paths_take_several_inputs(path: str, merges: bool) -> None:
    assert (batchable_of(operation_of(path), path, inputs=None, results=None) is not None) is merges


def test_others_are_what_the_policy_declares() -> None:
    declared = batchable_of(operation_of("/embed"), "/embed", inputs="texts", results="vectors")
    assert declared == DECLARED
    # What is known is known, and a conversation is no list of inputs.
    assert batchable_of(operation_of("/v1/embeddings"), "/v1/embeddings", inputs="x", results="y") == EMBED
    chat = "/v1/chat/completions"
    assert batchable_of(operation_of(chat), chat, inputs="messages", results="choices") is None


@pytest.mark.parametrize(
    ("host", "most"),
    [
        ("api.openai.com", 2048),
        ("API.OpenAI.com.", 2048),
        ("mine.openai.azure.com", 2048),
        ("api.cohere.com", 96),
        ("api.mistral.ai", 64),
        ("api.voyageai.com", 1000),
        ("openai.azure.com.example", None),
        ("127.0.0.1", None),
    ],
)
def test_what_is_known_of_hosts(host: str, most: int | None) -> None:
    assert most_inputs(host) == most


def test_the_rest_of_a_body_is_all_of_it_but_the_inputs() -> None:
    one, other = b'{"model":"m","input":"a","n":1}', b'{ "input": ["b", "c"], "n": 1, "model": "m"}'
    rests = {rest_of(body, json.loads(body), EMBED) for body in (one, other)}
    assert len(rests) == 1
    assert None not in rests


@pytest.mark.parametrize(
    "other",
    [
        b'{"model":"m","input":"a","n":1.0}',
        b'{"model":"m","input":"a","n":"1"}',
        b'{"model":"m","input":"a"}',
        b'{"model":"m","input":"a","n":1,"user":null}',
        b'{"model":"m","input":"a","n":1,"x":{"input":"a"}}',
    ],
)
def test_a_rest_that_differs_differs(other: bytes) -> None:
    body = b'{"model":"m","input":"a","n":1}'
    assert rest_of(body, json.loads(body), EMBED) != rest_of(other, json.loads(other), EMBED)


def test_a_body_that_readers_may_read_differently_has_no_rest() -> None:
    for body in (b'{"input":"a","input":"b"}', b'{"input":"a","\\u0069nput":"b"}', b'{"input":"a","n":1,"n":2}'):
        assert rest_of(body, json.loads(body), EMBED) is None


def test_results_are_dealt_by_their_index_and_counted_anew() -> None:
    asked = parts(EMBED, "a", ["b", "c"], "d")
    data = [{"index": i, "embedding": [float(i)], "object": "embedding"} for i in (3, 0, 2, 1)]
    answer = {"object": "list", "id": "e1", "data": data, "usage": {"prompt_tokens": 8, "total_tokens": 8}}
    found = bodies(EMBED, answer, asked)
    assert found is not None
    assert [[one["embedding"] for one in own["data"]] for own in found] == [[[0.0]], [[1.0], [2.0]], [[3.0]]]
    assert [[one["index"] for one in own["data"]] for own in found] == [[0], [0, 1], [0]]
    assert [own["usage"]["total_tokens"] for own in found] == [2, 4, 2]
    assert all(own["id"] == "e1" and own["object"] == "list" for own in found)


def test_of_several_answers_to_a_prompt_each_caller_gets_its_own() -> None:
    asked = parts(COMPLETE, ["a", "b"], "c", n=2)
    choices = [{"index": i, "text": "x" * i, "finish_reason": "stop"} for i in range(6)]
    usage = {"prompt_tokens": 6, "completion_tokens": 15, "total_tokens": 21}
    found = bodies(COMPLETE, {"choices": choices, "usage": usage}, asked)
    assert found is not None
    assert [[len(one["text"]) for one in own["choices"]] for own in found] == [[0, 1, 2, 3], [4, 5]]
    assert [[one["index"] for one in own["choices"]] for own in found] == [[0, 1, 2, 3], [0, 1]]
    assert [own["usage"]["completion_tokens"] for own in found] == [6, 9]
    assert [own["usage"]["total_tokens"] for own in found] == [10, 11]


def test_moderations_stand_in_the_order_of_their_inputs() -> None:
    found = bodies(
        MODERATE, {"id": "m", "results": [{"flagged": i} for i in range(3)]}, parts(MODERATE, "a", ["b", "c"])
    )
    assert found == [
        {"id": "m", "results": [{"flagged": 0}]},
        {"id": "m", "results": [{"flagged": 1}, {"flagged": 2}]},
    ]


def test_declared_results_are_dealt_by_index_or_by_place() -> None:
    asked = parts(DECLARED, "a", "b")
    assert bodies(DECLARED, {"vectors": [[1], [2]]}, asked) == [{"vectors": [[1]]}, {"vectors": [[2]]}]
    found = bodies(DECLARED, {"vectors": [{"index": 1}, {"index": 0, "v": 5}]}, asked)
    assert found == [{"vectors": [{"index": 0, "v": 5}]}, {"vectors": [{"index": 0}]}]
    assert bodies(DECLARED, {"vectors": [{"index": 1}, {"v": 5}]}, asked) is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        "ab",
        [],
        [{"index": 0}],
        [{"index": 0}, {"index": 1}, {"index": 2}],
        [{"index": 0}, {"index": 0}],
        [{"index": 0}, {"index": 2}],
        [{"index": 0}, {}],
        [{}, {}],
        [{"index": 0}, {"index": True}],
        [{"index": 0}, {"index": 1.0}],
        [{"index": 0}, {"index": "1"}],
        [0, 1],
        [{"index": -1}, {"index": 0}],
    ],
)
def test_any_doubt_deals_nothing(data: Any) -> None:
    assert bodies(EMBED, {"data": data}, parts(EMBED, "a", "b")) is None


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{", b'"x"', b'{"data":[{"index":0},{"index":1}],"error":{"message":"no"}}']
)
def test_what_is_no_answer_is_dealt_to_nobody(answer: bytes) -> None:
    assert deal(answer, EMBED, parts(EMBED, "a", "b")) is None


def test_an_answer_without_usage_stays_without() -> None:
    found = bodies(EMBED, {"data": [{"index": 0}, {"index": 1}]}, parts(EMBED, "a", "b"))
    assert found is not None
    assert all("usage" not in own for own in found)


@given(st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=5), min_size=1, max_size=8), st.randoms())
def test_everybody_gets_exactly_its_own_whatever_the_order(values: list[list[str]], random: Any) -> None:
    asked = parts(EMBED, *values)
    texts = joined(asked)
    data = [{"index": i, "embedding": text} for i, text in enumerate(texts)]
    random.shuffle(data)
    found = bodies(EMBED, {"data": data, "usage": {"prompt_tokens": 997, "total_tokens": 997}}, asked)
    assert found is not None
    assert [[one["embedding"] for one in own["data"]] for own in found] == values
    assert sum(own["usage"]["prompt_tokens"] for own in found) == 997
