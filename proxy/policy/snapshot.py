"""PolicySnapshot: a validated policy as plain frozen values; the only thing that assembly reads.

Built by `policy/load.py`; knows no YAML and no pydantic. Names, units and defaults: `policy.md`; defaults
live in the settings classes of the decisions that use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.classification import MatchSettings
from proxy.decisions.deadline import AnswerPaceSettings, TimeoutSettings
from proxy.decisions.queues import QueueSettings
from proxy.decisions.retry import RetrySettings
from proxy.decisions.shares import FleetSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSource:
    """Where a value comes from: exactly one of the three is set. Secrets are only ever `env` or `file`."""

    literal: str | None = None
    env: str | None = None
    file: str | None = None
    place: str = ""
    """`file:line:column` in the policy, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySnapshot:
    """One credential of a provider; its secret is read by `runtime/secrets.py`, never here."""

    id: str
    source: ValueSource
    weight: float = 1.0
    concurrency: int | None = None
    was: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthScheme:
    """Which header carries a key: `authorization` with "Bearer ", or the bare key in `header`."""

    header: str = "authorization"
    prefix: str = "Bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """`connections`: most connections per address and instance; seconds that an idle one is kept."""

    max: int = 100
    idle_seconds: float = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSnapshot:
    """A model service. `root_path` is the path of `base_url` without a trailing slash ("" for none).

    `observe` stands for `mode: observe`, here, on a route and on the policy: the most lenient of the three holds.
    """

    name: str
    was: str | None = None
    observe: bool = False
    base_url: str
    scheme: str
    host: str
    port: int
    root_path: str
    dialect: str = "openai"
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, ValueSource], ...] = ()
    auth: AuthScheme = AuthScheme()
    keys: tuple[KeySnapshot, ...] = ()
    key_rest_seconds: float = 60.0
    concurrency: int | None = None
    models: tuple[tuple[str, int | None], ...] = ()
    """(model, its own fleet-wide concurrency or None)."""
    queue: QueueSettings = QueueSettings()
    connections: ConnectionSettings = ConnectionSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    breaker: BreakerSettings | None = BreakerSettings()
    propagate_trace: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderTier:
    """Ask a provider; `model` None means the caller's. None in an override: the provider's own timeout."""

    provider: str
    model: str | None = None
    set: tuple[tuple[str, Any], ...] = ()
    queue_seconds: float | None = None
    quota_wait_seconds: float | None = None
    first_byte_seconds: float | None = None
    answer_seconds: float | None = None
    answer_pace: AnswerPaceSettings | None = None
    idle_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTier:
    """Answer without asking anybody; `body` is the JSON text."""

    status: int = 200
    body: bytes = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    """Which requests, which tiers. `repeatable` None: true for inference calls, GET and HEAD, else false."""

    name: str
    was: str | None = None
    observe: bool = False
    match: MatchSettings = MatchSettings()
    tiers: tuple[ProviderTier | AnswerTier, ...] = ()
    total_seconds: float = 600.0
    retry: RetrySettings = RetrySettings()
    body_max: int = 32 * 1024 * 1024
    body_replay: int = 1024 * 1024
    repeatable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySnapshot:
    """`telemetry`: the part of successful requests that gets a log line (0-1)."""

    log_successes: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySnapshot:
    """A whole policy. `routes` None: the policy has none, and anything goes to the first provider."""

    providers: tuple[ProviderSnapshot, ...]
    routes: tuple[RouteSnapshot, ...] | None = None
    observe: bool = False
    fleet: FleetSettings = FleetSettings()
    concurrency: int | None = None
    """All providers together, fleet-wide."""
    telemetry: TelemetrySnapshot = TelemetrySnapshot()
    digest: str = ""
    """Hash of the bytes it came from."""
    warnings: tuple[str, ...] = field(default=())
