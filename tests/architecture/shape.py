"""Rules about the shape of files: sizes, docstrings, mirrored tests, state."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from tests.architecture.rooms import within
from tests.architecture.source import Problem, Source, code_lines, functions, positional_parameters

FILE_LINES = 300
FUNCTION_LINES = 40
POSITIONAL_PARAMETERS = 6

# Where a file without its own test is a failure; elsewhere integration tests may be the better place.
MIRRORED = ("proxy.decisions", "proxy.dialects", "proxy.policy", "proxy.stages", "otel")


def size_problems(source: Source, *, long: Collection[str] = ()) -> Iterator[Problem]:
    """What is too long: files, functions, parameter lists; `long` excuses a `path` or `path:function`."""
    lines = source.text.count("\n")
    if lines > FILE_LINES and source.path not in long:
        yield Problem(source.path, 1, f"{lines} lines, at most {FILE_LINES}")
    for name, function in functions(source.tree):
        length, count = code_lines(function), positional_parameters(function)
        if length > FUNCTION_LINES and f"{source.path}:{name}" not in long:
            yield Problem(source.path, function.lineno, f"{name}: {length} lines, at most {FUNCTION_LINES}")
        if count > POSITIONAL_PARAMETERS:
            most = f"at most {POSITIONAL_PARAMETERS}"
            yield Problem(source.path, function.lineno, f"{name}: {count} positional parameters, {most}")


def docstring_problems(source: Source) -> Iterator[Problem]:
    """Every package begins with its map."""
    if source.is_package and not ast.get_docstring(source.tree):
        yield Problem(source.path, 1, "a package begins with a docstring that maps it")


def state_problems(source: Source) -> Iterator[Problem]:
    """An empty container at module level waits for something to be put in: state that everybody shares."""
    for node in source.tree.body:
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=value) if _is_empty_container(value):
                yield Problem(source.path, node.lineno, "mutable state of a module")


def _is_empty_container(value: ast.expr | None) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id="list" | "dict" | "set"), args=[], keywords=[]):
            return True
        case ast.Call(func=ast.Name(id="defaultdict" | "deque" | "OrderedDict" | "Counter")):
            return True
        case _:
            return False


def mirror(source: Source) -> str:
    """Path of the test that mirrors the file: proxy/a/b.py → tests/a/test_b.py."""
    folder, _, name = source.path.rpartition("/")
    place = "/".join(["tests", *folder.split("/")]).replace("tests/proxy", "tests", 1)
    return f"{place}/test_{name}"


def mirror_problems(source: Source, tests: Collection[str], *, unmirrored: Collection[str]) -> Iterator[Problem]:
    """A file of a mirrored room without its test; package maps have none."""
    if source.is_package or not within(source.module, *MIRRORED) or source.path in unmirrored:
        return
    if (expected := mirror(source)) not in tests:
        yield Problem(source.path, 1, f"has no test {expected}")
