"""The table of rooms: what each may import, and where each library is at home.

Imports under `TYPE_CHECKING` count like all others: whoever names a type knows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VOCABULARY = (
    "proxy.body",
    "proxy.clock",
    "proxy.dialects",
    "proxy.exchange",
    "proxy.fields",
    "proxy.link",
    "proxy.observer",
    "proxy.outcome",
    "proxy.plan",
    "proxy.ports",
    "proxy.request",
    "proxy.stage",
    "proxy.tasks",
    "proxy.trace_context",
    "proxy.websocket",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the modules of a room may import beyond the standard library."""

    may: tuple[str, ...] = ()
    """Modules of this project, each with all below it; its own room too, or its files keep apart."""
    libraries: frozenset[str] | None = None
    """Third-party packages; None: any that `LIBRARY_HOMES` grants."""
    never: frozenset[str] = frozenset()
    """Parts of the standard library that it must not know."""


NO_LIBRARY: frozenset[str] = frozenset()
IMPURE = frozenset(
    {"asyncio", "io", "logging", "os", "pathlib", "random", "secrets", "socket", "ssl", "subprocess"}
    | {"threading", "time"}
)
TIMELESS = tuple(name for name in VOCABULARY if name not in {"proxy.clock", "proxy.tasks"})
BELOW_RUNTIME = (
    *VOCABULARY,
    "proxy.batch",
    "proxy.decisions",
    "proxy.downstream",
    "proxy.fleet",
    "proxy.policy",
    "proxy.settings",
    "proxy.stages",
    "proxy.store",
    "proxy.upstream",
)

ROOMS: Mapping[str, Room] = {
    **{name: Room(may=VOCABULARY, libraries=NO_LIBRARY) for name in VOCABULARY},
    "proxy.dialects": Room(may=VOCABULARY, libraries=frozenset({"orjson"})),
    "proxy": Room(libraries=NO_LIBRARY),
    "proxy.__main__": Room(may=("proxy.cli",)),
    "proxy.settings": Room(may=VOCABULARY),
    "proxy.decisions": Room(may=TIMELESS, libraries=NO_LIBRARY, never=IMPURE),
    "proxy.stages": Room(may=(*VOCABULARY, "proxy.decisions"), libraries=frozenset({"orjson"})),
    "proxy.upstream": Room(may=(*VOCABULARY, "proxy.upstream")),
    "proxy.downstream": Room(may=(*VOCABULARY, "proxy.downstream")),
    "proxy.fleet": Room(may=(*VOCABULARY, "proxy.fleet", "proxy.decisions.shares")),
    "proxy.store": Room(may=(*VOCABULARY, "proxy.store")),
    "proxy.policy": Room(may=(*VOCABULARY, "proxy.policy", "proxy.decisions")),
    "proxy.batch": Room(may=(*VOCABULARY, "proxy.batch")),
    "proxy.client": Room(may=("proxy.client",)),
    "proxy.kubernetes": Room(may=("proxy.kubernetes",), libraries=frozenset({"yaml"}), never=IMPURE),
    "proxy.runtime": Room(may=(*BELOW_RUNTIME, "proxy.runtime")),
    "proxy.simulation": Room(may=(*BELOW_RUNTIME, "proxy.runtime", "proxy.simulation")),
    "proxy.cli": Room(may=("proxy", "otel")),
    "otel": Room(
        may=("otel", "proxy.exchange", "proxy.observer", "proxy.outcome", "proxy.trace_context"),
    ),
}

# All other things that a decision or a stage needs from another one, its shell or its assembly brings.
EDGES: frozenset[tuple[str, str]] = frozenset(
    {
        ("proxy.decisions.addresses", "proxy.decisions.breaker"),
        ("proxy.decisions.addresses", "proxy.decisions.places"),
        ("proxy.decisions.admission", "proxy.decisions.forecast"),
        ("proxy.decisions.admission", "proxy.decisions.keys"),
        ("proxy.decisions.admission", "proxy.decisions.permits"),
        ("proxy.decisions.admission", "proxy.decisions.places"),
        ("proxy.decisions.admission", "proxy.decisions.queues"),
        ("proxy.decisions.admission", "proxy.decisions.shortage"),
        ("proxy.decisions.admission", "proxy.decisions.standing"),
        ("proxy.decisions.admission", "proxy.decisions.taking"),
        ("proxy.decisions.breaker", "proxy.decisions.breaker_state"),
        ("proxy.decisions.breaker", "proxy.decisions.cooldown"),
        ("proxy.decisions.breaker", "proxy.decisions.probes"),
        ("proxy.decisions.breaker", "proxy.decisions.ramp"),
        ("proxy.decisions.breaker", "proxy.decisions.ticket"),
        ("proxy.decisions.breaker", "proxy.decisions.verdict"),
        ("proxy.decisions.breaker", "proxy.decisions.window"),
        ("proxy.decisions.caps", "proxy.decisions.quota"),
        ("proxy.decisions.estimates", "proxy.decisions.counting"),
        ("proxy.decisions.forecast", "proxy.decisions.keys"),
        ("proxy.decisions.forecast", "proxy.decisions.queues"),
        ("proxy.decisions.forecast", "proxy.decisions.quota"),
        ("proxy.decisions.forecast", "proxy.decisions.shortage"),
        ("proxy.decisions.keys", "proxy.decisions.left"),
        ("proxy.decisions.keys", "proxy.decisions.places"),
        ("proxy.decisions.keys", "proxy.decisions.quota"),
        ("proxy.decisions.likeness", "proxy.decisions.idempotency"),
        ("proxy.decisions.observing", "proxy.decisions.deadline"),
        ("proxy.decisions.observing", "proxy.decisions.forecast"),
        ("proxy.decisions.observing", "proxy.decisions.keys"),
        ("proxy.decisions.observing", "proxy.decisions.places"),
        ("proxy.decisions.observing", "proxy.decisions.queues"),
        ("proxy.decisions.observing", "proxy.decisions.room"),
        ("proxy.decisions.observing", "proxy.decisions.taking"),
        ("proxy.decisions.permits", "proxy.decisions.keys"),
        ("proxy.decisions.permits", "proxy.decisions.places"),
        ("proxy.decisions.permits", "proxy.decisions.queues"),
        ("proxy.decisions.permits", "proxy.decisions.quota"),
        ("proxy.decisions.probes", "proxy.decisions.ticket"),
        ("proxy.decisions.probes", "proxy.decisions.verdict"),
        ("proxy.decisions.queues", "proxy.decisions.deadline"),
        ("proxy.decisions.queues", "proxy.decisions.fair"),
        ("proxy.decisions.queues", "proxy.decisions.keys"),
        ("proxy.decisions.queues", "proxy.decisions.permits"),
        ("proxy.decisions.queues", "proxy.decisions.places"),
        ("proxy.decisions.queues", "proxy.decisions.quota"),
        ("proxy.decisions.queues", "proxy.decisions.room"),
        ("proxy.decisions.queues", "proxy.decisions.shortage"),
        ("proxy.decisions.ramp", "proxy.decisions.places"),
        ("proxy.decisions.retry", "proxy.decisions.window"),
        ("proxy.decisions.room", "proxy.decisions.fair"),
        ("proxy.decisions.shortage", "proxy.decisions.holds"),
        ("proxy.decisions.shortage", "proxy.decisions.keys"),
        ("proxy.decisions.shortage", "proxy.decisions.places"),
        ("proxy.decisions.shortage", "proxy.decisions.quota"),
        ("proxy.decisions.shortage", "proxy.decisions.room"),
        ("proxy.decisions.standing", "proxy.decisions.forecast"),
        ("proxy.decisions.standing", "proxy.decisions.keys"),
        ("proxy.decisions.standing", "proxy.decisions.places"),
        ("proxy.decisions.standing", "proxy.decisions.queues"),
        ("proxy.decisions.standing", "proxy.decisions.room"),
        ("proxy.decisions.standing", "proxy.decisions.shortage"),
        ("proxy.decisions.taking", "proxy.decisions.keys"),
        ("proxy.decisions.taking", "proxy.decisions.places"),
        ("proxy.decisions.taking", "proxy.decisions.queues"),
        ("proxy.decisions.taking", "proxy.decisions.quota"),
        ("proxy.decisions.taking", "proxy.decisions.room"),
        ("proxy.decisions.taking", "proxy.decisions.shortage"),
        ("proxy.decisions.tenants", "proxy.decisions.callers"),
        ("proxy.decisions.tenants", "proxy.decisions.caps"),
        ("proxy.decisions.ticket", "proxy.decisions.verdict"),
        ("proxy.decisions.ticket", "proxy.decisions.window"),
        ("proxy.stages.idempotency", "proxy.stages.recording"),
        ("proxy.stages.idempotency", "proxy.stages.shared_call"),
        ("proxy.stages.refreshing", "proxy.stages.shared_call"),
        ("proxy.stages.response_cache", "proxy.stages.refreshing"),
        ("proxy.stages.response_cache", "proxy.stages.shared_call"),
        ("proxy.stages.shared_call", "proxy.stages.recording"),
        ("proxy.stages.shared_call", "proxy.stages.detached"),
        ("proxy.stages.recording", "proxy.stages.detached"),
        ("proxy.stages.merged_call", "proxy.stages.detached"),
        ("proxy.stages.merged_answer", "proxy.stages.recording"),
        ("proxy.stages.merged_call", "proxy.stages.merged_answer"),
        ("proxy.stages.merged_call", "proxy.stages.recording"),
        ("proxy.stages.merged_call", "proxy.stages.shared_call"),
        ("proxy.stages.merging", "proxy.stages.merged_call"),
        ("proxy.stages.merging", "proxy.stages.recording"),
        ("proxy.stages.single_flight", "proxy.stages.recording"),
        ("proxy.stages.single_flight", "proxy.stages.shared_call"),
        ("proxy.stages.stale_cache", "proxy.stages.response_cache"),
        ("proxy.stages.admission", "proxy.stages.metering"),
    }
)

LIBRARY_HOMES: Mapping[str, tuple[str, ...]] = {
    "aiohttp": ("proxy.fleet", "proxy.simulation", "proxy.upstream"),
    "click": ("proxy.cli",),
    "httptools": ("proxy.downstream.wire", "proxy.upstream.wire"),
    "opentelemetry": ("otel",),
    "prometheus_client": ("otel",),
    "pydantic": ("proxy.policy",),
    "redis": ("proxy.store",),
    "rich": ("proxy.cli", "proxy.simulation"),
    "yaml": ("proxy.kubernetes", "proxy.policy"),
}

# The file that may know what is not public in aiohttp.
WIRE = frozenset({"proxy.upstream.dialer"})


def within(module: str, *homes: str) -> bool:
    """Whether the module is one of these or below one."""
    return any(module == home or module.startswith(home + ".") for home in homes)


def room_of(module: str) -> str | None:
    """The name of the innermost room that the module is in, None where nobody gave it one."""
    homes = [name for name in ROOMS if within(module, name)]
    if homes == ["proxy"] and module != "proxy":
        return None
    return max(homes, key=len, default=None)
