"""What is compared, and how each proxy is started: commands, environments, the policy of the Sponson row."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.bench import peers, traffic
from tests.bench.measure import Cores, NotReady, Process, answers_200
from tests.ports import free_port

READY_REQUEST = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class Row(StrEnum):
    """One line of the tables."""

    DIRECT = "direct"
    BARE = "bare"
    SPONSON = "sponson"
    ENVOY = "envoy"
    NGINX = "nginx"


OWN_ROWS = (Row.DIRECT, Row.BARE, Row.SPONSON)
PEER_ROWS = (Row.ENVOY, Row.NGINX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every row shares: ports of provider and telemetry sink, cores, a folder for policies and logs."""

    provider_port: int
    sink_port: int
    cores: Cores
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A row that is running: where it listens; its process and start-up time unless it is the direct one."""

    port: int
    process: Process | None = None
    ready_seconds: float = 0.0


# Two equal providers at one address: the second tier is armed, and never needed. No load meets a limit of this policy,
# so that relaying is measured and not waiting. (The bare proxy has the 100 connections that aiohttp allows it.)
POLICY = """\
version: 1
fleet: {{size: {{static: 1}}}}
limits: {{concurrency: 2000}}
providers:
  alpha:
    base_url: http://127.0.0.1:{port}/v1
    keys: [{{id: a1, env: BENCH_KEY_ALPHA}}]
    limits: {{concurrency: 1000}}
    queue: {{max: 256}}
    connections: {{max: 1000}}
    timeouts: {{queue: 300ms, first_byte: 8s, idle: 30s}}
  beta:
    base_url: http://127.0.0.1:{port}/v1
    keys: [{{id: b1, env: BENCH_KEY_BETA}}]
    limits: {{concurrency: 1000}}
    queue: {{max: 256}}
    connections: {{max: 1000}}
routes:
  - name: chat
    match: {{path: /v1/chat/completions}}
    tiers:
      - {{provider: alpha}}
      - {{provider: beta, model: bench-small}}
    total: 60s
    retry: {{attempts: 3}}
telemetry: {{log_successes: 0.01}}
"""


def clean_environment(**settings: str) -> dict[str, str]:
    """This process's environment without settings of Sponson and OpenTelemetry, plus `settings`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "SPONSON_"))}
    return kept | settings


def start(row: Row, around: Surroundings) -> Subject:
    """Start a row on the proxy's core and wait until it answers; raises NotReady."""
    match row:
        case Row.DIRECT:
            return Subject(port=around.provider_port)
        case Row.BARE:
            return _start_bare(around)
        case Row.SPONSON:
            return start_sponson(around, POLICY.format(port=around.provider_port))
        case Row.ENVOY:
            return _start_peer(row, around, peers.envoy)
        case Row.NGINX:
            return _start_peer(row, around, peers.nginx)


def _start_bare(around: Surroundings) -> Subject:
    port = free_port()
    upstream = f"http://127.0.0.1:{around.provider_port}"
    argv = [sys.executable, "-m", "tests.bench.bare", "--port", str(port), "--upstream", upstream]
    process = Process(argv, core=around.cores.proxy, log=around.folder / "bare.log", env=clean_environment())
    return _when_ready(process, port, lambda: True)


def _start_peer(row: Row, around: Surroundings, command: peers.Command) -> Subject:
    port = free_port()
    argv = command(around.folder, port=port, provider_port=around.provider_port)
    process = Process(argv, core=around.cores.proxy, log=around.folder / f"{row}.log", env=clean_environment())
    return _when_ready(process, port, lambda: True)


def start_sponson(around: Surroundings, policy_text: str) -> Subject:
    """Start Sponson with this policy, telemetry on, on the proxy's core; raises NotReady."""
    port, admin = free_port(), free_port()
    policy = around.folder / "policy.yaml"
    policy.write_text(policy_text)
    argv = [sys.executable, "-m", "proxy", "run", "--policy", str(policy)]
    argv += ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
    env = clean_environment(
        BENCH_KEY_ALPHA="sk-bench-alpha",
        BENCH_KEY_BETA="sk-bench-beta",
        SPONSON_LOG_FORMAT="json",
        SPONSON_STATE_DIR=str(around.folder / "state"),
        OTEL_SERVICE_NAME="sponson-bench",
        OTEL_TRACES_EXPORTER="otlp",
        OTEL_METRICS_EXPORTER="otlp",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{around.sink_port}",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0.01",
    )
    process = Process(argv, core=around.cores.proxy, log=around.folder / "sponson.log", env=env)
    return _when_ready(process, port, lambda: answers_200(admin, READY_REQUEST))


def _when_ready(process: Process, port: int, ready: Callable[[], bool]) -> Subject:
    first = traffic.request(traffic.mark_of(0), stream=False)
    try:
        seconds = process.wait_until(lambda: ready() and answers_200(port, first))
    except NotReady:
        process.stop()
        raise
    return Subject(port=port, process=process, ready_seconds=seconds)
