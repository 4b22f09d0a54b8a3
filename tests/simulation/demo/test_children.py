"""The processes of the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.simulation.demo.children import Children, child_environment
from proxy.simulation.demo.problem import CANNOT_START, FAILED, DemoProblem


async def never() -> bool:
    return False


async def at_once() -> bool:
    return True


def test_children_are_not_configured_by_the_environment() -> None:
    given = {"PATH": "/bin", "SPONSON_POLICY": "other.yaml", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "x"}
    found = child_environment(given)
    assert found["PATH"] == "/bin"
    assert found["OTEL_TRACES_EXPORTER"] == found["OTEL_METRICS_EXPORTER"] == found["OTEL_LOGS_EXPORTER"] == "none"
    assert not {"SPONSON_POLICY", "OTEL_SDK_DISABLED"} & set(found)


async def test_a_process_that_ends_before_it_is_ready_is_a_problem_with_its_log(tmp_path: Path) -> None:
    async with Children(tmp_path, {}) as children:
        child = await children.start("The proxy", "run", "--unheard-of", log="log")
        with pytest.raises(DemoProblem, match="The proxy ended with exit code 2") as caught:
            await children.until_ready(child, never)
    assert caught.value.code == CANNOT_START
    assert "--unheard-of" in caught.value.log


async def test_a_process_that_ends_later_is_a_problem_too(tmp_path: Path) -> None:
    async with Children(tmp_path, {}) as children:
        child = await children.start("The proxy", "schema", log="log")
        await children.until_ready(child, at_once)
        problem = await children.until_one_ends()
    assert str(problem) == "The proxy ended with exit code 0"
    assert problem.code == FAILED


async def test_all_have_ended_when_the_block_has(tmp_path: Path) -> None:
    async with Children(tmp_path, {}) as children:
        child = await children.start("Simulator", "sim", "--listen", "127.0.0.1:0", log="log")
        assert child.process.returncode is None
    assert child.process.returncode is not None
