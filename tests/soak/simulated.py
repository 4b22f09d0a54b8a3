"""`sponson sim` as a process, made to be a profile's provider."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from proxy.simulation.provider.profiles import Profile
from tests.integration.caller import call

START_SECONDS = 20.0


class SimulatorProcess:
    """Listens on a free port of its own while it is entered."""

    def __init__(self, profile: Profile) -> None:
        flags = [(f"--{name.replace('_', '-')}", value) for name, value in profile.flags().items()]
        listen = ["--listen", "127.0.0.1:0", *(part for flag in flags for part in flag)]
        self._command = [sys.executable, "-m", "proxy", "sim", *listen]
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await self._process.stdout.readline()
        found = re.search(rb"127\.0\.0\.1:(\d+)", line)
        assert found is not None, line
        self.port = int(found[1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        await self._process.wait()

    async def stats(self) -> Any:
        """What it has counted."""
        return (await call(self.port, "/sim/stats", method="GET")).json()
