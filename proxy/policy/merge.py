"""Several files → one policy: what is below top-level names merges by name, routes follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.policy.problem import Path, Problem, problem_at
from proxy.policy.tree import Entry, Items, Mapping, Node, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The policy of all files, and the names that two of them define."""

    root: Node
    problems: tuple[Problem, ...]


def merge(roots: Sequence[Node]) -> Merged:
    """Returns one tree of the files' trees, in their order.

    `version` may stand in each file, with the same value; everything else only once.
    """
    first, *others = roots
    problems: list[Problem] = []
    for other in others:
        if isinstance(first, Mapping) and isinstance(other, Mapping):
            first = _join(first, other, (), problems)
        else:
            wrong = other if isinstance(first, Mapping) else first
            problems.append(problem_at(wrong.place, (), "expected a mapping with version and providers"))
    return Merged(root=first, problems=tuple(problems))


def _join(first: Mapping, second: Mapping, path: Path, problems: list[Problem]) -> Mapping:
    entries = dict(first.entries)
    for name, entry in second.entries.items():
        known, below = entries.get(name), (*path, name)
        if known is None:
            entries[name] = entry
        elif (joined := None if path else _below(known, entry, below, problems)) is not None:
            entries[name] = Entry(key_place=known.key_place, node=joined)
        else:
            message = f"is defined twice; first at {known.key_place}"
            problems.append(problem_at(entry.key_place, below, message))
    return Mapping(entries=entries, place=first.place)


def _below(first: Entry, second: Entry, path: Path, problems: list[Problem]) -> Node | None:
    match first.node, second.node:
        case Mapping() as one, Mapping() as other:
            return _join(one, other, path, problems)
        case Items() as one, Items() as other if path == ("routes",):
            return Items(nodes=one.nodes + other.nodes, place=one.place)
        case Scalar() as one, Scalar() as other if path == ("version",) and one.value == other.value:
            return one
        case _:
            return None
