"""The sections of keys: rests and parking belong to a key and its secret, permits to the key."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.difference.change import Findings, Section, Sign
from proxy.policy.difference.fields import DECISION, NONE, Field, compare, plain, source
from proxy.policy.difference.rates import NOTHING, compare_rates, grant
from proxy.policy.difference.shares import Limit, Reload, compare_share
from proxy.policy.snapshot import KeySnapshot, ProviderSnapshot, ValueSource

FIELDS: tuple[Field[KeySnapshot], ...] = (
    Field(name="source", read=lambda k: _named(k.source), write=lambda named: source(_source(named)), when=DECISION),
    Field(name="weight", read=lambda k: k.weight, when=DECISION),
    Field(name="concurrency", read=lambda k: k.concurrency, when=DECISION),
    Field(name="rpm", read=lambda k: k.rpm, when=DECISION),
    Field(name="tpm", read=lambda k: k.tpm, when=DECISION),
)


def _named(value: ValueSource) -> tuple[str | None, str | None]:
    """What tells two sources apart: not the place in the policy."""
    return value.env, value.file


def _source(named: tuple[str | None, str | None]) -> ValueSource:
    return ValueSource(env=named[0], file=named[1])


def keys(old: ProviderSnapshot, new: ProviderSnapshot, reload: Reload) -> Iterator[Section | None]:
    """Yields a section for every key of a provider that stays; None for one that does not change."""
    before = {key.id: key for key in old.keys}
    earlier = {key.id: before.get(key.id) or before.get(key.was or "") for key in new.keys}
    for key in new.keys:
        match = earlier[key.id]
        yield _new(key, (old, new), reload) if match is None else _changed(_Pair(old, new, match, key), reload)
    stay = {match.id for match in earlier.values() if match is not None}
    for key in old.keys:
        if key.id not in stay:
            yield _gone(key, new)


class _Pair:
    """A key on both sides, with its providers."""

    __slots__ = ("new", "new_provider", "old", "old_provider")

    def __init__(
        self, old_provider: ProviderSnapshot, new_provider: ProviderSnapshot, old: KeySnapshot, new: KeySnapshot
    ) -> None:
        self.old_provider = old_provider
        self.new_provider = new_provider
        self.old = old
        self.new = new


def _changed(pair: _Pair, reload: Reload) -> Section | None:
    findings = Findings()
    old, new, provider = pair.old, pair.new, pair.new_provider.name
    if old.id != new.id:
        findings.value("id", old.id, new.id, note=DECISION)
        findings.effect("renamed: it rests on or stays parked, as long as its secret is the same")
        if reload.fates.kept("key", provider, new.id):
            findings.effect("its permits in use stay counted under its new id")
        if any(reload.fates.kept(kind, provider, new.id) for kind in ("key_rpm", "key_tpm")):
            findings.effect("its buckets keep their level under its new id")
    differ = compare(findings, FIELDS, old, new)
    if "source" in differ:
        findings.effect(
            "a secret that is another one takes over at the reload and ends the key's rest and parking; "
            "the same secret from another source keeps them"
        )
    if "concurrency" in differ and new.concurrency is None:
        findings.warn("the key has no limit of its own any more")
    limit = Limit(
        old=old.concurrency,
        new=new.concurrency,
        old_key=_limit_key(pair.old_provider, old),
        new_key=_limit_key(pair.new_provider, new),
    )
    compare_share(findings, limit, reload, what="this key")
    compare_rates(
        findings, grant(old, pair.old_provider, reload.old), grant(new, pair.new_provider, reload.new), what="this key"
    )
    return findings.changes(f"key {provider}/{new.id}")


def _limit_key(provider: ProviderSnapshot, key: KeySnapshot) -> str:
    """What apportionment calls the key's limit: `runtime/targets.py` has the rule."""
    return f"{provider.name}/key/{key.id}"


def _new(key: KeySnapshot, providers: tuple[ProviderSnapshot, ProviderSnapshot], reload: Reload) -> Section:
    findings = Findings()
    old, provider = providers
    findings.value("source", NONE, source(key.source), note=DECISION)
    if key.concurrency is not None:
        findings.value("concurrency", NONE, plain(key.concurrency), note=DECISION)
        limit = Limit(old=None, new=key.concurrency, old_key="", new_key=_limit_key(provider, key), in_use=False)
        compare_share(findings, limit, reload, what="this key")
    compare_rates(findings, NOTHING, grant(key, provider, reload.new), what="this key", began=False)
    findings.effect(
        "begins usable: chosen with the others from the next decision on, also by calls that wait for a key"
    )
    if key.was is not None:
        findings.warn(f"`was: {key.was}` has no effect: there is no such key in the old policy")
    stays = {name for one in provider.keys for name in (one.id, one.was)}
    for one in old.keys:
        if one.id not in stays and _named(one.source) == _named(key.source):
            findings.warn(f"has the source of {one.id}, which goes: `was: {one.id}` would keep its rest and parking")
    return findings.section(Sign.ADDED, f"key {provider.name}/{key.id}")


def _gone(key: KeySnapshot, provider: ProviderSnapshot) -> Section:
    findings = Findings()
    findings.effect("chosen no more; calls that run with it end with it")
    findings.effect("its rest or parking is kept aside for 10 minutes, in case it comes back")
    for one in provider.keys:
        if one.was == key.id:
            findings.warn(f"`was: {key.id}` of {one.id} has no effect: {one.id} keeps its own state")
    return findings.section(Sign.REMOVED, f"key {provider.name}/{key.id}")
