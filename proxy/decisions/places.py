"""Places: a counted limit. A permit holds one place in every limit that binds it."""

from __future__ import annotations


class Places:
    """`size` places, of which `used` are taken. A size below `used` admits nothing until use falls."""

    __slots__ = ("label", "size", "used")

    def __init__(self, label: str, size: int) -> None:
        self.label = label
        self.size = size
        self.used = 0

    def reconfigure(self, size: int) -> None:
        """Changes the limit in place; what is taken stays taken."""
        self.size = size

    def __repr__(self) -> str:
        return f"<Places {self.label} {self.used}/{self.size}>"
