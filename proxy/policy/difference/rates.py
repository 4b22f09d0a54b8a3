"""Rates: this instance's part of rpm and tpm, and what another part does to the buckets that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proxy.decisions.quota import QuotaSettings
from proxy.policy.difference.change import Findings, When
from proxy.policy.difference.fields import NONE, plain
from proxy.policy.snapshot import KeySnapshot, ModelSnapshot, PolicySnapshot, ProviderSnapshot

NAMES: Final = {"rpm": "requests", "tpm": "tokens"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What somebody may use of fleet-wide rates a minute; None: no such rate."""

    rpm: float | None = None
    tpm: float | None = None
    quota: QuotaSettings = QuotaSettings()
    instances: int = 1

    def limit(self, name: str) -> float | None:
        """Returns the fleet-wide rate."""
        return self.rpm if name == "rpm" else self.tpm

    def rate(self, name: str) -> float | None:
        """Returns an instance's part of it."""
        limit = self.limit(name)
        return None if limit is None else limit * self.quota.headroom / self.instances

    def arithmetic(self, name: str) -> str:
        """Writes how the part came about, for example `600 × 0.8 / 10`."""
        return f"{plain(self.limit(name))} × {self.quota.headroom:g} / {self.instances}"


NOTHING: Final = Grant()


def grant(
    owner: ProviderSnapshot | KeySnapshot | ModelSnapshot, provider: ProviderSnapshot, policy: PolicySnapshot
) -> Grant:
    """Returns what a provider, or a key or model of it, may use."""
    return Grant(rpm=owner.rpm, tpm=owner.tpm, quota=provider.quota, instances=policy.fleet.size)


def compare_rates(findings: Findings, old: Grant, new: Grant, *, what: str, began: bool = True) -> None:
    """Notes other parts of rates, and what they do; `what` says whose calls they bound.

    `began`: whether its calls may run already.
    """
    for name, units in NAMES.items():
        _rate(findings, (old, new), name, units=f"{units} of {what}", began=began)
    rated = [grant for grant in (old, new) if list(_rates(grant))]
    if len(rated) == 2 and old.quota.burst != new.quota.burst:
        findings.effect("buckets have another size: what they hold stays, up to the new one")


def _rate(findings: Findings, pair: tuple[Grant, Grant], name: str, *, units: str, began: bool) -> None:
    old, new = (one.rate(name) for one in pair)
    if old == new:
        return
    if new is None:
        findings.warn(f"nothing bounds the {units} in a minute any more: who waits for them goes at once")
        return
    written = NONE if old is None else f"{old:.10g}"
    note = f"{When.DECISION}; {pair[1].arithmetic(name)}"
    findings.value(f"{name} of an instance", written, f"{new:.10g}", note=note)
    if new == 0:
        findings.warn(f"{name} of 0: no call of {units.partition(' of ')[2]} may go")
    elif old is None:
        findings.effect(f"the bucket for {units} is new: it begins with one request's worth, not full")
    elif began:
        findings.effect(f"the bucket for {units} keeps its level, up to its new size: nothing is refilled or forgiven")


def _rates(one: Grant) -> Iterator[float]:
    for name in NAMES:
        if (rate := one.rate(name)) is not None:
            yield rate
