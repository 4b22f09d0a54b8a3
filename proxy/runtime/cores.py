"""A provider's decision cores by identity: found where they are kept, or made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from proxy.decisions.places import Places
from proxy.policy.identities import Identity, of_provider
from proxy.policy.snapshot import ProviderSnapshot
from proxy.runtime.lanes import Parts
from proxy.runtime.workshop import Workshop

T = TypeVar("T")


class Cores:
    """Finds or makes what one provider needs; changes to what lives wait for the swap."""

    def __init__(self, snapshot: ProviderSnapshot, shop: Workshop) -> None:
        self.snapshot = snapshot
        self.shop = shop

    def kept(self, kind: str, make: Callable[[], T], *rest: str) -> T:
        """Returns the core of this kind, by its present name or those before it."""
        return self.kept_as(of_provider(kind, self.snapshot, *rest), make)

    def kept_as(self, identities: Sequence[Identity], make: Callable[[], T]) -> T:
        """Returns the core with these identities, the present one first."""
        identity, *was = identities
        return self.shop.kept.get(identity, make, was=was)

    def places(self, kind: str, size: int, *rest: str, parts: Parts = ()) -> Places:
        """Returns a counted limit of the provider; its size, and the parts kept of it, change at the swap."""
        return self.places_of(of_provider(kind, self.snapshot, *rest), size, parts=parts)

    def places_of(self, identities: Sequence[Identity], size: int, *, parts: Parts = ()) -> Places:
        """Returns the counted limit with these identities, the present one first."""
        kind, *names = identities[0]
        places = self.kept_as(identities, lambda: Places(f"{kind} {'/'.join(names)}", size))

        def change() -> None:
            places.reconfigure(size)
            places.reserve(parts, was=self.shop.lanes.was)

        self.shop.later(change)
        return places
