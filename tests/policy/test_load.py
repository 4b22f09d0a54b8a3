from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError
from proxy.policy.schema.export import json_schema
from proxy.policy.source import PolicyBytes, read_policy
from proxy.policy.support import NOT_YET
from proxy.policy.tree import Items, Mapping, Node
from tests.policy.samples import GOOD, files, load, problem, problems, tree

POLICIES = Path(__file__).parent.parent.parent / "policies"
SHIPPED = sorted(POLICIES.glob("*.yaml"))
FULL = (POLICIES / "full.yaml").read_text()


def names(node: Node) -> set[str]:
    """Every name of a mapping in the tree."""
    match node:
        case Mapping(entries=entries):
            return set(entries).union(*(names(entry.node) for entry in entries.values()))
        case Items(nodes=nodes):
            return set().union(*map(names, nodes))
        case _:
            return set()


def supported(schema: Any, part: Any) -> set[str]:
    """Every name that this part of the schema knows, without what is not built yet."""
    if isinstance(part, list):
        return set().union(*(supported(schema, one) for one in part))
    if not isinstance(part, dict):
        return set()
    if "$ref" in part:
        return supported(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])
    unbuilt = {gap.pattern.rpartition(".")[2] for gap in NOT_YET}
    found = {name: below for name, below in part.get("properties", {}).items() if name not in unbuilt}
    rest = [part.get(name) for name in ("items", "additionalProperties", "oneOf", "anyOf")]
    return set(found) | supported(schema, [*found.values(), *rest])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_policy_loads_without_warnings(path: Path) -> None:
    assert load_policy(read_policy(path)).warnings == ()
    assert path.read_text().startswith("# yaml-language-server: $schema=./policy.schema.json\n")


def test_there_are_shipped_policies() -> None:
    named = {"full.yaml", "limits.yaml", "local.yaml", "minimal.yaml", "openai.yaml", "saved-work.yaml"}
    assert {path.name for path in SHIPPED} >= named


def test_the_full_policy_has_every_name_that_is_supported() -> None:
    schema = json_schema()
    assert supported(schema, schema) - names(tree(FULL)) == {"max_size"}  # only with sizes that are not built yet


def test_the_same_bytes_have_the_same_digest() -> None:
    assert load(GOOD).digest == load(GOOD).digest == files(p=GOOD).digest
    assert load(GOOD + "\n").digest != load(GOOD).digest


def test_the_instance_index_is_no_policy() -> None:
    text = GOOD + "fleet: {size: {static: 10}}\n"
    assert load(text).fleet.index is None
    assert load_policy(files(p=text), instance_index=3).fleet.index == 3


@pytest.mark.parametrize("text", ["", "- a\n", "5\n", "a\n"])
def test_what_is_no_mapping(text: str) -> None:
    assert problem(text).startswith("p.yaml:1:1: policy: ")


def test_a_bad_file_hides_no_other_bad_file() -> None:
    assert [line.split(" ")[0] for line in problems("a: [\n", q="b: 1\nb: 2\n", r="")] == [
        "p.yaml:2:1:",
        "q.yaml:2:1:",
        "r.yaml:1:1:",
    ]


def test_yaml_problems_come_together_with_all_others() -> None:
    lines = problems(GOOD + "providers: {}\nlimits: {concurrency: x}\nfleet: !big 5\n")
    assert [line.split(" ")[0] for line in lines] == ["p.yaml:5:1:", "p.yaml:6:23:", "p.yaml:7:8:"]


def test_a_fault_in_shared_yaml_is_told_of_every_path() -> None:
    text = GOOD + "    limits: &l {concurrency: x}\n  b: {base_url: 'http://b.example', limits: *l}\n"
    assert [line.split(": ")[:2] for line in problems(text)] == [
        ["p.yaml:5:30", "providers.a.limits.concurrency"],
        ["p.yaml:5:30", "providers.b.limits.concurrency"],
    ]


def test_anchors_and_merge_keys_work() -> None:
    text = GOOD + "    limits: &l {concurrency: 1e1}\n  b: {<<: {limits: *l}, base_url: 'http://b.example'}\n"
    assert [one.concurrency for one in load(text).providers] == [10, 10]


def test_the_limits_hold_for_all_files_together() -> None:
    half = GOOD.encode() + b"#" * (600 << 10)
    with pytest.raises(PolicyError, match="larger than 1 MiB"):
        load_policy(PolicyBytes(files=(("a.yaml", half), ("b.yaml", half))))
    with pytest.raises(PolicyError, match="has no files"):
        load_policy(PolicyBytes(files=()))
    many = "x: [" + "1," * 15_000 + "]\n"
    assert any("more than 20000 values" in line for line in problems(many, q=many))


def check(text: str) -> None:
    """Whatever the text is: a snapshot, or problems that all have a place inside it."""
    lines = re.split("\r\n|[\r\n\x85\u2028\u2029]", text)
    try:
        load(text)
    except PolicyError as error:
        found = error.problems
        if not found:
            raise AssertionError("no problems") from error
        for one in found:
            assert one.file == "p.yaml"
            assert 1 <= one.line <= len(lines)
            assert 1 <= one.column <= len(lines[one.line - 1]) + 1
            assert one.message
            assert str(one).isprintable()


TOKENS = "{|}|[|]|: |- |*x|&x |<<: |010|1:30|.nan|-1|null|!!x |'|\"|\t|\n|  |v1|off|[]|{}|5s|true|x|%|é|\x85|# "
PIECES = st.sampled_from(TOKENS.split("|")) | st.text(max_size=5)


@given(position=st.integers(0, len(FULL)), length=st.integers(0, 40), piece=PIECES)
def test_any_change_of_the_text_gives_a_policy_or_problems_with_places(position: int, length: int, piece: str) -> None:
    text = FULL[:position] + piece + FULL[position + length :]
    check(text.encode("utf-8", "replace").decode())


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-5, max_value=10**20)
    | st.floats()
    | st.sampled_from(["5s", "off", "1MiB", "a", "alpha", "P1", "", "/x", "http://x.example"])
    | st.text(max_size=4)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
)


@given(data=st.data(), value=VALUES)
def test_any_value_anywhere_gives_a_policy_or_problems_with_places(data: st.DataObject, value: object) -> None:
    root: Any = yaml.safe_load(FULL)
    parent, key = root, data.draw(st.sampled_from(list(root)))
    while isinstance(node := parent[key], dict | list) and node and data.draw(st.integers(0, 3)):
        parent, key = (
            node,
            data.draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node)))),
        )
    parent[key] = value
    check(yaml.safe_dump(root, allow_unicode=False, sort_keys=False))
