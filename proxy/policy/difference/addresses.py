"""What becomes of a provider's addresses: each has a pool and breakers of its own."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.policy.difference.change import Findings
from proxy.policy.difference.fields import seconds
from proxy.policy.difference.state import addresses
from proxy.policy.snapshot import ProviderSnapshot


def compare_addresses(findings: Findings, old: ProviderSnapshot, new: ProviderSnapshot, *, written: bool) -> None:
    """Notes what other addresses do to connections and breakers; `written`: `base_url` is another one."""
    before, after = addresses(old), addresses(new)
    come, go = [one for one in after if one not in before], [one for one in before if one not in after]
    if not come and not go:
        if written:
            findings.effect(_same(after))
        return
    idle = seconds(old.connections.idle_seconds)
    if len(before) == len(after) == 1:
        if old.breaker is not None and new.breaker is not None:
            findings.effect("another address has breakers of its own: closed, also where one is open now")
        findings.effect(
            f"new connections are dialled; calls that run end on their old ones, and idle ones close within {idle}"
        )
        return
    if come:
        closed = "a closed breaker and " if new.breaker is not None else ""
        findings.effect(f"{', '.join(come)}: begins with {closed}no connections, for new requests")
    if go:
        findings.effect(f"{', '.join(go)}: calls that run end there, idle connections close within {idle}")
    if len(come) < len(after):
        findings.effect("addresses that stay keep their connections and breakers")


def _same(found: Sequence[str]) -> str:
    which = "the same address" if len(found) == 1 else "the same addresses"
    return f"{which}: connections and breakers stay"
