"""A provider's keys, assembled: each keeps its own rest, parking and shares; who is told of them changes."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.shares import share_of
from proxy.exchange import Credential
from proxy.observer import KeyChanged
from proxy.policy.identities import of_key
from proxy.policy.snapshot import KeySnapshot, ProviderSnapshot
from proxy.runtime.cores import Cores
from proxy.runtime.quotas import key_buckets
from proxy.runtime.secrets import secret_hash
from proxy.runtime.workshop import Workshop


def credentials(provider: ProviderSnapshot, shop: Workshop, audience: tuple[str, ...]) -> dict[str, Credential]:
    """Returns what each of a provider's keys is on the wire, by its id."""
    auth, made = provider.auth, {}
    for key in provider.keys:
        header = (auth.header.encode("latin-1"), f"{auth.prefix}{shop.secrets[key.source]}".encode())
        made[key.id] = Credential(key_id=key.id, header=header, audience=audience)
    return made


def key_ring(provider: ProviderSnapshot, cores: Cores, known: Mapping[str, Credential]) -> KeyRing | None:
    """Returns the ring of a provider's keys; None where it has none, and callers bring their own credentials."""
    if not provider.keys:
        return None
    shop, name = cores.shop, provider.name
    ring = cores.kept("ring", KeyRing)
    keys = [_key(snapshot, provider, cores, known[snapshot.id]) for snapshot in provider.keys]

    def changed(key_id: str, state: str, seconds: float) -> None:
        shop.observer.happened(KeyChanged(provider=name, key_id=key_id, state=state, seconds=seconds))

    shop.later(lambda: ring.reconfigure(keys, rest_seconds=provider.key_rest_seconds))
    shop.later(lambda: ring.rewire(changed))
    return ring


def _key(snapshot: KeySnapshot, provider: ProviderSnapshot, cores: Cores, credential: Credential) -> Key:
    shop = cores.shop
    identity, *was = of_key("credential", provider, snapshot)
    key = shop.kept.get(identity, lambda: Key(snapshot.id), was=was)
    secret = shop.secrets[snapshot.source]
    places = None
    if snapshot.concurrency is not None:
        share = share_of(snapshot.concurrency, shop.fleet, key=f"{provider.name}/key/{snapshot.id}")
        places = cores.places_of(of_key("key", provider, snapshot), share, parts=shop.parts(provider.name))
    requests, tokens = key_buckets(snapshot, cores)

    def change() -> None:
        key.id = snapshot.id
        key.reconfigure(weight=snapshot.weight, places=places, requests=requests, tokens=tokens)
        key.renew(credential, secret_hash(secret))

    shop.later(change)
    return key
