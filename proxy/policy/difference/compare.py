"""All of it: two snapshots → Difference, and what belongs to the policy as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.difference.change import Difference, Findings, Section, Sign
from proxy.policy.difference.fields import DECISION, Field, compare, mode, plain, seconds
from proxy.policy.difference.providers import providers
from proxy.policy.difference.routes import requests, routes
from proxy.policy.difference.shares import Limit, Reload, compare_share
from proxy.policy.difference.state import fates, named_models
from proxy.policy.difference.tenants import tenants
from proxy.policy.snapshot import PolicySnapshot

WHOLE: tuple[Field[PolicySnapshot], ...] = (
    Field(name="mode", read=lambda p: p.observe, write=mode, when=DECISION),
    Field(name="fleet.size.static", read=lambda p: p.fleet.size, when=DECISION),
    Field(name="limits.concurrency", read=lambda p: p.concurrency, when=DECISION),
    Field(name="classes.P0.reserved", read=lambda p: p.classes.reserved, when=DECISION),
    Field(name="classes.P2.idle_below", read=lambda p: p.classes.idle_below, when=DECISION),
    Field(name="classes.P2.promote_after", read=lambda p: p.classes.promote_after, write=seconds, when=DECISION),
    Field(name="classes.P2.queue", read=lambda p: p.classes.queue, write=seconds),
    Field(name="telemetry.log_successes", read=lambda p: p.telemetry.log_successes, when=DECISION),
)


def differences(old: PolicySnapshot, new: PolicySnapshot) -> Difference:
    """Returns what a process that runs `old` does to its live state when `new` goes live."""
    reload = Reload(old=old, new=new, fates=fates(old, new))
    sections = [section for section in _sections(reload) if section is not None]
    return Difference(sections=tuple(sections), unchanged=tuple(_unchanged(new, sections)))


def _sections(reload: Reload) -> Iterator[Section | None]:
    yield _whole(reload)
    yield tenants(reload)
    yield from providers(reload)
    yield from routes(reload)
    yield requests(reload)


def _whole(reload: Reload) -> Section | None:
    findings = Findings()
    old, new = reload.old, reload.new
    differ = compare(findings, WHOLE, old, new)
    limit = Limit(old=old.concurrency, new=new.concurrency, old_key="", new_key="")
    compare_share(findings, limit, reload, what="all providers together")
    if old.concurrency is not None and new.concurrency is None:
        findings.warn("nothing bounds all providers together any more")
    if "fleet.size.static" in differ:
        findings.effect(
            "each instance reloads by itself: until all have, shares of both sizes are in force side by side"
        )
    _classes(findings, differ, old, new)
    return findings.changes("the whole policy")


def _classes(findings: Findings, differ: set[str], old: PolicySnapshot, new: PolicySnapshot) -> None:
    if "classes.P0.reserved" in differ:
        findings.effect(
            "permits in use and what buckets hold stay: P1 and P2 go by the new reserve from the next decision on"
        )
    if new.classes.reserved == 1 != old.classes.reserved:
        findings.warn("everything is reserved for P0: no call of P1 or P2 may go where a share or a rate binds it")
    if differ & {"classes.P2.idle_below", "classes.P2.promote_after"}:
        findings.effect("P2 calls that wait keep their places, and go by the new values")


def _unchanged(new: PolicySnapshot, sections: list[Section]) -> Iterator[tuple[str, int]]:
    """Counts what is in both policies and has no section; what stands below a new provider is new."""
    subjects = {section.subject for section in sections}
    added = {section.subject for section in sections if section.sign is Sign.ADDED}
    old = [provider for provider in new.providers if f"provider {provider.name}" not in added]
    there = {
        "provider": [f"provider {provider.name}" for provider in old],
        "key": [f"key {provider.name}/{key.id}" for provider in old for key in provider.keys],
        "model": [f"model {one.name}/{plain(model)}" for one in old for model in named_models(new, one.name)],
        "route": [f"route {route.name}" for route in new.routes or ()],
    }
    for kind, names in there.items():
        if count := sum(name not in subjects for name in names):
            yield kind, count
