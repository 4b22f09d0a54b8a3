"""The validated policy → PolicySnapshot: units become numbers, one becomes many, secrets keep places.

Owns what belongs to the policy as a whole, its classes and its tenants.
"""

from __future__ import annotations

from collections.abc import Collection

from proxy.decisions.callers import SECRET_HEADERS
from proxy.decisions.classes import ClassSettings
from proxy.decisions.shares import FleetSettings
from proxy.decisions.tenants import TenantSettings, TenantSource, TenantsSettings
from proxy.policy.build_providers import build_provider
from proxy.policy.build_routes import build_route
from proxy.policy.schema.fleet import Classes, Fleet, TenantLimits, Tenants, TooLongTier
from proxy.policy.schema.policy import Policy
from proxy.policy.snapshot import PolicySnapshot, TelemetrySnapshot
from proxy.policy.tree import Node


def build(policy: Policy, root: Node, *, digest: str, instance_index: int | None) -> PolicySnapshot:
    """Returns the snapshot of a policy without problems; `root` is the tree that it was validated from."""
    providers = tuple(build_provider(root, name, one) for name, one in policy.providers.items())
    secret = SECRET_HEADERS.union(provider.auth.header for provider in providers)
    return PolicySnapshot(
        providers=providers,
        routes=None
        if policy.routes is None
        else tuple(build_route(root, number, one) for number, one in enumerate(policy.routes)),
        observe=policy.mode == "observe",
        fleet=_fleet(policy.fleet, instance_index),
        concurrency=policy.limits.concurrency,
        classes=_classes(policy.classes),
        tenants=None if policy.tenants is None else _tenants(policy.tenants, secret=secret),
        telemetry=TelemetrySnapshot(log_successes=policy.telemetry.log_successes),
        digest=digest,
    )


def _fleet(fleet: Fleet, index: int | None) -> FleetSettings:
    if fleet.size is None or fleet.size.static is None:
        return FleetSettings(index=index)
    return FleetSettings(size=fleet.size.static, index=index)


def _classes(classes: Classes) -> ClassSettings:
    return ClassSettings(
        reserved=classes.P0.reserved,
        idle_below=classes.P2.idle_below,
        promote_after=float(classes.P2.promote_after),
        queue=float(classes.P2.queue),
    )


def _tenants(tenants: Tenants, *, secret: Collection[str]) -> TenantsSettings:
    default = tenants.default or TenantLimits()
    headers = [one.header.lower() if one.header else None for one in tenants.from_]
    return TenantsSettings(
        sources=tuple(TenantSource(header=header, secret=header in secret) for header in headers),
        default=_caps(default),
        overrides=tuple((pattern, _caps(_over(default, one))) for pattern, one in tenants.overrides.items()),
        observe=tenants.mode == "observe",
    )


def _over(default: TenantLimits, override: TenantLimits) -> TenantLimits:
    """Returns the caps of an override: what it does not name is the default's."""
    return default.model_copy(update={name: getattr(override, name) for name in override.model_fields_set})


def _caps(limits: TenantLimits) -> TenantSettings:
    return TenantSettings(
        rps=limits.rps,
        concurrency=limits.concurrency,
        tpm=limits.tpm,
        context_tokens=limits.context_tokens,
        klass=limits.class_,
        too_long_tier=limits.too_long.tier if isinstance(limits.too_long, TooLongTier) else None,
    )
