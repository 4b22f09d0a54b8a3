"""The workshop: what all providers of one policy are assembled with, and the changes that wait for the swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from proxy.clock import Clock
from proxy.decisions.admission import Admission
from proxy.decisions.classes import ClassSettings
from proxy.decisions.places import URGENT, Places
from proxy.decisions.shares import FleetSettings
from proxy.observer import Observer
from proxy.policy.snapshot import AddressSnapshot, PolicySnapshot
from proxy.ports import Bits
from proxy.runtime.kept_state import KeptState
from proxy.runtime.lanes import LaneParts, Parts
from proxy.runtime.secrets import Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What every provider is assembled with. Changes to living cores are collected and applied at the swap."""

    kept: KeptState
    admission: Admission
    process_places: Places | None
    fleet: FleetSettings
    secrets: Secrets
    observer: Observer
    clock: Clock
    bits: Bits
    changes: list[Callable[[], None]]
    auth_headers: frozenset[bytes]
    commits_before: int
    pseudonym: str = ""
    """This process's own name in `Via`."""
    forwarded: Mapping[str, Mapping[AddressSnapshot, bool]] = field(default_factory=dict)
    """By provider, to which other addresses than its own requests may be forwarded; True where the port is listed."""
    observe: bool = False
    """The whole policy is in `mode: observe`."""
    counting: frozenset[str] = frozenset()
    """Providers whose answers must tell how many tokens they took."""
    learning: frozenset[str] = frozenset()
    """Providers of whose calls somebody wants to know how many tokens they usually take."""
    heeding: frozenset[str] = frozenset()
    """Providers of whose keys it makes a difference what is left, by their own word."""
    classes: ClassSettings = ClassSettings()
    lanes: LaneParts = field(default_factory=lambda: LaneParts(PolicySnapshot(providers=())))
    """What is kept for short answers."""

    @property
    def urgent_part(self) -> Parts:
        """What is kept of every share for P0."""
        return ((URGENT, self.classes.reserved),) if self.classes.reserved else ()

    def parts(self, provider: str, model: str | None = None) -> Parts:
        """Returns what is kept of a provider's limits, or of a model's: for P0, and for short answers."""
        return (*self.urgent_part, *self.lanes.of(provider, model))

    @property
    def live(self) -> bool:
        """Whether the policy that was assembled here is the live one."""
        return self.kept.commits == self.commits_before + 1

    def later(self, change: Callable[[], None]) -> None:
        """Keeps a change for the swap: an assembly that fails half-way changes nothing."""
        self.changes.append(change)

    def apply(self) -> None:
        """Makes the collected changes, once."""
        for change in self.changes:
            change()
        self.changes.clear()
