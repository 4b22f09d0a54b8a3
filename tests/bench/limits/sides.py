"""The processes of an experiment: simulated providers, and Sponson with a policy; what both say of themselves."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from tests.bench.measure import Process, answers_200
from tests.bench.rows import READY_REQUEST, Surroundings, clean_environment
from tests.ports import free_port

HEALTH_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
HTTP_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A simulated provider that listens."""

    port: int

    @property
    def url(self) -> str:
        """Where its interface begins."""
        return f"http://127.0.0.1:{self.port}"

    async def stats(self) -> Mapping[str, Any]:
        """What it has counted since the start, or since `forget`."""
        found: Mapping[str, Any] = await _ask(self.port, "GET", "/sim/stats")
        return found

    async def forget(self) -> None:
        """Begins to count anew; its limits are no fuller for it."""
        await _ask(self.port, "DELETE", "/sim/stats")

    async def fail(self, *faults: str) -> None:
        """Goes wrong in this way from now on."""
        await _ask(self.port, "POST", "/sim/faults", json.dumps(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sponson:
    """A proxy that is ready: ports of its interface and of its admin page."""

    port: int
    admin: int
    process: Process

    @property
    def url(self) -> str:
        """Where its interface begins."""
        return f"http://127.0.0.1:{self.port}"

    async def status(self) -> Mapping[str, Any]:
        """What `/status` says."""
        found: Mapping[str, Any] = await _ask(self.admin, "GET", "/status")
        return found


def start_provider(around: Surroundings, stack: ExitStack, name: str, flags: Sequence[str] = ()) -> Provider:
    """Starts `sponson sim` with these flags on the load's core and waits until it answers; raises NotReady."""
    port = free_port()
    argv = [sys.executable, "-m", "proxy", "sim", "--listen", f"{name}=127.0.0.1:{port}", *flags]
    log = around.folder / f"sim-{name}.log"
    process = stack.enter_context(Process(argv, core=around.cores.load, log=log, env=clean_environment()))
    process.wait_until(lambda: answers_200(port, HEALTH_REQUEST))
    return Provider(port=port)


def start_sponson(
    around: Surroundings, stack: ExitStack, name: str, policy: str, secrets: Mapping[str, str]
) -> Sponson:
    """Starts `sponson run` with this policy on the proxy's core and waits until it is ready; raises NotReady."""
    port, admin = free_port(), free_port()
    path = around.folder / f"{name}.yaml"
    path.write_text(policy)
    argv = [sys.executable, "-m", "proxy", "run", "--policy", str(path)]
    argv += ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--linger", "0s", "--drain", "1s"]
    env = clean_environment(
        **secrets,
        SPONSON_LOG_FORMAT="json",
        SPONSON_STATE_DIR=str(around.folder / f"{name}-state"),
        OTEL_SERVICE_NAME="sponson-bench",
        OTEL_TRACES_EXPORTER="otlp",
        OTEL_METRICS_EXPORTER="otlp",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{around.sink_port}",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0.01",
    )
    log = around.folder / f"{name}.log"
    process = stack.enter_context(Process(argv, core=around.cores.proxy, log=log, env=env))
    process.wait_until(lambda: answers_200(admin, READY_REQUEST))
    return Sponson(port=port, admin=admin, process=process)


async def _ask(port: int, method: str, path: str, body: str | None = None) -> Any:
    return await asyncio.to_thread(_ask_now, port, method, path, body)


def _ask_now(port: int, method: str, path: str, body: str | None) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=HTTP_SECONDS)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path} was answered with {answer.status}: {text[:300]!r}")
        return json.loads(text) if text.strip() else None
    finally:
        connection.close()
