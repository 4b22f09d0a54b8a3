"""Bytes → YAML tree, or problems with places.

Composes from the event stream itself, so that repeated names, unknown tags and too much nesting are seen, and
aliases cost nothing until a limit says no. Knows YAML, not the schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from proxy.policy.problem import Path, Place, PolicyError, Problem, problem_at, secretive
from proxy.policy.scalars import resolve
from proxy.policy.source import LARGEST_POLICY
from proxy.policy.tree import Entry, Items, Mapping, Node, Scalar

DEEPEST = 32
MOST_NODES = 20_000

_CORE = "tag:yaml.org,2002:"
_TYPES: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
}
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """The tree of a file with the faults that its reading survived; `size` counts nodes, aliases expanded."""

    root: Node
    problems: tuple[Problem, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A composed node: how many nodes it expands to, and how deep it is."""

    node: Node
    size: int = 1
    height: int = 1


def parse(name: str, content: bytes, *, most_nodes: int = MOST_NODES) -> Parsed:
    """Returns the tree of one file. Raises `PolicyError` where there is none: a syntax error, a limit."""
    text = _decode(name, content)
    composer = _Composer(name, text, most_nodes)
    try:
        part = composer.document()
    except yaml.MarkedYAMLError as error:
        raise PolicyError([*composer.problems, _syntax(name, text, error)]) from error
    except yaml.YAMLError as error:
        reason = getattr(error, "reason", None) or "not readable as YAML"
        raise PolicyError([problem_at(Place(file=name, line=1, column=1), (), str(reason))]) from error
    return Parsed(root=part.node, problems=tuple(composer.problems), size=part.size)


class _Composer:
    """Builds the tree of one document."""

    def __init__(self, name: str, text: str, most_nodes: int) -> None:
        self._name = name
        self._most_nodes = most_nodes
        self._left = most_nodes
        self._anchors: dict[str, _Part | None] = {}
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self.problems: list[Problem] = []

    def document(self) -> _Part:
        """The only document of the stream; another one is a problem."""
        next(self._events)
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            raise self._stop(Place(file=self._name, line=1, column=1), (), EMPTY)
        part = self._node(next(self._events), (), 1, self._place(start))
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._report(self._place(after), (), "a second document: a policy file has one")
        return part

    def _node(self, event: yaml.Event, path: Path, depth: int, near: Place) -> _Part:
        place = self._place(event)
        if depth > DEEPEST:
            raise self._stop(place, path, f"nested deeper than {DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, depth)
        anchor = getattr(event, "anchor", None)
        if anchor:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            part = _Part(node=self._scalar(event, path, near))
            self._spend(1, place, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            part = self._items(event, path, depth)
        else:
            part = self._mapping(event, path, depth)
        if anchor:
            self._anchors[anchor] = part
        return part

    def _alias(self, event: yaml.AliasEvent, path: Path, depth: int) -> _Part:
        place, name = self._place(event), event.anchor
        if name not in self._anchors:
            raise self._stop(place, path, f"no anchor {_shown(f'&{name}', path)} before this alias")
        part = self._anchors[name]
        if part is None:
            raise self._stop(place, path, f"the alias *{name} stands inside its own anchor")
        if depth + part.height - 1 > DEEPEST:
            raise self._stop(place, path, f"nested deeper than {DEEPEST} levels")
        self._spend(part.size, place, path)
        return part

    def _scalar(self, event: yaml.ScalarEvent, path: Path, near: Place) -> Scalar:
        place, text = self._place(event), event.value
        quoted = event.implicit[1] or event.tag == "!"
        if event.tag in (None, "!"):
            if not quoted and not text:
                place = near
            return Scalar(value=text if quoted else resolve(text), text=text, quoted=quoted, place=place)
        kind = event.tag.removeprefix(_CORE)
        value = text if kind == "str" else resolve(text)
        if kind != "str" and kind not in _TYPES:
            self._report(place, path, f"unknown tag {_shown(event.tag, path)}: only plain YAML types are known")
        elif kind != "str" and type(value) not in _TYPES[kind]:
            self._report(place, path, f"is not what its tag says: {_shown(event.tag, path)}")
        return Scalar(value=value, text=text, quoted=True, place=place)

    def _items(self, event: yaml.Event, path: Path, depth: int) -> _Part:
        place = self._collection(event, "seq", path)
        parts: list[_Part] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            parts.append(self._node(event, (*path, len(parts)), depth + 1, place))
        return _Part(
            node=Items(nodes=tuple(part.node for part in parts), place=place),
            size=1 + sum(part.size for part in parts),
            height=1 + max((part.height for part in parts), default=0),
        )

    def _mapping(self, event: yaml.Event, path: Path, depth: int) -> _Part:
        place = self._collection(event, "map", path)
        own: dict[str, Entry] = {}
        merged: list[Mapping] = []
        size, height = 1, 0
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key_place = self._place(event)
            key = self._key(event, path, depth)
            part = self._node(next(self._events), (*path, key or "?"), depth + 1, key_place)
            size, height = size + 1 + part.size, max(height, part.height)
            if key == "<<" and getattr(event, "style", None) in (None, ""):
                merged += self._merged(part.node, key_place, path)
            elif key is not None and key in own:
                first = own[key].key_place
                self._report(key_place, (*path, key), f"is defined twice; first at {first}")
            elif key is not None:
                own[key] = Entry(key_place=key_place, node=part.node)
        for other in merged:
            own = {**own, **{k: entry for k, entry in other.entries.items() if k not in own}}
        return _Part(node=Mapping(entries=own, place=place), size=size, height=1 + height)

    def _key(self, event: yaml.Event, path: Path, depth: int) -> str | None:
        place = self._place(event)
        node = self._node(event, path, depth + 1, place).node
        if isinstance(node, Scalar) and node.value is not None:
            return node.text
        self._report(place, path, "a name is text, not a list, a mapping or nothing")
        return None

    def _merged(self, node: Node, place: Place, path: Path) -> list[Mapping]:
        nodes = node.nodes if isinstance(node, Items) else (node,)
        mappings = [one for one in nodes if isinstance(one, Mapping)]
        if len(mappings) < len(nodes):
            self._report(place, (*path, "<<"), "expected a mapping, or a list of mappings")
        return mappings

    def _collection(self, event: yaml.Event, kind: str, path: Path) -> Place:
        place, tag = self._place(event), getattr(event, "tag", None)
        self._spend(1, place, path)
        if tag not in (None, "!", _CORE + kind):
            self._report(place, path, f"unknown tag {_shown(tag, path)}: only plain YAML types are known")
        return place

    def _spend(self, count: int, place: Place, path: Path) -> None:
        self._left -= count
        if self._left < 0:
            raise self._stop(place, path, f"more than {MOST_NODES} values, with aliases written out")

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        if mark is None:
            return Place(file=self._name, line=1, column=1)
        return Place(file=self._name, line=mark.line + 1, column=mark.column + 1)

    def _report(self, place: Place, path: Path, message: str) -> None:
        self.problems.append(problem_at(place, path, message))

    def _stop(self, place: Place, path: Path, message: str) -> PolicyError:
        return PolicyError([*self.problems, problem_at(place, path, message)])


EMPTY = "is empty: expected a mapping with version and providers"


def _decode(name: str, content: bytes) -> str:
    start = Place(file=name, line=1, column=1)
    if len(content) > LARGEST_POLICY:
        raise PolicyError([problem_at(start, (), f"is larger than {LARGEST_POLICY >> 20} MiB")])
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        raise PolicyError([problem_at(_after(name, before), (), "is not UTF-8 text")]) from error
    if bad := _UNPRINTABLE.search(text):
        message = f"a character that text may not have: U+{ord(bad[0]):04X}"
        raise PolicyError([problem_at(_after(name, text[: bad.start()]), (), message)])
    if not text.strip():
        raise PolicyError([problem_at(start, (), EMPTY)])
    return text


def _after(name: str, before: str) -> Place:
    lines = _LINE_END.split(before)
    return Place(file=name, line=len(lines), column=len(lines[-1]) + 1)


def _syntax(name: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    lines = _LINE_END.split(text)
    mark = error.problem_mark or error.context_mark
    line = min(mark.line, len(lines) - 1) if mark else 0
    column = min(mark.column, len(lines[line])) if mark else 0
    place = Place(file=name, line=line + 1, column=column + 1)
    if lines[line][column : column + 1] == "\t" or lines[line][:column].endswith("\t"):
        return problem_at(place, (), "a tab cannot indent or separate here: use spaces")
    words = ", ".join(part for part in (error.context, error.problem) if part)
    since = error.context_mark
    begun = f" (it begins in line {since.line + 1})" if since and since.line < line else ""
    return problem_at(place, (), f"is not YAML: {words}{begun}")


def _shown(mark: str, path: Path) -> str:
    """Returns a tag or an anchor for people; where a secret may stand it may be one that begins with its sign."""
    return mark[0] + "…" if secretive(path) and not mark.startswith(_CORE) else mark.replace(_CORE, "!!")[:64]
