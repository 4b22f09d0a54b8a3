from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.kubernetes.problem import Unfit
from proxy.kubernetes.tree import compose, read, read_json, same
from proxy.kubernetes.writing import write_json, write_yaml

TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t :#'\"|>-"), max_size=20
)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def tree(text: str) -> Any:
    node = compose(text)
    assert node is not None
    return read(node)


@given(VALUES, st.sampled_from([None, "|", ">", "'", '"']), st.booleans())
def test_yaml_that_was_read_is_written_with_the_same_meaning(value: Any, style: str | None, flow: bool) -> None:
    text = yaml.safe_dump(value, default_style=style, default_flow_style=flow, allow_unicode=True)
    assert yaml.safe_load(write_yaml(tree(text))) == value


@given(VALUES)
def test_json_that_was_read_is_written_with_the_same_meaning(value: Any) -> None:
    assert json.loads(write_json(read_json(json.dumps(value)))) == value


@pytest.mark.parametrize(
    "line",
    [
        "a: on",
        'a: "on"',
        "a: 'no'",
        "a: 0644",
        "a: 1e3",
        "a: y",
        "a: 1_0",
        "a: 2024-01-01",
        "a: ~",
        "on: x",
        '"1": x',
        "a: 1.10",
    ],
)
def test_words_that_readers_of_yaml_differ_about_keep_their_letters_and_quotes(line: str) -> None:
    assert write_yaml(tree(line)) == f"{line}\n"


@pytest.mark.parametrize("word", ["y", "no", "on", "1e3", "0x1", "1:30", "null", "5", "50m", "~", ".inf", "<<", ""])
def test_texts_that_are_added_are_texts_to_every_reader(word: str) -> None:
    assert write_yaml({"a": word}) == f'"a": "{word}"\n'


def test_aliases_and_merged_mappings_are_written_out() -> None:
    found = tree("x: &x {a: 1, b: 2}\ny: *x\nz: {<<: *x, b: 3}\n")
    assert yaml.safe_load(write_yaml(found)) == {"x": {"a": 1, "b": 2}, "y": {"a": 1, "b": 2}, "z": {"a": 1, "b": 3}}
    assert "&" not in write_yaml(found)


def test_endless_and_huge_documents_are_refused() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    for text in ("a: &a [*a]\n", bomb):
        with pytest.raises(Unfit, match="too large"):
            tree(text)
    with pytest.raises(yaml.YAMLError):
        compose("[" * 100_000)


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", "a: !vault x\nb: !!set {x}\n", "? [a]\n: b\n", "<<: 1\n"])
def test_what_has_no_meaning_for_the_api_server_is_refused(text: str) -> None:
    with pytest.raises(Unfit):
        tree(text)


def test_trees_differ_when_they_say_something_else() -> None:
    assert same(tree("{a: on, b: [1]}"), tree("a: on\nb:\n- 1\n"))
    for other in ("{a: 'on', b: [1]}", "{b: [1], a: on}", "{a: on, b: [1.0]}", "{a: on, b: {}}", "[]", "a"):
        assert not same(tree("{a: on, b: [1]}"), tree(other))
