"""Limits: this instance's part of them, and what another part does to permits that are out and to who waits."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.decisions.shares import FleetSettings, share_of
from proxy.policy.difference.change import Findings, When
from proxy.policy.difference.state import Fates
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot

AT_ONCE = When.DECISION


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The step that is looked at: two policies, and what becomes of the cores."""

    old: PolicySnapshot
    new: PolicySnapshot
    fates: Fates


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A fleet-wide limit before and after; None where there is none. `most` bounds the share from above."""

    old: int | None
    new: int | None
    old_key: str
    """What apportionment calls it: whose limit it is."""
    new_key: str
    old_most: int | None = None
    new_most: int | None = None
    in_use: bool = True
    """Whether calls that it bounds may run already."""


def compare_share(findings: Findings, limit: Limit, reload: Reload, *, what: str) -> None:
    """Notes another share of a limit, and what it does; `what` says whose calls it bounds."""
    old = _share(limit.old, reload.old.fleet, key=limit.old_key, most=limit.old_most)
    new = _share(limit.new, reload.new.fleet, key=limit.new_key, most=limit.new_most)
    if new is None or old == new:
        return
    assert limit.new is not None
    granted = share_of(limit.new, reload.new.fleet, key=limit.new_key)
    how = arithmetic(limit.new, reload.new.fleet) if new == granted else "connections.max"
    findings.value("share of an instance", "none" if old is None else str(old), str(new), note=f"{AT_ONCE}; {how}")
    if new == 0:
        findings.warn(f"a share of 0: no call of {what} may go")
    elif not limit.in_use:
        return
    elif old is None:
        findings.effect(
            f"calls of {what} that run at the reload are not counted in the new limit: until they have ended, "
            f"more than {new} can be in flight"
        )
    elif new < old:
        until = f"fewer than {new} are in use" if new > 1 else "none is in use"
        findings.effect(f"permits of {what} that are in use stay counted: nobody new goes until {until}")
    else:
        findings.effect(f"who waits for a permit of {what} goes at once, as far as a share of {new} allows")


def provider_limit(old: ProviderSnapshot | None, new: ProviderSnapshot) -> Limit:
    """Returns a provider's limit; connections bound its share too."""
    before = old if old is not None else new
    return Limit(
        in_use=old is not None,
        old=before.concurrency if old is not None else None,
        new=new.concurrency,
        old_key=before.name,
        new_key=new.name,
        old_most=before.most_connections,
        new_most=new.most_connections,
    )


def provider_share(provider: ProviderSnapshot, fleet: FleetSettings) -> int:
    """Returns how many calls an instance may have at a provider: its share, or its connections."""
    most = provider.most_connections
    share = _share(provider.concurrency, fleet, key=provider.name, most=most)
    return most if share is None else share


def _share(limit: int | None, fleet: FleetSettings, *, key: str, most: int | None) -> int | None:
    if limit is None:
        return None
    share = share_of(limit, fleet, key=key)
    return share if most is None else min(share, most)


def arithmetic(limit: int, fleet: FleetSettings) -> str:
    """Writes how a share came about, for example `103 / 4, rounded down`."""
    known = fleet.index is not None and fleet.index < fleet.size
    rest = limit % fleet.size
    if known:
        return f"{limit} / {fleet.size}, instance {fleet.index}"
    return f"{limit} / {fleet.size}, rounded down" if rest else f"{limit} / {fleet.size}"
