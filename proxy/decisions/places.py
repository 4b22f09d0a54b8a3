"""Places: a counted limit, parts of which may be kept for some calls. A permit holds a place in each that binds it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

URGENT: Final = "P0"
"""The group of the calls for which a class's `reserved` is kept."""


class Reserve:
    """A part of a limit that only the calls of one group may use: `size` places, of which `used` are taken."""

    __slots__ = ("group", "size", "used")

    def __init__(self, group: str, size: int) -> None:
        self.group = group
        self.size = size
        self.used = 0

    def __repr__(self) -> str:
        return f"<Reserve for {self.group} {self.used}/{self.size}>"


class Places:
    """`size` places, of which `used` are taken. A size below `used` admits nothing until use falls.

    While fewer than `common` are taken there is one for everybody, whatever is kept for some.

    What is kept in `reserves` and not in use there is free only for calls of the reserve's group. A call takes a place
    of its group's reserve first; beyond it, one of those that are for all.
    """

    __slots__ = ("common", "label", "reserves", "size", "used")

    def __init__(self, label: str, size: int) -> None:
        self.label = label
        self.size = self.common = size
        self.used = 0
        self.reserves: tuple[Reserve, ...] = ()

    def reconfigure(self, size: int) -> None:
        """Changes the limit in place; what is taken stays taken."""
        self.size = size
        self._count()

    def reserve(self, parts: Iterable[tuple[str, float]]) -> None:
        """Keeps floor(part × size) places for each group; who is in a reserve already stays counted there."""
        before = {reserve.group: reserve for reserve in self.reserves}
        kept = []
        for group, part in parts:
            one = before.get(group) or Reserve(group, 0)
            one.size = int(part * self.size + 1e-9)
            if one.size or one.used:
                kept.append(one)
        self.reserves = tuple(kept)
        self._count()

    def free(self, groups: Collection[str]) -> bool:
        """Whether a call of these groups may take a place now."""
        free = self.size - self.used
        if free <= 0:
            return False
        for reserve in self.reserves:
            if reserve.size > reserve.used and reserve.group not in groups:
                free -= reserve.size - reserve.used
        return free > 0

    def take(self, groups: Collection[str]) -> Reserve | None:
        """Takes a place; returns the reserve that it came from, None for one that is for all."""
        self.used += 1
        for reserve in self.reserves:
            if reserve.group in groups and reserve.used < reserve.size:
                reserve.used += 1
                return reserve
        return None

    def _count(self) -> None:
        self.common = self.size - sum(reserve.size for reserve in self.reserves)

    def __repr__(self) -> str:
        return f"<Places {self.label} {self.used}/{self.size}>"
