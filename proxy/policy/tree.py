"""The YAML tree: values with the places where they were written, and how to find them by path.

Aliases share their node, so a place may belong to several paths. Knows no schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.policy.problem import Path, Place

ScalarValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A single value; `text` is how it was written, without its quotes."""

    value: ScalarValue
    text: str
    quoted: bool
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    nodes: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name of a mapping: where the name stands, and its value."""

    key_place: Place
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Names and values, in the order of the file."""

    entries: dict[str, Entry]
    place: Place


Node = Scalar | Items | Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A node with its path; `key_place` is the place of its name, or of the value itself in a list."""

    path: Path
    key_place: Place
    node: Node


def plain(node: Node) -> object:
    """Returns the tree as dictionaries, lists and scalars."""
    match node:
        case Scalar(value=value):
            return value
        case Items(nodes=nodes):
            return [plain(item) for item in nodes]
        case Mapping(entries=entries):
            return {name: plain(entry.node) for name, entry in entries.items()}


def children(found: Found) -> Iterator[Found]:
    """All that stands directly in a mapping or list; nothing for a scalar."""
    match found.node:
        case Mapping(entries=entries):
            for name, entry in entries.items():
                yield Found(path=(*found.path, name), key_place=entry.key_place, node=entry.node)
        case Items(nodes=nodes):
            for number, node in enumerate(nodes):
                yield Found(path=(*found.path, number), key_place=node.place, node=node)
        case Scalar():
            return


def child(found: Found, part: str | int) -> Found | None:
    """Returns what has this name or list position, None where nothing has."""
    match found.node, part:
        case Mapping(entries=entries), str() if part in entries:
            entry = entries[part]
            return Found(path=(*found.path, part), key_place=entry.key_place, node=entry.node)
        case Items(nodes=nodes), int() if 0 <= part < len(nodes):
            return Found(path=(*found.path, part), key_place=nodes[part].place, node=nodes[part])
        case _:
            return None


def top(root: Node) -> Found:
    """Returns the root as something found."""
    return Found(path=(), key_place=root.place, node=root)


def deepest(root: Node, path: Path) -> Found:
    """Returns what stands at `path`, or the last thing on the way to it."""
    found = top(root)
    for part in path:
        below = child(found, part)
        if below is None:
            return found
        found = below
    return found


def select(root: Node | Found, pattern: str) -> Iterator[Found]:
    """All that matches a dotted pattern: names, `*` for any name, `[]` for any list position."""
    found = root if isinstance(root, Found) else top(root)
    first, _, rest = pattern.partition(".")
    for below in _step(found, first):
        if rest:
            yield from select(below, rest)
        else:
            yield below


def text_at(found: Found, pattern: str) -> str | None:
    """Returns the text at a pattern without wildcards, None where there is no text."""
    for below in select(found, pattern):
        if isinstance(below.node, Scalar) and isinstance(below.node.value, str):
            return below.node.value
    return None


def _step(found: Found, part: str) -> Iterator[Found]:
    if (part == "*" and isinstance(found.node, Mapping)) or (part == "[]" and isinstance(found.node, Items)):
        yield from children(found)
    elif (below := child(found, part)) is not None:
        yield below
