"""`sponson demo`: its flags, and what it says when it cannot start."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

from proxy.cli.demo import command
from proxy.simulation.demo.settings import HOST
from tests.simulation.demo.places import free_base_port


def test_its_help_names_its_flags() -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "--stay" in result.output
    assert "--base-port" in result.output


@pytest.mark.parametrize("arguments", [["--unknown"], ["--base-port", "99999"], ["--base-port", "high"]])
def test_a_bad_flag_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2


def test_a_taken_port_ends_with_2_and_the_cure() -> None:
    base = free_base_port()
    with socket.socket() as other:
        other.bind((HOST, base))
        other.listen()
        done = subprocess.run(
            [sys.executable, "-m", "proxy", "demo", "--base-port", str(base)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 2
    assert f"Port {base}, for the proxy, is taken by another process." in done.stdout + done.stderr
    assert "--base-port" in done.stdout + done.stderr
