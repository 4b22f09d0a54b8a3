"""The tree keeps to the architecture, and the rules that say so catch what breaks it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.architecture.imports import aiohttp_problems, import_problems, purity_problems
from tests.architecture.rooms import ROOMS, room_of
from tests.architecture.shape import (
    docstring_problems,
    mirror,
    mirror_problems,
    size_problems,
    state_problems,
)
from tests.architecture.source import Problem, Source, parse, read_tree

ROOT = Path(__file__).parent.parent

# Excuses. Each names a file that exists and says why; a stale one fails.
UNMIRRORED: dict[str, str] = {}
LONG: dict[str, str] = {}
STATE = {"proxy/tasks.py": "asyncio keeps only weak references to tasks: somebody must hold them"}


@pytest.fixture(scope="module")
def product() -> list[Source]:
    return read_tree(ROOT, "proxy", "otel")


@pytest.fixture(scope="module")
def tests() -> list[Source]:
    return read_tree(ROOT, "tests")


def report(problems: Iterable[Problem]) -> None:
    """Fails with all the problems, a line each."""
    if lines := [str(problem) for problem in sorted(set(problems))]:
        pytest.fail("\n".join([f"{len(lines)} against the architecture:", *lines]), pytrace=False)


def test_imports_follow_the_table_of_rooms(product: list[Source]) -> None:
    known = frozenset(source.module for source in product)
    report(problem for source in product for problem in import_problems(source, known))


def test_decisions_never_await(product: list[Source]) -> None:
    report(problem for source in product for problem in purity_problems(source))


def test_only_the_dialer_knows_private_aiohttp(product: list[Source]) -> None:
    report(problem for source in product for problem in aiohttp_problems(source))


def test_files_and_functions_are_short(product: list[Source], tests: list[Source]) -> None:
    report(problem for source in [*product, *tests] for problem in size_problems(source, long=LONG))


def test_packages_begin_with_a_map(product: list[Source], tests: list[Source]) -> None:
    report(problem for source in product for problem in docstring_problems(source))
    folders = {Path(source.path).parent for source in [*product, *tests]}
    packages = {Path(source.path).parent for source in [*product, *tests] if source.is_package}
    assert folders - packages == set(), "folders with modules and no __init__.py"


def test_modules_hold_no_state(product: list[Source]) -> None:
    report(p for source in product if source.path not in STATE for p in state_problems(source))


def test_every_file_of_a_mirrored_room_has_its_test(product: list[Source], tests: list[Source]) -> None:
    paths = frozenset(source.path for source in tests)
    report(p for source in product for p in mirror_problems(source, paths, unmirrored=UNMIRRORED))


def test_no_excuse_is_stale(product: list[Source], tests: list[Source]) -> None:
    def paths(problems: Iterable[Problem]) -> set[str]:
        return {problem.path for problem in problems}

    mirrors = frozenset(source.path for source in tests)
    needed = paths(p for s in product for p in mirror_problems(s, mirrors, unmirrored=()))
    long = paths(p for s in [*product, *tests] for p in size_problems(s))
    state = paths(p for s in product for p in state_problems(s))
    assert set(UNMIRRORED) <= needed
    assert {path.partition(":")[0] for path in LONG} <= long
    assert set(STATE) <= state


# The rules themselves, on samples.

KNOWN = frozenset({"proxy.clock", "proxy.stages.retry", "proxy.decisions.keys", "proxy.runtime.assembly"})


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("proxy/outcome.py", "import orjson"),
        ("proxy/outcome.py", "from proxy.decisions import breaker"),
        ("proxy/dialects/openai.py", "import pydantic"),
        ("proxy/decisions/breaker.py", "import asyncio"),
        ("proxy/decisions/breaker.py", "import logging"),
        ("proxy/decisions/breaker.py", "from time import monotonic"),
        ("proxy/decisions/breaker.py", "import random"),
        ("proxy/decisions/breaker.py", "from os import environ"),
        ("proxy/decisions/breaker.py", "from proxy.clock import Clock"),
        ("proxy/decisions/breaker.py", "from proxy.decisions.keys import Keys"),
        ("proxy/decisions/breaker.py", "from proxy.decisions import keys"),
        ("proxy/decisions/breaker.py", "from . import keys"),
        ("proxy/decisions/breaker.py", "from ..stages import retry"),
        ("proxy/stages/breaker.py", "import aiohttp"),
        ("proxy/stages/breaker.py", "import yaml"),
        ("proxy/stages/breaker.py", "from proxy.stages.retry import RetryStage"),
        ("proxy/stages/breaker.py", "from proxy.policy.snapshot import PolicySnapshot"),
        ("proxy/stages/breaker.py", "if TYPE_CHECKING:\n    from proxy.upstream.wire import Wire"),
        ("proxy/upstream/transport.py", "from proxy.downstream.reply import Reply"),
        ("proxy/upstream/transport.py", "import proxy.decisions.breaker"),
        ("proxy/store/sqlite.py", "from proxy.fleet import leases"),
        ("proxy/fleet/dns.py", "from proxy.decisions.keys import Keys"),
        ("proxy/policy/load.py", "from proxy.store import sqlite"),
        ("proxy/client/batch.py", "from proxy.exchange import Exchange"),
        ("proxy/runtime/assembly.py", "from proxy.simulation import provider"),
        ("proxy/runtime/assembly.py", "from proxy.cli import run"),
        ("proxy/runtime/assembly.py", "import otel"),
        ("proxy/runtime/assembly.py", "from opentelemetry import trace"),
        ("proxy/simulation/clock.py", "from proxy.cli.run import run"),
        ("proxy/exchange.py", "from tests.fakes import FakeClock"),
        ("otel/spans.py", "from proxy.runtime import assembly"),
        ("proxy/unheard_of.py", ""),
    ],
)
def test_a_forbidden_import_is_a_problem(path: str, line: str) -> None:
    assert list(import_problems(parse(path, line), KNOWN))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("proxy/outcome.py", "from proxy import clock"),
        ("proxy/dialects/openai.py", "import orjson"),
        ("proxy/decisions/admission.py", "from proxy.decisions.keys import Keys"),
        ("proxy/decisions/admission.py", "from proxy.decisions import keys"),
        ("proxy/decisions/deadline.py", "from proxy.exchange import PhaseLimits"),
        ("proxy/stages/breaker.py", "import asyncio\nfrom proxy.decisions.breaker import Breaker"),
        ("proxy/upstream/transport.py", "import aiohttp\nfrom proxy.upstream.wire import Wire"),
        ("proxy/fleet/static.py", "from proxy.decisions.shares import apportion"),
        ("proxy/policy/schema.py", "import pydantic, yaml\nfrom proxy.decisions.breaker import Settings"),
        ("proxy/cli/run.py", "import click, otel.setup\nfrom proxy.runtime.assembly import assemble"),
        ("otel/spans.py", "from opentelemetry import trace\nfrom proxy.observer import Observer"),
    ],
)
def test_an_allowed_import_is_none(path: str, line: str) -> None:
    assert list(import_problems(parse(path, line), KNOWN)) == []


def test_a_room_is_the_innermost_one() -> None:
    assert room_of("proxy.decisions.breaker") == "proxy.decisions"
    assert room_of("proxy.simulation.provider.server") == "proxy.simulation"
    assert room_of("proxy") == "proxy"
    assert room_of("proxy.clockwork") is None
    assert all(room_of(name) == name for name in ROOMS)


@pytest.mark.parametrize(
    "code",
    [
        "async def f(): ...",
        "async def f():\n    async with x: pass",
        "class A:\n    async def f(self): await x",
    ],
)
def test_an_await_in_a_decision_is_a_problem(code: str) -> None:
    assert list(purity_problems(parse("proxy/decisions/breaker.py", code)))
    assert list(purity_problems(parse("proxy/stages/breaker.py", code))) == []


@pytest.mark.parametrize(
    "code",
    [
        "from aiohttp.client_proto import ResponseHandler",
        "from aiohttp import client_reqrep",
        "import aiohttp.http_parser",
        "import aiohttp\naiohttp.streams.StreamReader",
        "from aiohttp.web import _run_app",
    ],
)
def test_private_aiohttp_is_a_problem_outside_the_dialer(code: str) -> None:
    assert list(aiohttp_problems(parse("proxy/upstream/transport.py", code)))
    assert list(aiohttp_problems(parse("proxy/upstream/dialer.py", code))) == []


def test_public_aiohttp_is_none() -> None:
    code = "import aiohttp\nfrom aiohttp import web, ClientError\naiohttp.ClientTimeout"
    assert list(aiohttp_problems(parse("proxy/upstream/transport.py", code))) == []


def test_sizes_are_measured_without_docstrings() -> None:
    body = "    x = 1\n" * 39
    fits = f'def f(a, b, c, d, e, f, *, g):\n    """A\n    B\n    """\n{body}'
    assert list(size_problems(parse("proxy/a.py", fits))) == []
    assert len(list(size_problems(parse("proxy/a.py", fits + "    x = 2\n")))) == 1
    assert len(list(size_problems(parse("proxy/a.py", "def f(a, b, c, d, e, f, g): ...")))) == 1
    assert list(size_problems(parse("proxy/a.py", "class A:\n    def f(self, a, b, c, d, e, f): ..."))) == []
    assert len(list(size_problems(parse("proxy/a.py", "x = 1\n" * 301)))) == 1
    nested = "class A:\n    def f(self):\n" + "        x = 1\n" * 40
    assert len(list(size_problems(parse("proxy/a.py", nested)))) == 1
    assert list(size_problems(parse("proxy/a.py", nested), long={"proxy/a.py:A.f": "why"})) == []


def test_a_package_without_a_map_is_a_problem() -> None:
    assert list(docstring_problems(parse("proxy/__init__.py", "x = 1")))
    assert list(docstring_problems(parse("proxy/__init__.py", '"""The map."""'))) == []


@pytest.mark.parametrize("code", ["x = {}", "x: dict[str, int] = {}", "x = []", "x = set()", "x = deque()"])
def test_an_empty_container_of_a_module_is_a_problem(code: str) -> None:
    assert list(state_problems(parse("proxy/a.py", code)))
    assert list(state_problems(parse("proxy/a.py", f"def f():\n    {code}"))) == []


def test_the_mirror_of_a_file() -> None:
    assert mirror(parse("proxy/decisions/breaker.py", "")) == "tests/decisions/test_breaker.py"
    assert mirror(parse("proxy/clock.py", "")) == "tests/test_clock.py"
    assert mirror(parse("otel/spans.py", "")) == "tests/otel/test_spans.py"
    source = parse("proxy/decisions/breaker.py", "")
    assert list(mirror_problems(source, set(), unmirrored=()))
    assert list(mirror_problems(source, {mirror(source)}, unmirrored=())) == []
    assert list(mirror_problems(source, set(), unmirrored={source.path})) == []
