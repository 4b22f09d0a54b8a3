"""Canonical bytes: equal where two bodies say the same, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.canonical import DEEPEST, MOST_MARKS, SHORT, canonical

NOTHING = frozenset[str]()


def plain(body: bytes | str, *, ignore: frozenset[str] = NOTHING, spaces: bool = False, case: bool = False) -> bytes:
    """The canonical bytes of a body that has some."""
    found = canonical(body.encode() if isinstance(body, str) else body, ignore=ignore, spaces=spaces, case=case)
    assert found is not None
    return found


def refused(body: bytes | str) -> bool:
    """Whether a body is equal to nothing."""
    return canonical(body.encode() if isinstance(body, str) else body, ignore=NOTHING, spaces=False, case=False) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1,"b":{"c":2,"d":3}}', '{ "b" : {"d":3,\n"c":2}, "a":1 }'),
        ('{"a":"A\\u00e9\\n"}', '{"a":"\\u0041é\\u000a"}'),
        ('{"a":"\\ud83d\\ude00"}', '{"a":"😀"}'),
        ('{"\\u0061":"\\/"}', '{"a":"/"}'),
        ('{"a":[1, 2 ,3]}', '{"a":[1,2,3]}'),
    ],
)
def test_spelling_does_not_count(one: str, other: str) -> None:
    assert plain(one) == plain(other)


DIFFERENT = [
    "1", "1.0", "1e0", "1E0", "1e+0", "-0", "0", "-0.0", "0.0", "10", "36893488147419103232", "36893488147419103233",
    "0.1", "0.10", "0.1000000000000000055511151231257827", '"1"', '"1.0"', "true", "false", "null", '"true"', '"null"',
    '"n"', '""', "[]", "{}", "[[]]", "[{}]", "[1]", "[1,0]", "[10]", '["1"]', '["1;"]', '["1","0"]', '["10"]', "[null]",
    '{"":null}', '{"":""}', '{"1":1}', '{"a":"b"}', '["a","b"]', '{"a":1}', '{"a":[1]}', '{"b":1}', '"a"', '"A"',
    '" a"', '"a "', '"é"', '"e\\u0301"', '"\\ud83d"', '"\\ude00"', '"\\ude00\\ud83d"', '"\\ud83d\\ude00"', '"\\ufffd"',
    '"\\u0000"', '"2:ab"', '"ab"', '["a","2:b"]', "1e1000", "1e1001", "[1,[2]]", "[[1],2]", "[[1,2]]",
]  # fmt: skip


def test_different_values_have_different_bytes() -> None:
    bodies = [f'{{"x":{value}}}' for value in DIFFERENT] + [f'{{"y":{value}}}' for value in DIFFERENT] + ["{}"]
    assert len({plain(body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"[]", b'"a"', b"1", b"null", b"{", b'{"a":1}x', b'{"a":1}{"a":1}', b'{"a":NaN}', b'{"a":Infinity}',
        b'{"a":-Infinity}', b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'{"x":[{"a":1,"a":2}]}', b'{"a":01}', b"{'a':1}",
        b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'\xef\xbb\xbf{"a":1}', b'{"a":1,}', b'{"a":"\n"}',
        b"--x\r\n\r\n--x--",
        '{"a":1}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_no_single_object_is_equal_to_nothing(body: bytes) -> None:
    assert refused(body)


@pytest.mark.parametrize("levels", [DEEPEST + 1, 5_000, 200_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_absurd_depth_is_equal_to_nothing(levels: int, opens: str, closes: str) -> None:
    assert refused('{"a":' + opens * levels + "1" + closes * levels + "}")


def test_sensible_depth_is_read() -> None:
    levels = DEEPEST - 1
    assert plain('{"a":' + "[" * levels + "]" * levels + "}")


@pytest.mark.parametrize("part", ["[]", "{}", '""', '{"a":1}'])
def test_absurdly_many_parts_are_equal_to_nothing(part: str) -> None:
    marks = sum(map(part.count, '"[{'))
    most = (MOST_MARKS - 4) // marks
    assert plain('{"a":[' + ",".join([part] * most) + "]}")
    assert refused('{"a":[' + ",".join([part] * (most + 1)) + "]}")


@pytest.mark.parametrize("size", [1, SHORT, SHORT + 1, 3 * SHORT])
def test_long_arrays_are_spelled_like_short_ones(size: int) -> None:
    arrays = [
        ["1"] * size,
        ["1"] * (size - 1) + ["1.0"],
        ["1"] * (size - 1) + ['"1"'],
        ["1"] * (size + 1),
        ["11"] * size,
    ]
    bodies = [plain(f'{{"a":[{",".join(array)}]}}') for array in arrays]
    assert len(set(bodies)) == len(bodies)
    assert bodies[0] == b"{1:a[" + b"1;" * size + b"]}"


def test_many_numbers_and_long_texts_are_no_absurdity() -> None:
    assert plain('{"input":[' + ",".join(["1"] * 2 * MOST_MARKS) + "]}")
    assert plain('{"input":"' + "x" * 5 * MOST_MARKS + '"}')


def test_repeated_keys_are_found_in_ignored_fields_too() -> None:
    assert canonical(b'{"user":1,"user":2}', ignore=frozenset({"user"}), spaces=False, case=False) is None


def test_ignored_fields_are_those_at_the_top() -> None:
    ignore = frozenset({"user", "absent"})
    assert plain('{"user":"u1","a":1}', ignore=ignore) == plain('{"a":1}', ignore=ignore) == plain('{"a":1}')
    assert plain('{"m":{"user":1}}', ignore=ignore) != plain('{"m":{"user":2}}', ignore=ignore)


QUESTIONS = [
    '{"input":"%s"}', '{"input":["x","%s"]}', '{"prompt":"%s"}', '{"prompt":["%s"]}', '{"system":"%s"}',
    '{"system":[{"type":"text","text":"%s"}]}', '{"instructions":"%s"}',
    '{"messages":[{"role":"user","content":"%s"}]}',
    '{"messages":[{"role":"user","content":[{"type":"text","text":"%s"}]}]}',
    '{"input":[{"role":"user","content":[{"type":"input_text","text":"%s"}]}]}', '{"input":[{"content":"%s"}]}',
]  # fmt: skip


@pytest.mark.parametrize("shape", QUESTIONS)
def test_normalised_texts_are_those_of_the_question(shape: str) -> None:
    one, spaced, loud = (shape % text for text in ("one two", "  one \\n\\t two ", "One TWO"))
    assert plain(one, spaces=True) == plain(spaced, spaces=True) != plain(loud, spaces=True)
    assert plain(one, case=True) == plain(loud, case=True) != plain(spaced, case=True)
    assert len({plain(text) for text in (one, spaced, loud)}) == 3
    assert plain(shape % "onetwo", spaces=True, case=True) != plain(one, spaces=True, case=True)


@pytest.mark.parametrize(
    "shape",
    [
        '{"model":"%s"}', '{"stop":"%s"}', '{"stop":["%s"]}', '{"user":"%s"}', '{"messages":[{"role":"%s"}]}',
        '{"messages":[{"content":"x","name":"%s"}]}', '{"tools":[{"function":{"description":"%s"}}]}',
        '{"messages":[{"content":[{"type":"image_url","image_url":{"url":"%s"}}]}]}',
        '{"messages":[{"tool_calls":[{"function":{"arguments":"%s"}}]}]}', '{"text":"%s"}', '{"content":"%s"}',
        '{"metadata":{"input":"%s"}}', '{"input":{"text":"%s"}}', '{"response_format":{"prompt":"%s"}}',
        '{"%s":"input"}',
        '{"messages":[{"content":[{"type":"tool_result","content":"%s"}]}]}', '{"input":[[ "%s" ]]}',
    ],
)  # fmt: skip
def test_whatever_is_no_text_of_the_question_counts_exactly(shape: str) -> None:
    texts = ("one two", "one  two", "One two")
    assert len({plain(shape % text, spaces=True, case=True) for text in texts}) == 3


def test_normalising_makes_no_other_types_equal() -> None:
    bodies = ['{"input":"1"}', '{"input":1}', '{"input":["1"]}', '{"input":[1]}', '{"input":null}', '{"input":[[1]]}']
    assert len({plain(body, spaces=True, case=True) for body in bodies}) == len(bodies)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
)
BODIES = st.dictionaries(st.text(max_size=3), VALUES, max_size=5)


def sorted_json(document: Any) -> str:
    """A reference: the standard library's own spelling tells all types and numbers apart."""
    return json.dumps(document, sort_keys=True)


@given(BODIES, BODIES)
def test_bytes_are_equal_exactly_where_documents_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (plain(json.dumps(one)) == plain(json.dumps(other))) == (sorted_json(one) == sorted_json(other))


@given(BODIES, st.booleans(), st.integers(0, 4))
def test_spelling_never_counts(document: dict[str, Any], ascii_only: bool, indent: int) -> None:
    shuffled = dict(reversed(document.items()))
    assert plain(json.dumps(document)) == plain(json.dumps(shuffled, ensure_ascii=ascii_only, indent=indent))


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every value of a document stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in paths_of(item, (*path, key)))]


def with_change(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with another value in one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_change(copy[path[0]], path[1:], new)
    return copy


@given(st.data(), BODIES.filter(bool), LEAVES)
def test_one_changed_value_changes_the_bytes(data: st.DataObject, document: dict[str, Any], new: Any) -> None:
    path = data.draw(st.sampled_from(paths_of(document)[1:]))
    changed = with_change(document, path, new)
    same = sorted_json(changed) == sorted_json(document)
    assert (plain(json.dumps(changed)) == plain(json.dumps(document))) == same


@given(BODIES, BODIES, st.booleans(), st.booleans())
def test_normalising_joins_nothing_outside_of_questions(
    one: dict[str, Any], other: dict[str, Any], spaces: bool, case: bool
) -> None:
    texts = {"input": "Q  q", "messages": [{"content": "Q"}]}
    equal = plain(json.dumps({**one, **texts}), spaces=spaces, case=case) == plain(
        json.dumps({**other, **texts}), spaces=spaces, case=case
    )
    rest = [{key: value for key, value in each.items() if key not in texts} for each in (one, other)]
    assert equal == (sorted_json(rest[0]) == sorted_json(rest[1]))


@given(st.binary())
def test_no_bytes_raise(body: bytes) -> None:
    for text in (body, b'{"a":"' + body + b'"}', b'{"a":' + body + b"}"):
        canonical(text, ignore=NOTHING, spaces=True, case=True)
