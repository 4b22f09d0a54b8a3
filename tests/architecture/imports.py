"""Rules about what a file touches."""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Iterator

import aiohttp

from tests.architecture.rooms import EDGES, LIBRARY_HOMES, ROOMS, WIRE, room_of, within
from tests.architecture.source import Problem, Source, imports

_PUBLIC_AIOHTTP = frozenset({"abc", "hdrs", "test_utils", "typedefs", "web"})
_PRIVATE_AIOHTTP = frozenset(m.name for m in pkgutil.iter_modules(aiohttp.__path__)) - _PUBLIC_AIOHTTP


def import_problems(source: Source, known: frozenset[str]) -> Iterator[Problem]:
    """What the file imports against the table of rooms; `known` are the modules of the tree."""
    room = room_of(source.module)
    if room is None:
        yield Problem(source.path, 1, f"{source.module} stands in no room of tests/architecture/rooms.py")
        return
    for line, target in sorted(set(imports(source, known))):
        if reason := _refusal(source.module, room, target):
            yield Problem(source.path, line, f"{source.module} imports {target}: {reason}")


def _refusal(module: str, name: str, target: str) -> str | None:
    room, top = ROOMS[name], target.partition(".")[0]
    if top in {"proxy", "otel", "tests"}:
        allowed = within(target, *room.may) or (module, target) in EDGES
        return None if allowed else f"not among what {name} may touch"
    if top in sys.stdlib_module_names:
        return f"{name} is pure" if top in room.never else None
    if room.libraries is not None:
        return None if top in room.libraries else f"{name} does without this library"
    homes = LIBRARY_HOMES.get(top)
    return None if homes is None or within(module, *homes) else f"at home only in {', '.join(homes)}"


def purity_problems(source: Source) -> Iterator[Problem]:
    """Decisions are synchronous."""
    if within(source.module, "proxy.decisions"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                yield Problem(source.path, node.lineno, "a decision never awaits")


def aiohttp_problems(source: Source) -> Iterator[Problem]:
    """What is not public in aiohttp is known in the dialer only."""
    if source.module in WIRE:
        return
    for node in ast.walk(source.tree):
        for line, name in _aiohttp_names(node):
            parts = name.split(".")[1:]
            if parts and (parts[0] in _PRIVATE_AIOHTTP or any(part.startswith("_") for part in parts)):
                yield Problem(source.path, line, f"{name} is not public: it belongs in the dialer")


def _aiohttp_names(node: ast.AST) -> list[tuple[int, str]]:
    match node:
        case ast.Import(names=names):
            return [(node.lineno, alias.name) for alias in names if within(alias.name, "aiohttp")]
        case ast.ImportFrom(module=str(base), names=names, level=0) if within(base, "aiohttp"):
            return [(node.lineno, f"{base}.{alias.name}") for alias in names]
        case ast.Attribute(value=ast.Name(id="aiohttp"), attr=attr):
            return [(node.lineno, f"aiohttp.{attr}")]
        case _:
            return []
