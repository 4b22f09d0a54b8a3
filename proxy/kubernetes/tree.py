"""One document as mappings, lists and scalars that remember how they were written.

Words such as `on` or `0644` mean one thing to YAML 1.1, another to 1.2, and readers of manifests differ: a scalar is
never interpreted here, so that it can be written again with the same letters and the same quotes.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from proxy.kubernetes.problem import Unfit

Document = dict[str, Any]
"""Values: mappings, lists, `Scalar`, and of what is added here also str, int and bool."""

DEEPEST = 100
MOST_NODES = 200_000
"""In one document, aliases followed; an object of the API is at most 1.5 MiB."""

TAG = "tag:yaml.org,2002:"
STRING, MERGE, MAPPING, SEQUENCE = TAG + "str", TAG + "merge", TAG + "map", TAG + "seq"


class Scalar(str):
    """The text of a scalar, with its tag and the style it was written in."""

    __slots__ = ("style", "tag")

    tag: str
    style: str | None

    def __new__(cls, text: str, *, tag: str = STRING, style: str | None = None) -> Scalar:
        self = super().__new__(cls, text)
        self.tag, self.style = tag, style
        return self


def tag_of(value: object) -> str:
    """Returns the YAML tag of a scalar."""
    match value:
        case Scalar():
            return value.tag
        case bool():
            return TAG + "bool"
        case int():
            return TAG + "int"
        case _:
            return STRING


def text_of(value: object) -> str:
    """Returns a scalar's text, as YAML and JSON write it."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def is_null(value: object) -> bool:
    """Whether the value is there and says nothing."""
    return isinstance(value, Scalar) and value.tag == TAG + "null"


def same(one: object, other: object) -> bool:
    """Whether two trees say the same, however they are written. The order of keys counts."""
    match one, other:
        case dict(), dict():
            return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(same, one, other))
        case dict() | list(), _:
            return False
        case _, dict() | list():
            return False
    return tag_of(one) == tag_of(other) and text_of(one) == text_of(other)


def compose(text: str) -> yaml.Node | None:
    """Returns the node of a document's text, None of an empty one. Raises `yaml.YAMLError`."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise yaml.YAMLError("nested too deep") from None


def read(node: yaml.Node) -> Any:
    """Returns the tree of a node: aliases and merged mappings are written out. Raises `Unfit`."""
    return _Reading().value(node, 0)


def read_json(text: str) -> Any:
    """Returns the tree of a JSON text. Raises ValueError."""
    found = json.loads(
        text, parse_int=_Number, parse_float=_Number, parse_constant=_no_number, object_pairs_hook=_pairs
    )
    return _from_json(found)


class _Number(str):
    __slots__ = ()


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise Unfit("has a key twice: leave one")
    return found


def _from_json(value: Any) -> Any:
    match value:
        case dict():
            return {Scalar(key, style='"'): _from_json(inner) for key, inner in value.items()}
        case list():
            return [_from_json(inner) for inner in value]
        case _Number():
            return Scalar(value, tag=TAG + ("int" if value.lstrip("-").isdigit() else "float"))
        case str():
            return Scalar(value, style='"')
        case None:
            return Scalar("null", tag=TAG + "null")
    return Scalar(text_of(value), tag=TAG + "bool")


class _Reading:
    """One walk over a node, bounded: aliases can make a few lines endless."""

    def __init__(self) -> None:
        self._left = MOST_NODES

    def value(self, node: yaml.Node, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > DEEPEST:
            raise Unfit("is too large, or refers to itself: write its aliases out")
        match node:
            case yaml.ScalarNode():
                return Scalar(node.value, tag=node.tag, style=node.style)
            case yaml.SequenceNode(tag=tag) if tag == SEQUENCE:
                return [self.value(inner, depth + 1) for inner in node.value]
            case yaml.MappingNode(tag=tag) if tag == MAPPING:
                return self._mapping(node, depth)
        raise Unfit(f"has the tag {node.tag}, which the API server does not know: remove it")

    def _mapping(self, node: yaml.MappingNode, depth: int) -> Document:
        own: Document = {}
        merged: Document = {}
        for key, inner in node.value:
            if key.tag == MERGE:
                for each in self._merged(inner, depth):
                    merged = {**each, **merged}
                continue
            if not isinstance(name := self.value(key, depth), Scalar):
                raise Unfit("has a key that is not a text: render templates first, correct anything else")
            if name in own:
                raise Unfit(f'has the key "{name}" twice in one mapping: leave one')
            own[name] = self.value(inner, depth + 1)
        return {**merged, **own}

    def _merged(self, node: yaml.Node, depth: int) -> list[Document]:
        found = self.value(node, depth + 1)
        mappings = found if isinstance(found, list) else [found]
        if not all(isinstance(each, dict) for each in mappings):
            raise Unfit("merges what is not a mapping (<<): write it out")
        return mappings
