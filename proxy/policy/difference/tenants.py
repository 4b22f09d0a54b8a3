"""The section of tenants: who they are, what each may ask, and what a change does to what they have used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from proxy.decisions.tenants import TenantSettings, TenantSource, TenantsSettings
from proxy.policy.difference.change import Findings, Section
from proxy.policy.difference.fields import DECISION, NONE, REQUEST, Field, compare, mode, plain, shortened
from proxy.policy.difference.shares import Reload

CAPS: Final = {"klass": "class", "too_long_tier": "too_long"}
"""How the policy calls what code calls otherwise."""


def _source(source: TenantSource) -> str:
    return "credential" if source.header is None else f"header {plain(source.header)}"


def _sources(sources: tuple[TenantSource, ...]) -> str:
    return plain(tuple(map(_source, sources))) if sources else 'everybody is "default"'


def _caps(caps: TenantSettings) -> Iterator[tuple[str, str]]:
    """Yields (name in the policy, how it is written) of each cap that there is."""
    for field in fields(caps):
        value: Any = getattr(caps, field.name)
        if value is not None:
            name = CAPS.get(field.name, field.name)
            yield name, f"tier {value}" if name == "too_long" else plain(value)


def _written(caps: TenantSettings) -> str:
    return shortened(", ".join(f"{name} {value}" for name, value in _caps(caps))) or "no caps"


FIELDS: tuple[Field[TenantsSettings], ...] = (
    Field(name="mode", read=lambda t: t.observe, write=mode, when=DECISION),
    Field(name="from", read=lambda t: t.sources, write=_sources, when=REQUEST),
)


def tenants(reload: Reload) -> Section | None:
    """Returns what differs for tenants; None where nothing does."""
    findings = Findings()
    old, new = reload.old.tenants, reload.new.tenants
    if old is not None and new is not None:
        _changed(findings, old, new)
    elif new is not None:
        findings.value("tenants", NONE, _sources(new.sources), note=REQUEST)
        _compare_caps(findings, TenantsSettings(), new)
        findings.effect(
            "every tenant begins with one request's worth; requests in flight at the reload are not counted"
        )
    elif old is not None:
        findings.value("tenants", _sources(old.sources), NONE, note=REQUEST)
        findings.warn("no tenant is held back any more, and none has a class of its own")
        findings.effect("what tenants have used is put aside for 10 minutes, in case they come back")
    return findings.changes("tenants")


def _changed(findings: Findings, old: TenantsSettings, new: TenantsSettings) -> None:
    differ = compare(findings, FIELDS, old, new)
    if "from" in differ:
        findings.effect("who asks under another name than before begins anew; known names keep what they have used")
    if "mode" in differ and new.observe:
        findings.warn("tenants are held back no more: what their caps would refuse is only reported")
    if "mode" in differ and old.observe:
        findings.warn("tenants are held back again, by what they have used and have in flight already")
    if _compare_caps(findings, old, new):
        findings.effect("what tenants have used and have in flight stays counted: nothing is refilled")


def _compare_caps(findings: Findings, old: TenantsSettings, new: TenantsSettings) -> bool:
    """Notes the caps that differ; returns whether any do."""
    before, after = _rules(old), _rules(new)
    noted = len(findings.values)
    for name in dict.fromkeys([*before, *after]):
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            findings.value(name, *(NONE if caps is None else _written(caps) for caps in (was, now)), note=DECISION)
        else:
            _compare_each(findings, name, dict(_caps(was)), dict(_caps(now)))
    order = [name for name in before if name in after]
    if order != [name for name in after if name in before]:
        findings.value("order of overrides", plain(tuple(order)), plain(tuple(after)), note=DECISION)
    return len(findings.values) > noted


def _compare_each(findings: Findings, rule: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            findings.value(f"{rule}.{name}", old.get(name, NONE), new.get(name, NONE), note=DECISION)


def _rules(tenants: TenantsSettings) -> dict[str, TenantSettings]:
    """Returns the caps by what they are called: `default` and the patterns, in the order that counts."""
    return {"default": tenants.default, **{f'"{plain(pattern)}"': caps for pattern, caps in tenants.overrides}}
