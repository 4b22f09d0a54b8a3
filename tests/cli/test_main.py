from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner

from proxy.cli.main import COMMANDS, LazyGroup, main


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_with_what_it_does(flag: str) -> None:
    result = CliRunner().invoke(main, [flag])
    assert result.exit_code == 0
    for name, meaning in COMMANDS.items():
        line = next(line for line in result.output.splitlines() if line.split()[:1] == [name])
        assert line.strip().endswith(meaning)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_is_there_and_has_help(name: str) -> None:
    assert isinstance(main, LazyGroup)
    command = main.get_command(click.Context(main), name)
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(main, [name, "--help"])
    assert (result.exit_code, result.output.startswith("Usage:")) == (0, True)


def test_an_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(main, ["rum"])
    assert result.exit_code == 2
    assert "No such command 'rum'" in result.output


def test_an_unknown_flag_is_refused() -> None:
    result = CliRunner().invoke(main, ["--polcy", "x"])
    assert result.exit_code == 2
    assert "No such option" in result.output


def test_the_version_is_the_installed_one() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"sponson, version {version('sponson')}\n"


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom proxy.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'aiohttp', 'pydantic', 'uvloop', 'opentelemetry'} & set(sys.modules), 'imported too much'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Commands:" in done.stdout


def test_the_package_can_be_run_as_the_command() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SPONSON_")}
    arguments = [sys.executable, "-m", "proxy", "--help"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "A per-pod proxy" in done.stdout
