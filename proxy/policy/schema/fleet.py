"""Sections about the whole process: `fleet`, `limits`, `classes`, `tenants`, `telemetry`, `intercept`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Tag

from proxy.decisions.classes import ClassSettings
from proxy.decisions.shares import FleetSettings
from proxy.policy.schema.base import Section, absent, default_of, option, required, section
from proxy.policy.schema.types import (
    MAPPING,
    SCALAR,
    Count,
    Duration,
    HeaderName,
    Maybe,
    Number,
    PositiveCount,
    PositiveDuration,
    Ratio,
    Text,
    mapping_or_scalar,
)
from proxy.policy.snapshot import TelemetrySnapshot

Mode = Literal["enforce", "observe"]
ClassName = Literal["P0", "P1", "P2"]
MODE = (
    "observe: what limits and breakers would refuse or let wait goes at once, and is only reported; the most lenient "
    "of the policy's, the provider's and the route's mode holds"
)
_CLASSES = ClassSettings()


class FleetSize(Section):
    """How the number of instances is known; exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    static: Maybe[PositiveCount] = absent(
        f"as many instances as this, always; {default_of(FleetSettings, 'size')} where `size` is absent"
    )
    dns: Maybe[Text] = absent("name that resolves to the addresses of all instances")
    endpoints: Maybe[Text] = absent("Kubernetes Service whose ready endpoints are the instances")
    leases: Maybe[Literal[True]] = absent("instances take leases from the coordinator")


class Fleet(Section):
    """How this instance learns its share of every fleet-wide limit."""

    size: Maybe[FleetSize] = absent("the number of instances; {static: 1} where absent")
    max_size: Maybe[PositiveCount] = absent("most instances there can ever be; required unless static")
    on_loss: Literal["safe_share", "hold_last", "zero"] = option(
        "safe_share", "discovery or coordinator lost: limit / max_size, the last share, or nothing"
    )
    guarantee: Literal["bounded", "strict"] = option("bounded", "how strictly the sum of shares is kept")
    raise_delay: Maybe[Duration] = absent("wait before a larger share; 5s with endpoints, 35s with dns")
    stale_after: PositiveDuration = option(Duration(15), "discovery counts as lost after this silence")


class ProcessLimits(Section):
    """Limits of all providers together, fleet-wide."""

    concurrency: Maybe[Count] = absent("most attempts in flight")


class TopClass(Section):
    """P0: urgent calls."""

    reserved: Ratio = option(_CLASSES.reserved, "part of every share, permits and quota, that only P0 may use")


class MiddleClass(Section):
    """P1: ordinary calls; nothing to set."""


class IdleClass(Section):
    """P2: calls that run in idle capacity."""

    idle_below: Ratio = option(
        _CLASSES.idle_below, "runs beside others while the permits in use are below this part of the share"
    )
    promote_after: Duration = option(Duration(_CLASSES.promote_after), "queues as P1 after this wait")
    queue: Duration = option(Duration(_CLASSES.queue), "longest wait; replaces the tiers' queue and quota_wait")


class Classes(Section):
    """The three priorities, which always exist."""

    P0: TopClass = section(TopClass, "urgent calls")
    P1: MiddleClass = section(MiddleClass, "ordinary calls")
    P2: IdleClass = section(IdleClass, "calls that run in idle capacity")


class TenantSource(Section):
    """Where a caller's tenant stands; exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    header: Maybe[HeaderName] = absent("the value of this header")
    credential: Maybe[Literal[True]] = absent("the fingerprint of the caller's credential")


class TooLongTier(Section):
    """Where calls go that are too long for their tenant."""

    tier: PositiveCount = required("tier to begin with, from 1")


TooLong = Annotated[
    Annotated[Literal["refuse"], Tag(SCALAR)] | Annotated[TooLongTier, Tag(MAPPING)],
    Discriminator(mapping_or_scalar),
]


class TenantLimits(Section):
    """Caps of one tenant, per instance; zero means none allowed, absent means no such cap."""

    rps: Maybe[Number] = absent("requests per second")
    concurrency: Maybe[Count] = absent("most requests in flight")
    tpm: Maybe[Number] = absent("tokens per minute")
    context_tokens: Maybe[Count] = absent("longest input in tokens")
    class_: Maybe[ClassName] = absent("priority of this tenant's calls", alias="class")
    too_long: TooLong = option("refuse", "what happens to a longer input: refuse, or {tier: N}")


class Tenants(Section):
    """Who asks, and how much each may ask."""

    mode: Mode = option("enforce", MODE)
    from_: list[TenantSource] = option((), "first that is present names the tenant", alias="from")
    default: Maybe[TenantLimits] = absent("caps of every tenant; an override changes what it names")
    overrides: dict[Text, TenantLimits] = option({}, "what is other for some; shell-style patterns, first match wins")


class Telemetry(Section):
    """What is recorded about calls."""

    task_header: Maybe[HeaderName] = absent("header that names the caller's task")
    log_successes: Ratio = option(
        default_of(TelemetrySnapshot, "log_successes"), "part of the successful requests that get a log line"
    )
    content: bool = option(False, "whether prompts and answers are recorded")


class Intercept(Section):
    """What happens to intercepted connections."""

    hosts: dict[Text, Literal["terminate", "tunnel", "refuse"]] = option({}, "by name of the server")
    other: Literal["terminate", "tunnel", "refuse"] = option("tunnel", "all other servers")
