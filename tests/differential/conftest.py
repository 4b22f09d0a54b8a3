"""One event loop and one product for all examples of a module: starting them costs more than they do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from tests.differential.line import Line


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@pytest.fixture(scope="module")
def line(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    line = Line(tmp_path_factory.mktemp("line"))
    runner.run(line.start())
    yield line
    runner.run(line.stop())
