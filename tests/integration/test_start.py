"""Starting: what stops a start, with which words, and what does not."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.caller import HOST, call
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, says
from tests.ports import free_port

GOOD = {"version": 1, "providers": {"alpha": {"base_url": "http://127.0.0.1:9/v1"}}}


def start(
    *arguments: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs `sponson run` to its end, which must come by itself."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "proxy", "run", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none", **(env or {})},
    )


def flags(policy: Path, *, listen: int | None = None, admin: int | None = None) -> list[str]:
    """Returns the flags of a start on free ports."""
    listen, admin = listen or free_port(), admin or free_port()
    return ["--policy", str(policy), "--listen", f"{HOST}:{listen}", "--admin", f"{HOST}:{admin}"]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text('version: 1\nproviders: {alpha: {base_url: "http://127.0.0.1:9/v1"}}\n')
    return path


def test_bad_policy_ends_with_2_and_all_its_problems(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "version: 1\n"
        "providers:\n"
        "  alpha: {base_ulr: http://x}\n"
        "  beta: {base_url: 'http://127.0.0.1:9/v1', limits: {concurrency: -1}}\n"
        "routes:\n"
        "  - {name: r, tiers: [{provider: nobody}]}\n"
    )
    result = start(*flags(path))
    assert result.returncode == 2
    for place in ("policy.yaml:3:", "policy.yaml:4:", "policy.yaml:6:"):
        assert place in result.stderr
    assert "base_url" in result.stderr
    assert "nobody" in result.stderr


@pytest.mark.parametrize(
    ("name", "words"), [("nothing.yaml", "no such file"), ("nowhere/p.yaml", "no such file"), (".", "no policy files")]
)
def test_absent_policy_ends_with_2_and_names_it(tmp_path: Path, name: str, words: str) -> None:
    result = start(*flags(tmp_path / name))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert str(tmp_path / name) in line
    assert words in line


@pytest.mark.parametrize("which", ["listen", "admin"])
@pytest.mark.parametrize("taken", [HOST, "::1", "0.0.0.0", "::"])
def test_taken_port_ends_with_2_and_the_cure(policy: Path, which: str, taken: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in taken else socket.AF_INET) as holder:
        if holder.family == socket.AF_INET6:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        holder.bind((taken, 0))
        holder.listen()
        port = holder.getsockname()[1]
        result = start(*flags(policy, **{which: port}))
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith(f"--{which}: cannot listen on {HOST}:{port}")
    assert ("(::1)" in line) is (":" in taken)
    assert "choose another port" in line


@pytest.mark.parametrize("admin", [f"{HOST}:{{port}}", "[::1]:{port}", ":{port}"])
def test_one_port_for_both_listeners_ends_with_2(policy: Path, admin: str) -> None:
    port = free_port()
    result = start("--policy", str(policy), "--listen", f"{HOST}:{port}", "--admin", admin.format(port=port))
    assert result.returncode == 2
    assert "--admin" in result.stderr
    assert str(port) in result.stderr
    assert "choose another port" in result.stderr or "a port of its own" in result.stderr


def test_too_few_files_end_with_2_and_the_cure(policy: Path) -> None:
    result = start(*flags(policy), prefix=("sh", "-c", 'ulimit -n 24 && exec "$@"', "sh"))
    assert result.returncode == 2
    assert "only 24 files may be open (ulimit -n); allow at least 64" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--polcy", "x"], "--policy"),
        (["--policy", "x", "--listen", "nowhere"], "nowhere"),
        (["--policy", "x", "--admin", "127.0.0.1:99999"], "99999"),
        (["--policy", "x", "extra"], "extra"),
    ],
)
def test_bad_flags_end_with_2_and_are_named(arguments: Sequence[str], words: str) -> None:
    result = start(*arguments)
    assert result.returncode == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPONSON_INSTANCE_INDEX", "first"),
        ("OTEL_TRACES_EXPORTER", "carrier-pigeon"),
        ("SPONSON_LINGER", "never"),
        ("SPONSON_ADMIN", "4001"),
    ],
)
def test_bad_environment_ends_with_2_and_is_named(policy: Path, variable: str, value: str) -> None:
    result = start("--policy", str(policy), env={"SPONSON_LISTEN": f"{HOST}:{free_port()}", variable: value})
    assert result.returncode == 2
    assert variable in result.stderr or value in result.stderr


@pytest.mark.parametrize("value", ["nonsense", "ftp://127.0.0.1:1", "127.0.0.1:4318"])
def test_malformed_address_of_a_collector_ends_with_2_and_is_named(policy: Path, value: str) -> None:
    result = start(*flags(policy), env={"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": value})
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"OTEL_EXPORTER_OTLP_ENDPOINT is '{value}'")


@pytest.mark.parametrize(
    ("content", "named"), [(None, "absent"), ("", "empty"), ("sk-a\nsk-b", "two"), (" \n", "blank")]
)
def test_secret_that_is_no_secret_ends_with_2_and_names_the_file(
    tmp_path: Path, content: str | None, named: str
) -> None:
    secret = tmp_path / f"{named}-secret"
    if content is not None:
        secret.write_text(content)
    path = tmp_path / "policy.yaml"
    path.write_text(
        f"version: 1\nproviders: {{a: {{base_url: 'http://127.0.0.1:9', keys: [{{id: k, file: {secret}}}]}}}}\n"
    )
    result = start(*flags(path))
    assert result.returncode == 2
    assert secret.name in result.stderr
    assert "sk-" not in result.stderr


@pytest.mark.parametrize("content", ["version: 1\n", "providers: [", None])
def test_failed_start_is_told_without_a_traceback(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "policy.yaml"
    if content is not None:
        path.write_text(content)
    result = start(*flags(path))
    assert result.returncode == 2
    assert "policy.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_absent_secret_variable_ends_with_2_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("version: 1\nproviders: {a: {base_url: 'http://127.0.0.1:9', keys: [{id: k, env: NOT_THERE}]}}\n")
    result = start(*flags(path))
    assert result.returncode == 2
    assert "NOT_THERE" in result.stderr


async def test_starts_while_every_provider_is_down() -> None:
    policy: dict[str, Any] = {"version": 1, "providers": {"alpha": {"timeouts": {"connect": "500ms"}}}}
    async with Lab(policy) as lab:
        lab["alpha"].refuse()
        assert (await lab.proxy.get("/readyz")).status == 200
        assert (await lab.proxy.get("/startupz")).status == 200
        answer = await lab.call("/alpha/v1/chat/completions", CHAT)
        assert (answer.status, answer.reason) == (502, "upstream_unreachable")
        await lab["alpha"].listen_again()
        lab["alpha"].script = says("hi")
        assert (await lab.call("/alpha/v1/chat/completions", CHAT)).status == 200


async def test_environment_stands_in_for_flags(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text('version: 1\nproviders: {alpha: {base_url: "http://127.0.0.1:9/v1"}}\n')
    data, admin = free_port(), free_port()
    environ = {
        "SPONSON_POLICY": str(path),
        "SPONSON_LISTEN": f"{HOST}:{data}",
        "SPONSON_ADMIN": f"{HOST}:{admin}",
        "SPONSON_LINGER": "0s",
        "OTEL_SDK_DISABLED": "true",
    }
    process = subprocess.Popen([sys.executable, "-m", "proxy", "run"], env=environ, stderr=subprocess.DEVNULL)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    if (await call(admin, "/readyz", method="GET")).status == 200:
                        break
                except OSError:
                    await asyncio.sleep(0.05)
        assert (await call(data, "/sponson/x", CHAT)).reason == "no_route"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 10) == 0
    finally:
        process.kill()
        process.wait()
