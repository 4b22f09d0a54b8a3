"""The processes of the demo: started, watched, ended. None outlives it, however it ends.

Each is a session of its own, so that Ctrl-C reaches the demo alone, which ends them in order. On Linux the kernel
kills them when the demo is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proxy.simulation.demo.problem import CANNOT_START, FAILED, DemoProblem

READY_SECONDS = 20.0
POLL_SECONDS = 0.05
PATIENCE_SECONDS = 8.0
LOG_LINES = 15
_PR_SET_PDEATHSIG = 1
_OURS = ("SPONSON_", "OTEL_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One process and the file that it logs to."""

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:])

    def ended(self, *, code: int = FAILED) -> DemoProblem:
        """Returns the problem that it has ended."""
        return DemoProblem(
            f"{self.name} ended with exit code {self.process.returncode}", code=code, log=self.last_words
        )


class Children:
    """Starts `python -m proxy ...`; on exit ends what was started, the last one first."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = child_environment(environ)
        self._running: list[Child] = []
        self._ready: list[Child] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._running:
            await _end(self._running.pop().process)

    async def start(self, name: str, *arguments: str, log: str) -> Child:
        """Starts a process that logs to the file `log` of the folder; `name` begins sentences about it."""
        path = self._folder / log
        with path.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "proxy", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=self._environ,
                start_new_session=True,
                preexec_fn=_die_with(os.getpid()),
            )
        child = Child(name=name, process=process, log=path)
        self._running.append(child)
        return child

    async def until_ready(self, child: Child, probe: Callable[[], Awaitable[bool]]) -> None:
        """Returns once `probe` holds; DemoProblem with the end of the log when the process ends or takes too long."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not await probe():
                    if child.process.returncode is not None:
                        raise child.ended(code=CANNOT_START)
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            message = f"{child.name} was not ready after {READY_SECONDS:.0f} s"
            raise DemoProblem(message, code=CANNOT_START, log=child.last_words) from None
        self._ready.append(child)

    async def until_one_ends(self) -> DemoProblem:
        """Returns the problem that one which was ready has ended by itself."""
        while True:
            for child in self._ready:
                if child.process.returncode is not None:
                    return child.ended()
            await asyncio.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """Ends all of them at once."""
        for child in self._running:
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without settings of the proxy and its telemetry, which is exported nowhere."""
    kept = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
    exporters = {f"OTEL_{signal_name}_EXPORTER": "none" for signal_name in ("TRACES", "METRICS", "LOGS")}
    return {**kept, **exporters, "PYTHONUNBUFFERED": "1"}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _die_with(parent: int) -> Callable[[], None] | None:
    """Returns what the new process runs first: it asks the kernel to be killed when its parent dies."""
    if sys.platform != "linux":
        return None
    prctl: Any = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask
