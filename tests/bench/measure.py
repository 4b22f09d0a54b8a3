"""Processes pinned to one core, and what the kernel knows about them: CPU time, resident memory, start-up.

Linux only. CPU time comes from the process's own CPU clock: nanoseconds, with all its threads, ended ones too
(`/proc/PID/stat` counts in 10 ms, `/proc/PID/schedstat` knows the first thread only).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import clock_gettime_ns, perf_counter, sleep
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
STOP_SECONDS = 10.0
POLL_SECONDS = 0.004
_CPU_CLOCK_OF_PROCESS = 2
_MIB = 1024 * 1024


class NotReady(Exception):
    """A process ended, or did not answer in time, before it was ready; the text says what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """Which core the proxy under test has, and which one everything else shares."""

    proxy: int
    load: int

    @classmethod
    def choose(cls) -> Self:
        """The first two cores this process may use; with a single one, both are the same."""
        usable = sorted(os.sched_getaffinity(0))
        return cls(proxy=usable[0], load=usable[min(1, len(usable) - 1)])


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Keep this process, and what it starts meanwhile, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Process:
    """One started process, on one core; leaving the context ends it."""

    def __init__(self, argv: Sequence[str], *, core: int, log: Path, env: Mapping[str, str]) -> None:
        self._log = log
        with pinned(core), log.open("wb") as output:
            self.started_at = perf_counter()
            self._popen = subprocess.Popen(
                argv, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._clock = (~self._popen.pid << 3) | _CPU_CLOCK_OF_PROCESS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Process(pid={self._popen.pid}, args={self._popen.args!r})"

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def cpu_seconds(self) -> float:
        """CPU time used so far, user and system."""
        return clock_gettime_ns(self._clock) / 1e9

    def resident_mib(self) -> float:
        """Resident memory now, in MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB

    def wait_until(self, ready: Callable[[], bool], *, seconds: float = 20.0) -> float:
        """Poll until `ready`, and return the seconds since the process was started; raises NotReady."""
        while not ready():
            if self._popen.poll() is not None:
                raise NotReady(f"ended with code {self._popen.returncode}: {self.tail()}")
            if perf_counter() - self.started_at > seconds:
                raise NotReady(f"not ready after {seconds:.0f} s: {self.tail()}")
            sleep(POLL_SECONDS)
        return perf_counter() - self.started_at

    def read_port(self) -> int:
        """The port that the process prints as its first line; raises NotReady."""
        self.wait_until(lambda: self._log.read_bytes().endswith(b"\n"))
        return int(self._log.read_text().split()[0])

    def tail(self) -> str:
        """The end of what the process printed."""
        return self._log.read_text(errors="replace").strip()[-1500:] or "(it printed nothing)"

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough."""
        if self._popen.poll() is None:
            self._popen.send_signal(signal.SIGTERM)
        try:
            self._popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()


def answers_200(port: int, request: bytes) -> bool:
    """Whether a server on this port of 127.0.0.1 answers the request with 200, on a fresh connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.sendall(request)
            return connection.recv(65536).startswith((b"HTTP/1.1 200", b"HTTP/1.0 200"))
    except OSError:
        return False


def core_busy_seconds(core: int) -> float:
    """CPU time that processes, kernel and other guests took from this core since boot; in 10 ms steps."""
    lines = Path("/proc/stat").read_text().splitlines()
    numbers = [int(text) for text in next(line for line in lines if line.startswith(f"cpu{core} ")).split()[1:9]]
    user, nice, system, _idle, _io_wait, irq, soft_irq, steal = numbers
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
