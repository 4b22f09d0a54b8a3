from __future__ import annotations

from proxy.policy.tree import children, deepest, plain, select, text_at, top
from tests.policy.samples import tree

ROOT = tree("providers:\n  a: {keys: [{id: x}, {id: y}]}\n  b: {keys: 5}\n  '*': {keys: []}\n")


def paths(pattern: str) -> list[str]:
    return [".".join(map(str, found.path)) for found in select(ROOT, pattern)]


def test_select_takes_names_any_name_and_any_position() -> None:
    assert paths("providers.a") == ["providers.a"]
    assert paths("providers.*.keys") == ["providers.a.keys", "providers.b.keys", "providers.*.keys"]
    assert paths("providers.*.keys.[].id") == ["providers.a.keys.0.id", "providers.a.keys.1.id"]


def test_select_finds_nothing_where_the_form_is_another() -> None:
    assert paths("providers.[]") == []
    assert paths("providers.a.keys.*") == []
    assert paths("providers.a.keys.[].id.more") == []


def test_deepest_stops_where_the_path_ends() -> None:
    assert deepest(ROOT, ("providers", "a", "keys", 1, "id")).path == ("providers", "a", "keys", 1, "id")
    assert deepest(ROOT, ("providers", "a", "keys", 2, "id")).path == ("providers", "a", "keys")
    assert deepest(ROOT, ("providers", 0)).path == ("providers",)


def test_a_position_in_a_list_has_the_place_of_its_value() -> None:
    first, second = children(deepest(ROOT, ("providers", "a", "keys")))
    assert str(first.key_place) == "p.yaml:2:14"
    assert str(second.key_place) == "p.yaml:2:23"


def test_text_at() -> None:
    assert text_at(top(ROOT), "providers.a.keys") is None
    assert text_at(deepest(ROOT, ("providers", "a", "keys", 0)), "id") == "x"
    assert text_at(top(ROOT), "providers.b.keys") is None


def test_plain() -> None:
    assert plain(ROOT) == {
        "providers": {"a": {"keys": [{"id": "x"}, {"id": "y"}]}, "b": {"keys": 5}, "*": {"keys": []}}
    }
