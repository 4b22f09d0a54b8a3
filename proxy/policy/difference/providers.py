"""The sections of providers: what stays, what begins anew, what is put aside, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from proxy.decisions.pace import FEWEST_CALLS
from proxy.policy.difference.addresses import compare_addresses
from proxy.policy.difference.change import Findings, Section, Sign
from proxy.policy.difference.fields import (
    BREAKER,
    BREAKER_SWITCH,
    DECISION,
    PROVIDER,
    compare,
    compare_values,
    mode,
    seconds,
    shortened,
)
from proxy.policy.difference.keys import keys
from proxy.policy.difference.models import models
from proxy.policy.difference.rates import NOTHING, compare_rates, grant
from proxy.policy.difference.shares import Reload, compare_share, provider_limit, provider_share
from proxy.policy.difference.state import ANY_MODEL, address, named_models
from proxy.policy.identities import Identity
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot

KINDS: Final[Mapping[str, str]] = {
    "breaker": "breakers",
    "provider": "permits of its limit",
    "connections": "permits of its connections",
    "rpm": "quota of requests",
    "tpm": "quota of tokens",
    "adaptive_limit": "adaptive limit",
    "room": "queue places",
    "ring": "keys",
    "pool": "connections",
    "pace": "answer times (p95)",
    "tally": "what observing has counted",
    "estimates": "what calls take in tokens",
}
"""What people call the cores of a provider, by the first word of their identity."""


def providers(reload: Reload) -> Iterator[Section | None]:
    """Yields the sections of all providers, keys and models; None for each that does not change."""
    before = {provider.name: provider for provider in reload.old.providers}
    earlier = {one.name: before.get(one.name) or before.get(one.was or "") for one in reload.new.providers}
    for provider in reload.new.providers:
        match = earlier[provider.name]
        if match is None:
            yield _new(provider, reload)
            continue
        yield _Changes(old=match, new=provider, reload=reload).section()
        yield from keys(match, provider, reload)
        yield from models(match, provider, reload)
    stay = {match.name for match in earlier.values() if match is not None}
    for name, provider in before.items():
        if name not in stay:
            yield _gone(provider, reload)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """A provider on both sides."""

    old: ProviderSnapshot
    new: ProviderSnapshot
    reload: Reload

    def section(self) -> Section | None:
        """Returns what is found, None where nothing changes."""
        findings = Findings()
        old, new = self.old, self.new
        if old.name != new.name:
            findings.value("name", old.name, new.name, note=DECISION)
            findings.effect("renamed: what is kept goes on under the new name")
        differ = compare(findings, PROVIDER, old, new)
        compare_values(findings, "headers", dict(old.headers), dict(new.headers))
        compare_values(findings, "query", dict(old.query), dict(new.query))
        if old.query != new.query and dict(old.query) == dict(new.query):
            findings.value("query", "one order", "another order")
        self._mode(findings)
        self._limits(findings)
        self._quota(findings, differ)
        self._room(findings)
        compare_addresses(findings, old, new, written="base_url" in differ)
        self._breaker(findings, differ)
        self._keys(findings)
        if findings.values or findings.effects or findings.warnings:
            self._state(findings)
        return findings.changes(f"provider {new.name}")

    def _mode(self, findings: Findings) -> None:
        was, now = self.old.observe or self.reload.old.observe, self.new.observe or self.reload.new.observe
        if was == now:
            if self.old.observe != self.new.observe:
                findings.effect(f"the mode in force stays {mode(now)}: that of the whole policy is more lenient")
            return
        if self.old.observe == self.new.observe:
            findings.value("mode in force", mode(was), mode(now), note=DECISION)
        if now:
            findings.warn("shares and breakers hold nobody back any more; who waits for a permit goes at once")
        else:
            findings.warn(
                "shares and breakers hold back again: a breaker that is open now refuses, and where more permits are "
                "in use than the share has, nobody new goes until they are fewer"
            )

    def _limits(self, findings: Findings) -> None:
        old, new = self.old, self.new
        compare_share(findings, provider_limit(old, new), self.reload, what=f"{new.name}")
        if old.concurrency is not None and new.concurrency is None:
            findings.warn(f"no concurrency limit any more: only connections.max ({new.connections.max}) bounds it")
        most, before = new.most_connections, old.most_connections
        if most < before:
            findings.effect(f"calls that run stay: nobody new goes until fewer than {most} run at an instance")
        elif most > before:
            findings.effect(f"who waits for a connection goes at once, as far as {most} allow")

    def _quota(self, findings: Findings, differ: set[str]) -> None:
        old, new = self.old, self.new
        compare_rates(findings, grant(old, old, self.reload.old), grant(new, new, self.reload.new), what=new.name)
        if any(name.startswith("limits.count.") for name in differ):
            findings.effect("what runs is settled as it was reserved; what buckets hold stays")
        if "limits.adaptive" in differ:
            if old.adaptive is None:
                findings.effect("the adaptive limit begins at the share")
            elif new.adaptive is None:
                findings.effect("who waits for the adaptive limit goes at once, as far as the share allows")
            else:
                findings.effect("the adaptive limit goes on from where it stands")
        if "idempotency_header" in differ:
            if new.idempotency_header is None:
                findings.warn(
                    "keyed requests that may have been executed are not sent to it again: they end as maybe_executed"
                )
            else:
                findings.effect("keyed requests that may have been executed are sent to it again, with the same key")

    def _room(self, findings: Findings) -> None:
        old, new = _room(self.old, self.reload.old), _room(self.new, self.reload.new)
        if old != new and not (self.old.queue.max and self.new.queue.max):
            findings.value("most that may wait", str(old), str(new), note=DECISION)
        if new < old:
            findings.effect(f"who waits keeps its place; newcomers get queue_full until fewer than {new} wait")
        if self.new.queue.bytes < self.old.queue.bytes:
            findings.effect("bodies that wait stay; newcomers get queue_full until there is room for theirs")

    def _breaker(self, findings: Findings, differ: set[str]) -> None:
        old, new = self.old.breaker, self.new.breaker
        if old is not None and new is not None:
            changed = compare(findings, BREAKER, self.old, self.new)
            if changed - {"breaker.scope"} and self.reload.fates.kept("breaker", self.new.name):
                findings.effect("an open breaker stays open as long as it was to; what a window has counted stays")
            if changed & {"breaker.scope"}:
                whole = "one for all models" if new.per_provider else "one for each model"
                findings.warn(f"breakers have another scope: {whole}, closed, also where one is open now")
        elif old is not new:
            compare(findings, [BREAKER_SWITCH], self.old, self.new)
            if new is None:
                findings.warn("no breaker any more: a provider that fails is asked by every call")
        if "timeouts.first_byte" in differ and new is not None and new.slow_after is None:
            findings.effect("breakers call a stream slow after 2/3 of first_byte: that moves too")

    def _keys(self, findings: Findings) -> None:
        if self.old.keys and not self.new.keys:
            findings.warn("no keys any more: callers' own credentials are passed on, in a route's first tier")
            findings.effect("calls that wait at the reload wait on for the keys that they came for")
        elif self.new.keys and not self.old.keys:
            findings.warn("callers' own credentials are not passed on any more: its keys are used")
            findings.effect("calls that wait at the reload go on with their callers' own credentials")
        elif [key.id for key in self.old.keys] != [key.id for key in self.new.keys]:
            stay = [key.id for key in self.new.keys if any(key.id == one.id for one in self.old.keys)]
            if stay != [one.id for one in self.old.keys if one.id in stay]:
                findings.value("keys", ", ".join(k.id for k in self.old.keys), ", ".join(k.id for k in self.new.keys))
                findings.effect("another order of keys decides only which of equals is chosen first")

    def _state(self, findings: Findings) -> None:
        """What of the provider's own state goes on, begins anew, is put aside."""
        fates, name = self.reload.fates, self.new.name
        if self._own(fates.begun("pace", name)):
            findings.effect(f"answer limits are the fixed ones until {FEWEST_CALLS} answers of a target are known")
        kept = _words(fates.kept, name, self._own)
        # Of some addresses they stay: what becomes of the others is told by address.
        stay = {kind for kind in KINDS if fates.kept(kind, name)} if len(self.new.addresses) > 1 else set()
        begun = _words(fates.begun, name, self._own, without=stay)
        left = _words(fates.left, self.old.name, self._own, without=stay)
        if kept:
            findings.effect(f"kept: {kept}")
        if begun:
            findings.effect(f"begin anew: {begun}")
        if left:
            findings.effect(f"put aside for 10 minutes, in case they come back: {left}")

    def _own(self, identities: list[Identity]) -> bool:
        """Whether any is not there only because a model is named, or is named no more."""
        models = set(named_models(self.reload.old, self.old.name)) ^ set(named_models(self.reload.new, self.new.name))
        return any(
            len(identity) == 2 or identity[-1] == ANY_MODEL or identity[-1] not in models for identity in identities
        )


def _words(
    select: Callable[[str, str], list[Identity]],
    name: str,
    fits: Callable[[list[Identity]], bool] = bool,
    *,
    without: Collection[str] = (),
) -> str:
    """Returns what people call the cores of a provider that are selected."""
    return ", ".join(word for kind, word in KINDS.items() if kind not in without and fits(select(kind, name)))


def _room(provider: ProviderSnapshot, policy: PolicySnapshot) -> int:
    """Returns how many may wait: `Room.reconfigure` has the rule."""
    return provider.queue.max or max(8, 2 * provider_share(provider, policy.fleet))


def _new(provider: ProviderSnapshot, reload: Reload) -> Section:
    findings = Findings()
    findings.value("base_url", "none", shortened(provider.base_url))
    if provider.concurrency is not None:
        findings.value("limits.concurrency", "none", str(provider.concurrency))
        compare_share(findings, provider_limit(None, provider), reload, what=provider.name)
    compare_rates(findings, NOTHING, grant(provider, provider, reload.new), what=provider.name, began=False)
    closed = ["closed breakers"] if provider.breaker is not None else []
    usable = ["usable keys"] if provider.keys else []
    findings.effect(f"begins with {', '.join([*closed, *usable, 'no connections'])}")
    if provider.was is not None:
        findings.warn(f"`was: {provider.was}` has no effect: there is no such provider in the old policy")
    stay = {name for one in reload.new.providers for name in (one.name, one.was)}
    for one in reload.old.providers:
        if one.name not in stay and address(one) == address(provider):
            findings.warn(f"has the address of {one.name}, which goes: `was: {one.name}` would keep its state")
    return findings.section(Sign.ADDED, f"provider {provider.name}")


def _gone(provider: ProviderSnapshot, reload: Reload) -> Section:
    findings = Findings()
    idle = seconds(provider.connections.idle_seconds)
    findings.effect(f"drains: calls that run or wait end as they began; idle connections close within {idle}")
    left = _words(reload.fates.left, provider.name)
    findings.effect(f"put aside, once nobody uses them, for 10 minutes, in case it comes back: {left}")
    named = [one.name for one in reload.new.providers if one.was == provider.name]
    if named:
        findings.warn(f"`was: {provider.name}` of {named[0]} has no effect: {named[0]} keeps its own state")
    return findings.section(Sign.REMOVED, f"provider {provider.name}")
