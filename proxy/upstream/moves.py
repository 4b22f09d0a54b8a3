"""Names that move: which of the addresses that connections lead to a name does not have any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

GRACE_SECONDS: Final = 30.0
"""Names of large services show other addresses at every look-up: one that comes back within this has not moved."""


class Moves:
    """For how long each address has been missing from what a name has."""

    __slots__ = ("_missing",)

    def __init__(self) -> None:
        self._missing: dict[str, float] = {}

    def gone(self, remotes: Iterable[str], hosts: Collection[str], now: float) -> Collection[str]:
        """Returns those of the remotes that have been missing from `hosts`, the latest look-up's, for the grace."""
        before, self._missing = self._missing, {}
        if not hosts:
            return ()
        for remote in remotes:
            if remote not in hosts:
                self._missing[remote] = before.get(remote, now)
        return [remote for remote, since in self._missing.items() if now - since >= GRACE_SECONDS]
