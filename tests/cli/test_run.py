from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from proxy.cli.run import NOT_YET, Duration, _settings, command
from tests.ports import free_port

POLICY = "version: 1\nproviders:\n  a: {base_url: 'http://127.0.0.1:9'}\n"


def refused(*arguments: str, env: dict[str, str] | None = None) -> str:
    """What is said when it does not start; nothing runs."""
    result = CliRunner().invoke(command, arguments, env=env)
    assert result.exit_code == 2, result.output
    return result.output


def settings_of(*arguments: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with command.make_context("run", list(arguments)) as context:
        return _settings(context.params)


def test_a_policy_is_required() -> None:
    assert "--policy" in refused()


@pytest.mark.parametrize("flag", ["--listen", "--admin"])
@pytest.mark.parametrize("text", ["4000", "localhost", "127.0.0.1:http", "127.0.0.1:70000"])
def test_a_bad_address_is_refused_with_the_cure(flag: str, text: str) -> None:
    said = refused("--policy", "p.yaml", flag, text)
    assert f"{flag} (SPONSON_{flag[2:].upper()}): '{text}' is no address; write HOST:PORT" in said
    assert "for example 127.0.0.1:4000" in said


@pytest.mark.parametrize("flag", ["--linger", "--drain"])
@pytest.mark.parametrize("text", ["fast", "-1s", "5 s", "1e3", "", "5S", "1d"])
def test_a_bad_duration_is_refused_with_the_cure(flag: str, text: str) -> None:
    said = refused("--policy", "p.yaml", f"{flag}={text}")
    assert f"'{flag}'" in said
    assert f"'{text}' is no duration; write for example 250ms, 5s or 2m" in said


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("5s", 5.0), (" 1.5s ", 1.5), ("10m", 600.0), ("1h", 3600.0), ("7", 7.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


def test_an_unknown_flag_is_refused_with_the_nearest_one() -> None:
    said = refused("--policy", "p.yaml", "--lisen", "127.0.0.1:1")
    assert "No such option" in said
    assert "--listen" in said


def test_a_bad_choice_is_refused_with_the_choices() -> None:
    said = refused("--policy", "p.yaml", "--log-format", "xml")
    assert "text" in said
    assert "json" in said


def test_a_bad_instance_index_is_refused_and_named() -> None:
    said = refused("--policy", "p.yaml", env={"SPONSON_INSTANCE_INDEX": "first"})
    assert "SPONSON_INSTANCE_INDEX is 'first'" in said


@pytest.mark.parametrize("flag", NOT_YET)
def test_a_flag_that_is_not_built_yet_is_refused_by_name(flag: str) -> None:
    assert f"{flag} " in refused("--policy", "p.yaml", flag, "x")
    variable = "SPONSON_" + flag.strip("-").replace("-", "_").upper()
    assert "not supported yet" in refused("--policy", "p.yaml", env={variable: "x"})


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("SPONSON_POLICY", "/etc/p.yaml", "policy", Path("/etc/p.yaml")),
        ("SPONSON_LISTEN", "[::1]:1", "listen", "[::1]:1"),
        ("SPONSON_ADMIN", "127.0.0.1:2", "admin", "127.0.0.1:2"),
        ("SPONSON_FORWARD", "127.0.0.1:3", "forward", "127.0.0.1:3"),
        ("SPONSON_LINGER", "0", "linger_seconds", 0.0),
        ("SPONSON_DRAIN", "1m", "drain_seconds", 60.0),
        ("SPONSON_STATE_DIR", "/var/s", "state_dir", Path("/var/s")),
        ("SPONSON_LOG_FORMAT", "text", "log_format", "text"),
    ],
)
def test_every_flag_has_its_variable(
    variable: str, text: str, name: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"SPONSON_POLICY": "p.yaml", variable: text}
    assert getattr(settings_of(env=env, monkeypatch=monkeypatch), name) == value


def test_a_flag_wins_over_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"SPONSON_POLICY": "p.yaml", "SPONSON_LISTEN": "127.0.0.1:1"}
    found = settings_of("--listen", "127.0.0.1:2", env=env, monkeypatch=monkeypatch)
    assert found.listen == "127.0.0.1:2"


def test_a_bad_variable_is_refused_like_a_bad_flag() -> None:
    said = refused(env={"SPONSON_POLICY": "p.yaml", "SPONSON_DRAIN": "soon"})
    assert "'soon' is no duration" in said


def test_the_environment_is_not_shown_where_settings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings_of(env={"SPONSON_POLICY": "p.yaml", "A_KEY": "sk-secret"}, monkeypatch=monkeypatch)
    assert found.environ["A_KEY"] == "sk-secret"
    assert "sk-secret" not in repr(found)


def test_help_names_every_flag_that_works_and_none_that_does_not() -> None:
    result = CliRunner().invoke(command, ["--help"])
    for param in command.params:
        assert isinstance(param, click.Option)
        assert (param.opts[0] in result.output) is (param.opts[0] not in NOT_YET)


def started(tmp_path: Path, **variables: str) -> subprocess.Popen[bytes]:
    environ = os.environ | {"OTEL_SDK_DISABLED": "true", "SPONSON_LINGER": "0"} | variables
    with (tmp_path / "log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "proxy", "run"], env=environ, stdout=log, stderr=log)


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_the_variables_alone_start_it_and_sigterm_ends_it_with_0(tmp_path: Path) -> None:
    path, admin = tmp_path / "p.yaml", free_port()
    path.write_text(POLICY)
    process = started(
        tmp_path,
        SPONSON_POLICY=str(path),
        SPONSON_LISTEN=f"127.0.0.1:{free_port()}",
        SPONSON_ADMIN=f"127.0.0.1:{admin}",
    )
    try:
        end = time.monotonic() + 40
        while not ready(admin) and time.monotonic() < end and process.poll() is None:
            time.sleep(0.05)
        assert ready(admin), (tmp_path / "log").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()


def test_a_policy_that_cannot_be_read_ends_it_with_2_and_is_named(tmp_path: Path) -> None:
    process = started(tmp_path, SPONSON_POLICY=str(tmp_path / "nope.yaml"), SPONSON_LISTEN="127.0.0.1:0")
    try:
        assert process.wait(40) == 2
    finally:
        process.kill()
        process.wait()
    assert "nope.yaml" in (tmp_path / "log").read_text()
