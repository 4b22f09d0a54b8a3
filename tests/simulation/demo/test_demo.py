"""The whole demo, as processes on free ports."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.simulation.demo.ports import taken
from proxy.simulation.demo.settings import DemoSettings
from tests.simulation.demo.places import free_base_port

FEW_SECONDS = 40.0


class Running:
    """A demo as a process whose output is read as it comes; `folder` is its place for temporary files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.base_port = free_base_port()
        self.output = b""
        command = [sys.executable, "-m", "proxy", "demo", "--base-port", str(self.base_port), "--seconds", "2"]
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},
        )

    @property
    def text(self) -> str:
        return self.output.decode().replace("\u00a0", " ")

    def read_until(self, words: str) -> None:
        """Reads until these words came; fails when the output ends before."""
        self._read(lambda: words.encode() in self.output)
        assert words in self.text, self.text

    def code(self) -> int:
        """Reads to the end and returns the exit code."""
        self._read(lambda: False)
        return self.process.wait(FEW_SECONDS)

    def _read(self, enough: Callable[[], bool]) -> None:
        assert self.process.stdout is not None
        give_up_at = time.monotonic() + FEW_SECONDS
        while not enough():
            readable, _, _ = select.select([self.process.stdout], [], [], max(give_up_at - time.monotonic(), 0))
            assert readable, self.text
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                return
            self.output += piece

    def nobody_listens(self) -> bool:
        """Whether all its ports become free within seconds."""
        ports = DemoSettings(base_port=self.base_port, environ={}).ports
        give_up_at = time.monotonic() + FEW_SECONDS
        while taken(ports) and time.monotonic() < give_up_at:
            time.sleep(0.05)
        return not taken(ports)


def test_it_shows_a_failure_and_a_recovery_and_stays_until_it_is_told_to_end(tmp_path: Path) -> None:
    with (demo := Running(tmp_path, "--stay")).process:
        demo.read_until("What happens from now on")
        demo.process.send_signal(signal.SIGINT)
        assert demo.code() == 0, demo.text
    assert "\x1b" not in demo.text, "colours where there is no terminal"
    for words in ("P50, ms", "P99, ms", "first byte P50, ms", "half-open", "passed over: queue_full", "output tokens"):
        assert words in demo.text
    (states,) = (line for line in demo.text.splitlines() if line.startswith(" alpha sim-chat"))
    assert [word for word in states.split() if word in {"open", "closed"}][-1] == "closed"
    assert "open" in states
    assert f"curl -i http://127.0.0.1:{demo.base_port}/v1/chat/completions" in demo.text
    assert "Every request was answered" in demo.text
    assert demo.nobody_listens()
    assert list(tmp_path.iterdir()) == [], "files left behind"


def test_a_signal_in_the_middle_ends_everything(tmp_path: Path) -> None:
    with (demo := Running(tmp_path)).process:
        demo.read_until("11 callers")
        demo.process.terminate()
        assert demo.code() == 130
    assert demo.nobody_listens()
    assert list(tmp_path.iterdir()) == [], "files left behind"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is needed")
def test_nothing_outlives_a_demo_that_is_killed(tmp_path: Path) -> None:
    with (demo := Running(tmp_path)).process:
        demo.read_until("11 callers")
        demo.process.kill()
        demo.code()
    assert demo.nobody_listens()
