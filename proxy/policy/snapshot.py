"""PolicySnapshot: a validated policy as plain frozen values; the only thing that assembly reads.

Built by `policy/load.py`; knows no YAML and no pydantic. Names, units and defaults: `policy.md`; defaults
live in the settings classes of the decisions that use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.decisions.adaptive import AdaptiveSettings
from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.cacheability import CacheSettings
from proxy.decisions.classes import ClassSettings
from proxy.decisions.classification import MatchSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.deadline import AnswerPaceSettings, TimeoutSettings
from proxy.decisions.idempotency import IdempotencySettings
from proxy.decisions.lanes import LaneSettings
from proxy.decisions.merging import MergeSettings
from proxy.decisions.quota import QuotaSettings
from proxy.decisions.retry import RetrySettings
from proxy.decisions.room import QueueSettings
from proxy.decisions.shares import FleetSettings
from proxy.decisions.tenants import TenantsSettings


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
    rpm: float | None = None
    tpm: float | None = None
    was: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthScheme:
    """Which header carries a key: `authorization` with "Bearer ", or the bare key in `header`."""

    header: str = "authorization"
    prefix: str = "Bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """`connections`: most connections per address and instance; seconds that an idle one is kept.

    `warm`: how many are kept open and ready for each address.
    """

    max: int = 100
    idle_seconds: float = 25.0
    warm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSnapshot:
    """A single model: its own fleet-wide limits, and its longest context in tokens; None: no such limit."""

    name: str
    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSnapshot:
    """Where a provider listens: one of its addresses."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """A host that belongs to a provider, spelled as `decisions/destinations` has it; `port` None: the usual ones."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSnapshot:
    """A model service. `root_path` is the path of `base_url` without a trailing slash ("" for none).

    `base_url`, `scheme`, `host` and `port` are those of the first of `addresses`, which all have the same path.
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
    addresses: tuple[AddressSnapshot, ...]
    dialect: str = "openai"
    hosts: tuple[HostSnapshot, ...] = ()
    """As written: traffic to these is forwarded to it; none: those of `base_url`."""
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, ValueSource], ...] = ()
    auth: AuthScheme = AuthScheme()
    keys: tuple[KeySnapshot, ...] = ()
    key_rest_seconds: float = 60.0
    idempotency_header: str | None = None
    """As written: the header by which the provider de-duplicates."""
    concurrency: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    quota: QuotaSettings = QuotaSettings()
    """How rpm and tpm are used: its own, and those of its keys and models."""
    count: CountSettings = CountSettings()
    adaptive: AdaptiveSettings | None = None
    models: tuple[ModelSnapshot, ...] = ()
    queue: QueueSettings = QueueSettings()
    connections: ConnectionSettings = ConnectionSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    breaker: BreakerSettings | None = BreakerSettings()
    propagate_trace: bool = True
    max_inputs: int | None = None
    """Most inputs that one of its calls may carry; None: what is known of its host."""

    @property
    def most_connections(self) -> int:
        """How many connections an instance may have to all addresses together."""
        return self.connections.max * len(self.addresses)

    def model(self, name: str) -> ModelSnapshot:
        """Returns what the policy says of a model; one without limits where it says nothing."""
        return next((model for model in self.models if model.name == name), ModelSnapshot(name=name))


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
class SpreadTier:
    """Ask one of several equals, by what is left of each or by weight (one for each member, in order)."""

    members: tuple[ProviderTier, ...]
    weights: tuple[float, ...]
    by: Literal["remaining", "weight"] = "remaining"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTier:
    """Answer without asking anybody; `body` is the JSON text."""

    status: int = 200
    body: bytes = b"{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleTier:
    """Give an answer that the route's cache has kept, up to this age in seconds."""

    max_age_seconds: float


Tier = ProviderTier | SpreadTier | StaleTier | AnswerTier


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSnapshot:
    """A Redis or Valkey server as a route's cache: `redis://host:port/db` or `rediss://…`, without credentials."""

    url: str
    username: str | None = None
    password: ValueSource | None = None
    place: str = field(default="", compare=False)
    """`file:line:column` in the policy, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSnapshot:
    """Which requests, which tiers. `repeatable` None: true for inference calls, GET and HEAD, else false."""

    name: str
    was: str | None = None
    observe: bool = False
    match: MatchSettings = MatchSettings()
    klass: str = "P1"
    class_from_header: bool = False
    """Whether a caller's own word may raise its class, too."""
    tiers: tuple[Tier, ...] = ()
    total_seconds: float = 600.0
    retry: RetrySettings = RetrySettings()
    body_max: int = 32 * 1024 * 1024
    body_replay: int = 1024 * 1024
    repeatable: bool | None = None
    idempotency: IdempotencySettings = IdempotencySettings()
    lanes: tuple[LaneSettings, ...] = ()
    """By `max_output`, ascending."""
    cache: CacheSettings | None = None
    cache_redis: RedisSnapshot | None = None
    """Where its answers are kept; None: in memory."""
    single_flight: bool = False
    """Where the policy says nothing: whether there is a cache."""
    merge: MergeSettings | None = None

    def asked(self) -> Iterator[ProviderTier]:
        """Yields all who may be asked, in order; of a spread tier every member."""
        for tier in self.tiers:
            match tier:
                case ProviderTier():
                    yield tier
                case SpreadTier():
                    yield from tier.members


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
    classes: ClassSettings = ClassSettings()
    tenants: TenantsSettings | None = None
    telemetry: TelemetrySnapshot = TelemetrySnapshot()
    digest: str = ""
    """Hash of the bytes it came from."""
    warnings: tuple[str, ...] = field(default=())
