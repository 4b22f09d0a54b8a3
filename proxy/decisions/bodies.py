"""Bodies: how many bytes of request bodies are in memory, and what may still come (`semantics.md` §5, §6).

One count for the whole process. Up to `replay` bytes in all, a body may be sent a second time; one that comes when
there are more is sent once. Above `most` no body is taken in: its caller is told to come again.
"""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BodySettings:
    """Bytes of all bodies together: up to `replay` each may be sent again, above `most` none more is taken in."""

    replay: int = 256 * MEBIBYTE
    most: int = 512 * MEBIBYTE


class BodyMemory:
    """The bodies of the process. Whoever takes gives back the same number of bytes, whatever happens meanwhile."""

    __slots__ = ("held", "most", "replay")

    def __init__(self, settings: BodySettings | None = None) -> None:
        settings = settings or BodySettings()
        self.replay = settings.replay
        self.most = settings.most
        self.held = 0

    def __repr__(self) -> str:
        return f"<BodyMemory {self.held} of {self.most} bytes>"

    @property
    def crowded(self) -> bool:
        """Whether a body that has just come cannot be kept for a second time."""
        return self.held > self.replay

    def has_room(self, size: int) -> bool:
        """Whether a body of `size` bytes may come; one that is alone always may: it has its route's `body.max`."""
        return self.held + size <= self.most or not self.held

    def take(self, size: int, *, own: int = 0) -> bool:
        """Counts `size` bytes more, of a body of which `own` are counted already; False when they are too many."""
        held = self.held + size
        if held > self.most and self.held > own:
            return False
        self.held = held
        return True

    def give_back(self, size: int) -> None:
        """These bytes are not needed any more."""
        self.held -= size
