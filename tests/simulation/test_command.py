"""The command `sim`: its flags are the settings, bad ones end with 2 and the cure, good ones run."""

from __future__ import annotations

import dataclasses
import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from proxy.cli.sim import command
from proxy.simulation.provider import SimulatorSettings
from proxy.simulation.provider.launch import build_group

RUN = "from proxy.cli.sim import command; command()"


def flags() -> dict[str, object]:
    with command.make_context("sim", []) as context:
        return dict(context.params)


def test_every_setting_has_a_flag_with_the_same_default_and_a_help_text() -> None:
    given = flags()
    settings = next(iter(build_group(**given).providers.values())).settings  # type: ignore[arg-type]
    assert settings == SimulatorSettings(port=9001)
    fields = {field.name for field in dataclasses.fields(SimulatorSettings)}
    renamed = {"listen", "keepalive", "control", "window", "heartbeat"}
    other = {"name", "host", "port", "keepalive_seconds", "window_seconds", "heartbeat_seconds"}
    assert set(given) - renamed == fields - other
    assert all(getattr(parameter, "help", None) for parameter in command.params)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--fault", "stauts=503"], "did you mean `status`"),
        (["--fault", "reset,provider=gamma"], "no provider is named gamma"),
        (["--latency", "fast"], "--latency: 'fast' is not"),
        (["--listen", "nowhere"], "--listen: 'nowhere' is not an address"),
        (["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"], "same name"),
        (["--thinking", "hard"], "--thinking: 'hard' is not"),
        (["--heartbeat", "often"], "--heartbeat: 'often' is not"),
        (["--profile", "researchers"], "there is research-agents"),
        (["--profile", "research-agents:many"], "'many' is no scale"),
        (["--queue", "3"], "queue needs concurrency"),
        (["--queue-full-status", "500"], "must be 503 or 429"),
        (["--answer", "sing"], "sing"),
        (["--rpm", "0"], "rpm must be above 0"),
        (["--key-tpm", "inf"], "key_tpm must be above 0 and finite"),
        (["--tpm", "many"], "'many' is not"),
        (["--window", "soon"], "--window: 'soon' is not"),
        (["--window", "0"], "window_seconds must lie"),
        (["--rpm", "6", "--refill", "window", "--window", "1s"], "less than one fits"),
        (["--count-tokens", "never"], "never"),
        (["--conflict-status", "400"], "must be 409 or 422"),
        (["--input-cost", "cheap"], "--input-cost: 'cheap' does not lie"),
        (["--max-inputs", "0"], "max_inputs must lie"),
        (["--poison", ""], "poison must not be"),
        (["--unknown"], "No such option"),
    ],
)
def test_a_bad_flag_ends_with_2_and_says_what_is_wrong(arguments: list[str], part: str) -> None:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert part in result.output


def test_a_taken_address_ends_with_2_and_the_cure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", RUN, "--listen", listen], capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 2
    assert "choose another --listen" in done.stderr


def test_it_serves_two_providers_until_a_signal() -> None:
    arguments = [
        "--listen",
        "alpha=127.0.0.1:0",
        "--listen",
        "beta=127.0.0.1:0",
        "--fault",
        "status=503,provider=beta",
    ]
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", RUN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        urls = dict(process.stdout.readline().split()[:2] for _ in range(2))
        with urllib.request.urlopen(f"{urls['beta:']}/sim/faults", timeout=5) as shown:
            assert json.load(shown) == {"faults": ["status=503,provider=beta"]}
        with urllib.request.urlopen(f"{urls['alpha:']}/health", timeout=5) as health:
            assert json.load(health)["provider"] == "alpha"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_the_simulator_is_not_loaded_by_the_command_line_alone() -> None:
    script = "import sys, proxy.cli.sim; print([m for m in sys.modules if 'simulation' in m or 'aiohttp' in m])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
