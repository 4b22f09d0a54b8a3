from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.parse import DEEPEST, MOST_NODES, parse
from proxy.policy.problem import PolicyError
from proxy.policy.tree import deepest, plain
from tests.policy.samples import tree


def fatal(text: str | bytes) -> str:
    """The last thing that is wrong with a text of which there is no tree."""
    content = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(PolicyError) as caught:
        parse("p.yaml", content)
    return str(caught.value.problems[-1])


def survived(text: str) -> list[str]:
    return [str(problem) for problem in parse("p.yaml", text.encode()).problems]


def test_values_and_places() -> None:
    root = tree("a: {b: [x, off, 010, 1e1]}\nc:\nd: '5'\n")
    assert plain(root) == {"a": {"b": ["x", "off", "010", 10.0]}, "c": None, "d": "5"}
    assert str(deepest(root, ("a", "b", 1)).node.place) == "p.yaml:1:12"
    assert str(deepest(root, ("d",)).key_place) == "p.yaml:3:1"


def test_nothing_stands_where_its_name_stands() -> None:
    assert str(deepest(tree("a: 1\nb:\n\n\n"), ("b",)).node.place) == "p.yaml:2:1"


@pytest.mark.parametrize("text", ["", "\n\n", "# only words\n", " "])
def test_empty(text: str) -> None:
    assert fatal(text).startswith("p.yaml:1:1: policy: is empty")


def test_a_repeated_name_has_both_places() -> None:
    text = "a: 1\nb:\n  c: 1\n  c: 2\na: 3\n"
    assert survived(text) == [
        "p.yaml:4:3: b.c: is defined twice; first at p.yaml:3:3",
        "p.yaml:5:1: a: is defined twice; first at p.yaml:1:1",
    ]


def test_names_are_text_as_written() -> None:
    assert plain(tree("on: 1\n5: 2\n1:30: 3\n")) == {"on": 1, "5": 2, "1:30": 3}


@pytest.mark.parametrize("text", ["? [a]\n: 1\n", "? {a: b}\n: 1\n", "~: 1\n"])
def test_a_name_must_be_text(text: str) -> None:
    (line,) = survived(text)
    assert "a name is text" in line


def test_a_tab_is_named() -> None:
    assert fatal("a:\n\tb: 1\n") == "p.yaml:2:1: policy: a tab cannot indent or separate here: use spaces"


def test_text_that_is_not_utf8() -> None:
    assert fatal(b"a: 1\nb: \xc3\xa9\xff\n") == "p.yaml:2:5: policy: is not UTF-8 text"
    assert "not UTF-8" in fatal("a: 1\n".encode("utf-16"))


def test_control_characters() -> None:
    assert fatal("a: 1\nb: x\x00\n") == "p.yaml:2:5: policy: a character that text may not have: U+0000"


def test_a_byte_order_mark_is_no_text() -> None:
    assert plain(tree("\ufeffa: 1\n")) == {"a": 1}


def test_a_second_document() -> None:
    assert survived("---\na: 1\n---\nb: 2\n") == ["p.yaml:3:1: policy: a second document: a policy file has one"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1, 2\n", "p.yaml:2:1"),
        ("a: b: c\n", "p.yaml:1:5"),
        ("a: 'x\n", "p.yaml:2:1"),
        ("@a: 1\n", "p.yaml:1:1"),
    ],
)
def test_syntax_errors_have_a_place(text: str, place: str) -> None:
    assert fatal(text).startswith(f"{place}: policy: is not YAML: ")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [x]\n",
        "a: !secret x\n",
        "a: !!python/none {b: c}\n",
        "a: !!set {b}\n",
    ],
)
def test_unknown_tags(text: str) -> None:
    (line,) = survived(text)
    assert line.startswith("p.yaml:1:4: a: unknown tag !")


def test_plain_tags_say_what_a_value_is() -> None:
    assert plain(tree("a: !!str 5\nb: !!int '5'\nc: !!map {}\nd: ! 5\n")) == {
        "a": "5",
        "b": 5,
        "c": {},
        "d": "5",
    }
    assert survived("a: !!int x\n") == ["p.yaml:1:4: a: is not what its tag says: !!int"]


def test_aliases_and_merge_keys() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, {z: 4, x: 0}]}\nd: [*a]\n"
    assert plain(tree(text)) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 1, "y": 2, "z": 4},
        "d": [{"x": 1, "y": 2}],
    }


def test_an_own_name_wins_wherever_the_merge_key_stands() -> None:
    assert plain(tree("a: &a {x: 1}\nb: {x: 2, <<: *a}\n")) == {"a": {"x": 1}, "b": {"x": 2}}


def test_a_quoted_merge_key_is_a_name() -> None:
    assert plain(tree("'<<': 1\n")) == {"<<": 1}


def test_a_merge_key_wants_mappings() -> None:
    assert survived("a: {<<: [{b: 1}, 5]}\n") == ["p.yaml:1:5: a.<<: expected a mapping, or a list of mappings"]


def test_broken_aliases() -> None:
    assert fatal("a: *x\n") == "p.yaml:1:4: a: no anchor &x before this alias"
    assert fatal("a: &a {b: [*a]}\n") == "p.yaml:1:12: a.b.0: the alias *a stands inside its own anchor"


def test_the_depth_is_limited() -> None:
    fits = "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1)
    assert tree(f"a: {fits}\n")
    assert f"nested deeper than {DEEPEST}" in fatal(f"a: [{fits}]\n")
    half = "[" * 20 + "1" + "]" * 20
    assert f"nested deeper than {DEEPEST}" in fatal(f"a: &a {half}\nb: {'[' * 15}*a{']' * 15}\n")
    assert fatal("[" * 900_000)


def test_the_number_of_values_is_limited_after_expansion() -> None:
    assert tree("a: [" + "1," * (MOST_NODES - 4) + "]\n")
    assert f"more than {MOST_NODES}" in fatal("a: [" + "1," * MOST_NODES + "]\n")
    laughs = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 25))
    assert f"more than {MOST_NODES}" in fatal(laughs)


def test_the_size_is_limited() -> None:
    assert fatal(b"a: 1\n" + b"#" * (1 << 20)) == "p.yaml:1:1: policy: is larger than 1 MiB"


@given(st.text(alphabet="ab:-[]{}&*!?<> \n\t'\"#,|%@~01.é", max_size=60) | st.text(max_size=40))
def test_any_text_is_a_tree_or_a_problem_inside_the_file(text: str) -> None:
    content = text.encode("utf-8", "surrogatepass")
    lines = len(text.splitlines()) + 1
    try:
        found = parse("p.yaml", content).problems
    except PolicyError as error:
        found = error.problems
        assert found
    assert all(1 <= problem.line <= lines and problem.column >= 1 for problem in found)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_tree_or_a_problem(content: bytes) -> None:
    try:
        parsed = parse("p.yaml", content)
    except PolicyError as error:
        places = [(problem.line, problem.column) for problem in error.problems]
        assert places >= [(1, 1)]
    else:
        assert parsed.size >= 1
