"""Parsed source files, and what the rules ask about them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One parsed file: its dotted name (a package's without `__init__`) and its path from the root."""

    module: str
    path: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A broken rule and its place."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def parse(path: str, text: str) -> Source:
    """The source of a file; `path` is relative to the root, with `/`."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return Source(module=module, path=path, text=text, tree=ast.parse(text, path))


def read_tree(root: Path, *packages: str) -> list[Source]:
    """Every source file of these packages, ordered by path."""
    files = sorted(chain.from_iterable((root / package).rglob("*.py") for package in packages))
    return [parse(file.relative_to(root).as_posix(), file.read_text("utf-8")) for file in files]


def imports(source: Source, known: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import; `from a import b` is `a.b` where that is a known module."""
    package = source.module if source.is_package else source.module.rpartition(".")[0]
    for node in ast.walk(source.tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=name, names=names, level=level):
                base = _base(package, name, level)
                for alias in names:
                    inner = f"{base}.{alias.name}"
                    yield node.lineno, inner if inner in known else base


def _base(package: str, name: str | None, level: int) -> str:
    if not level:
        return name or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) + 1 - level], *([name] if name else [])])


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every function with its qualified name."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield prefix + child.name, child
                yield from functions(child, f"{prefix}{child.name}.")
            case ast.ClassDef():
                yield from functions(child, f"{prefix}{child.name}.")
            case _:
                yield from functions(child, prefix)


def code_lines(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    match function.body[0]:
        case ast.Expr(value=ast.Constant(value=str())) as docstring:
            return total - ((docstring.end_lineno or 0) - docstring.lineno + 1)
        case _:
            return total


def positional_parameters(function: Function) -> int:
    """Parameters that can be given by place; `self` and `cls` do not count."""
    names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))
