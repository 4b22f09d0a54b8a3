"""Secrets in the wrong place stop a start, or a command, without being repeated; a dead collector's are not told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proxy.cli.check import command as check
from proxy.cli.diff import command as diff
from tests.integration.harness import Lab, ProxyProcess
from tests.integration.leaks.marks import ENVIRONMENT, found, mark
from tests.integration.leaks.policies import SPOILED, UNREADABLE, mistaken
from tests.otel.sink import dead_collector

ALPHA: dict[str, Any] = {"base_url": "https://provider.test/v1", "query": {"code": mark("old")}}


def written(folder: Path, name: str, **provider: Any) -> str:
    """Writes a policy with one provider; returns its path."""
    path = folder / name
    path.write_text(json.dumps({"version": 1, "providers": {"alpha": {**ALPHA, **provider}}}))
    return str(path)


def said(command: Any, *arguments: str, code: int) -> bytes:
    """Runs a command, which must end with this code; returns all that it says."""
    result = CliRunner().invoke(command, arguments, env=ENVIRONMENT)
    assert result.exit_code == code, result.output
    return result.output.encode()


@pytest.mark.parametrize("text", [mistaken(), *UNREADABLE.values()], ids=["mistakes", *UNREADABLE])
def test_check_repeats_no_secret_that_slipped(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    assert found(said(check, str(tmp_path / "p.yaml"), code=1)) == []


@pytest.mark.parametrize("content", SPOILED)
def test_check_repeats_nothing_of_a_spoiled_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    path = written(tmp_path, "p.yaml", keys=[{"id": "a", "file": str(tmp_path / "key")}])
    told = said(check, path, "--secrets", code=1)
    assert str(tmp_path / "key").encode() in told
    assert found(told) == []


def test_diff_tells_that_values_differ_and_not_what_they_are(tmp_path: Path) -> None:
    old = written(tmp_path, "old.yaml", headers={"x-team": mark("old")})
    new = written(tmp_path, "new.yaml", headers={"x-team": mark("new")}, query={"code": mark("new")})
    told = said(diff, old, new, code=0)
    assert b"another value" in told
    assert found(told) == []


async def test_a_start_with_a_spoiled_file_is_refused_without_its_content(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SPOILED[0])
    keys = [{"id": "a", "file": str(tmp_path / "key")}, {"id": "b", "env": "NO_SUCH_KEY"}]
    policy = {"version": 1, "providers": {"alpha": {**ALPHA, "keys": keys}}}
    with ProxyProcess(policy, env=ENVIRONMENT).spawned() as proxy:
        assert await proxy.exited(within=20) == 2
        log = proxy.log()
        assert "NO_SUCH_KEY" in log
        assert found(log.encode()) == []


@pytest.mark.parametrize("log_format", ["json", "text"])
async def test_the_address_of_a_dead_collector_is_not_told(log_format: str) -> None:
    address = dead_collector().removeprefix("http://")
    url = f"http://me:{mark('account')}@{address}/{mark('path')}?key={mark('query')}"
    env = {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", "OTEL_BSP_SCHEDULE_DELAY": "20"}
    env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRIC_EXPORT_INTERVAL": "100"}
    async with Lab(
        {"version": 1, "providers": {"alpha": {}}}, env=ENVIRONMENT | env | {"SPONSON_LOG_FORMAT": log_format}
    ) as lab:
        await lab.call()
        lab.proxy.process.terminate()
        assert await lab.proxy.exited(within=20) == 0
        assert "rror" in lab.proxy.log()
        assert found(lab.proxy.log().encode()) == []


@pytest.mark.parametrize(
    "mistake",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": f"grpc://me:{mark('account')}@collector.test"},
        {"OTEL_EXPORTER_OTLP_HEADERS": f"authorization Bearer {mark('collector')}"},
    ],
    ids=["address", "headers"],
)
async def test_a_mistake_in_what_the_exporter_needs_is_told_without_it(mistake: dict[str, str]) -> None:
    policy = {"version": 1, "providers": {"alpha": {"base_url": "https://provider.test/v1"}}}
    with ProxyProcess(policy, env={"OTEL_TRACES_EXPORTER": "otlp", **mistake}).spawned() as proxy:
        assert await proxy.exited(within=20) == 2
        assert next(iter(mistake)) in proxy.log()
        assert found(proxy.log().encode()) == []
