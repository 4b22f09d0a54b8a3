"""Quotas, assembled: the buckets of a provider, its models and its keys; whose answers must tell their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxy.decisions.quota import Bucket
from proxy.policy.identities import Identity, bounds_tokens, of_key, of_provider
from proxy.policy.snapshot import KeySnapshot, ModelSnapshot, PolicySnapshot, ProviderSnapshot, SpreadTier
from proxy.runtime.cores import Cores

Buckets = tuple[Bucket, ...]
"""None or one."""


def provider_buckets(cores: Cores) -> tuple[Buckets, Buckets]:
    """Returns a provider's buckets for requests and for tokens; none where it has no such limit."""
    snapshot = cores.snapshot
    kinds = of_provider("rpm", snapshot), of_provider("tpm", snapshot)
    return _bucket(cores, kinds[0], snapshot.rpm), _bucket(cores, kinds[1], snapshot.tpm)


def model_buckets(model: ModelSnapshot, cores: Cores) -> tuple[Buckets, Buckets]:
    """Returns a model's own, likewise."""
    snapshot = cores.snapshot
    kinds = of_provider("model_rpm", snapshot, model.name), of_provider("model_tpm", snapshot, model.name)
    return _bucket(cores, kinds[0], model.rpm), _bucket(cores, kinds[1], model.tpm)


def key_buckets(key: KeySnapshot, cores: Cores) -> tuple[Buckets, Buckets]:
    """Returns a key's own, likewise."""
    snapshot = cores.snapshot
    kinds = of_key("key_rpm", snapshot, key), of_key("key_tpm", snapshot, key)
    return _bucket(cores, kinds[0], key.rpm), _bucket(cores, kinds[1], key.tpm)


def bounds_rates(provider: ProviderSnapshot) -> bool:
    """Whether anything bounds the requests or tokens a minute of a provider's calls."""
    limits = [provider.rpm, *(model.rpm for model in provider.models), *(key.rpm for key in provider.keys)]
    return bounds_tokens(provider) or any(limit is not None for limit in limits)


def heeds(policy: PolicySnapshot, provider: ProviderSnapshot) -> bool:
    """Whether it makes a difference what a provider says is left of its keys' limits."""
    if not provider.keys:
        return False
    return len(provider.keys) > 1 or bounds_rates(provider) or provider.name in _equals(policy)


def _equals(policy: PolicySnapshot) -> frozenset[str]:
    """Returns the providers that stand in for each other somewhere."""
    spreads = [tier for route in policy.routes or () for tier in route.tiers if isinstance(tier, SpreadTier)]
    return frozenset(member.provider for tier in spreads for member in tier.members)


def _bucket(cores: Cores, identities: Sequence[Identity], limit: float | None) -> Buckets:
    if limit is None:
        return ()
    shop, quota = cores.shop, cores.snapshot.quota
    identity, *was = identities
    bucket = shop.kept.get(identity, lambda: Bucket(_label(identity), shop.clock.now()), was=was)
    most = limit * quota.headroom
    reserved = shop.classes.reserved

    def change() -> None:
        rate = most / shop.fleet.size
        bucket.label = _label(identity)
        bucket.reconfigure(rate, shop.clock.now(), burst=quota.burst, most=most, reserved=reserved)

    shop.later(change)
    return (bucket,)


def _label(identity: Iterable[str]) -> str:
    kind, *names = identity
    return f"{kind.rpartition('_')[2]} of {'/'.join(names)}"
