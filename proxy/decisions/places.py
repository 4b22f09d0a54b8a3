"""Places: a counted limit, parts of which may be kept for some calls. A permit holds a place in each that binds it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

URGENT: Final = "P0"
"""The group of the calls for which a class's `reserved` is kept."""
ROUNDING: Final = 1e-9
"""What 0.29 × 100 lacks of 29 is no place less."""
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


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
    of its group's reserve first; beyond it, one of those that are for all. Each reserve is a part of the size, whatever
    that becomes.
    """

    __slots__ = ("_parts", "common", "label", "reserves", "size", "used")

    def __init__(self, label: str, size: int) -> None:
        self.label = label
        self.size = self.common = size
        self.used = 0
        self.reserves: tuple[Reserve, ...] = ()
        self._parts: dict[str, float] = {}

    @property
    def part(self) -> float:
        """Returns how much (0-1) is left of it."""
        return max(self.size - self.used, 0) / self.size if self.size else 0.0

    def reconfigure(self, size: int) -> None:
        """Changes the limit in place; what is taken stays taken."""
        self.size = size
        self._share_out()

    def reserve(self, parts: Iterable[tuple[str, float]], *, was: Mapping[str, str] = NOTHING) -> None:
        """Keeps floor(part × size) places for each group; who is in a reserve already stays counted there.

        `was` tells by what name a group went before.
        """
        self._parts = dict(parts)
        before = {reserve.group: reserve for reserve in self.reserves}
        for new, old in was.items():
            if new in self._parts and new not in before and old in before and old not in self._parts:
                before[old].group = new
        self._share_out()

    def free(self, groups: Collection[str]) -> bool:
        """Whether a call of these groups may take a place now."""
        return self.left(groups) > 0

    def left(self, groups: Collection[str]) -> int:
        """Returns how many places calls of these groups may take now; below zero when the limit is overstepped."""
        left = self.size - self.used
        for reserve in self.reserves:
            if reserve.size > reserve.used and reserve.group not in groups:
                left -= reserve.size - reserve.used
        return left

    def most(self, groups: Collection[str]) -> int:
        """Returns how many places calls of these groups may ever take."""
        return self.size - sum(reserve.size for reserve in self.reserves if reserve.group not in groups)

    def take(self, groups: Collection[str]) -> Reserve | None:
        """Takes a place; returns the reserve that it came from, None for one that is for all."""
        self.used += 1
        for reserve in self.reserves:
            if reserve.group in groups and reserve.used < reserve.size:
                reserve.used += 1
                return reserve
        return None

    def _share_out(self) -> None:
        if self._parts or self.reserves:
            before = {reserve.group: reserve for reserve in self.reserves}
            reserves = [before.get(group) or Reserve(group, 0) for group in dict.fromkeys((*self._parts, *before))]
            for reserve in reserves:
                reserve.size = int(self._parts.get(reserve.group, 0.0) * self.size + ROUNDING)
            self.reserves = tuple(reserve for reserve in reserves if reserve.size or reserve.used)
        self.common = self.size - sum(reserve.size for reserve in self.reserves)

    def __repr__(self) -> str:
        return f"<Places {self.label} {self.used}/{self.size}>"
