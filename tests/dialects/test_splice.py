"""Fields change; every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.splice import with_fields, with_fields_in, with_model

KEYS = st.sampled_from(["model", "Model", "a", 'x"model', "é", "\\", "{", "messages"]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=4
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["model", '"model":"x"', '{"model":', "\\", '\\"', "}", "]"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.tuples(KEYS, VALUES), max_size=6)
SPACES = st.sampled_from(["", " ", "\n\t", "\r\n  "])


@st.composite
def spelled_objects(draw: st.DrawFn) -> list[tuple[str, str, str]]:
    """Members of an object, keys maybe repeated: name, text before the value, text of the value."""
    members = []
    for name, value in draw(OBJECTS):
        ascii_only, space = draw(st.booleans()), draw(SPACES)
        key = json.dumps(name, ensure_ascii=ascii_only)
        if draw(st.booleans()) and name == "model":
            key = draw(st.sampled_from(['"\\u006dodel"', '"mod\\u0065l"', '"\\u006D\\u006fdel"']))
        text = json.dumps(value, ensure_ascii=ascii_only, indent=draw(st.sampled_from([None, 1])))
        members.append((name, f"{space}{key}{space}:{draw(SPACES)}", text))
    return members


def joined(members: list[tuple[str, str, str]], space: str) -> bytes:
    return f"{space}{{{','.join(before + value for _, before, value in members)}{space}}}{space}".encode()


@given(spelled_objects(), SPACES, st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_only_the_model_changes(members: list[tuple[str, str, str]], space: str, model: str) -> None:
    body = joined(members, space)
    document = orjson.loads(body)
    spelled = orjson.dumps(model).decode()
    expected = [(n, before, spelled if n == "model" else value) for n, before, value in members]
    if "model" in document:
        assert with_model(body, model, document) == joined(expected, space)
    else:
        added = with_model(body, model, document)
        assert json.loads(added) == json.loads(body) | {"model": model}
        assert added.startswith(body[: body.rindex(b"}")])


@given(spelled_objects(), SPACES, st.dictionaries(KEYS, VALUES, max_size=3))
def test_only_the_fields_change(members: list[tuple[str, str, str]], space: str, fields: dict[str, Any]) -> None:
    body = joined(members, space)
    changed = with_fields(body, orjson.loads(body), fields)
    assert json.loads(changed) == json.loads(body) | fields
    for name, before, value in members:
        if name not in fields:
            assert (before + value).encode() in changed
        else:
            assert before.encode() in changed


@given(spelled_objects(), spelled_objects(), SPACES, st.dictionaries(KEYS, VALUES, max_size=3))
def test_only_fields_of_an_inner_object_change(
    members: list[tuple[str, str, str]], inner: list[tuple[str, str, str]], space: str, fields: dict[str, Any]
) -> None:
    value = joined(inner, space).decode().strip()
    body = joined([*members, ("inner", '"inner" :', value)], space)
    changed = with_fields_in(body, "inner", fields)
    assert json.loads(changed) == json.loads(body) | {"inner": json.loads(value) | fields}
    assert changed.startswith(body[: body.rindex(b'"inner"')])
    for name, before, text in inner:
        assert before.encode() in changed
        assert name in fields or (before + text).encode() in changed


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b"{}", b'{"o":{"a":1}}'),
        (b'{ "x": 1.0 }', b'{ "x": 1.0 ,"o":{"a":1}}'),
        (b'{"o": null ,"x":{"o":{}}}', b'{"o": {"a":1} ,"x":{"o":{}}}'),
        (b'{"o":[{"a":2}]}', b'{"o":{"a":1}}'),
        (b'{"o":{"a":2},"o":"x","\\u006f":{ }}', b'{"o":{"a":1},"o":{"a":1},"\\u006f":{ "a":1}}'),
    ],
)
def test_inner_objects(body: bytes, changed: bytes) -> None:
    assert with_fields_in(body, "o", {"a": 1}) == changed


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b'{"model":"a","n":1.0e2}', b'{"model":"b","n":1.0e2}'),
        (
            b'{ "model" : "a\\"}" , "seed":123456789012345678901 }',
            b'{ "model" : "b" , "seed":123456789012345678901 }',
        ),
        (b'{"x":{"model":"a"},"model":"a"}', b'{"x":{"model":"a"},"model":"b"}'),
        (b'{"x":{"model":"a"},"mode\\u006c":"a"}', b'{"x":{"model":"a"},"mode\\u006c":"b"}'),
        (b'{"model":null}', b'{"model":"b"}'),
        (b'{"model":{"model":[]},"z":[1,{"model":2}]}', b'{"model":"b","z":[1,{"model":2}]}'),
        (b'{"model":"a","x":"model","model":"c"}', b'{"model":"b","x":"model","model":"b"}'),
        (b"{}", b'{"model":"b"}'),
        (b' { "x" : 1 } ', b' { "x" : 1 ,"model":"b"} '),
    ],
)
def test_models(body: bytes, changed: bytes) -> None:
    assert with_model(body, "b", orjson.loads(body)) == changed


@pytest.mark.parametrize("body", [b"{}", b" { } ", b'{"a":1}', b'{"a":{}}', b'{"model":"x"}'])
def test_changes_in_a_row_need_one_reading(body: bytes) -> None:
    document = orjson.loads(body)
    changed = with_fields(with_model(body, "b", document), document, {"model": "c", "n": 1})
    assert changed.count(b'"model"') == 1
    assert orjson.loads(changed) == document | {"model": "c", "n": 1}


def test_a_model_cannot_leave_its_quotes() -> None:
    body = b'{"model":"a"}'
    assert orjson.loads(with_model(body, 'b","x":"', {"model": "a"})) == {"model": 'b","x":"'}


def test_no_fields_is_the_same_body() -> None:
    body = b'{ "a" : 1 }'
    assert with_fields(body, {"a": 1}, {}) is body


def test_long_strings_full_of_escapes() -> None:
    text = '\\"model\\": ' * 100_000
    body = f'{{"messages":[{{"content":"{text}"}}],"model":"a"}}'.encode()
    document = orjson.loads(body)
    assert with_model(body, "b", document) == body.replace(b'"model":"a"', b'"model":"b"')
    changed = with_fields(body, document, {"model": "b", "n": 2**70})
    assert json.loads(changed) == document | {"model": "b", "n": 2**70}
