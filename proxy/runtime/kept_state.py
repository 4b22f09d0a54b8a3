"""Decision cores by identity: what did not change keeps its state across reloads (`architecture.md`, life of a policy).

An identity holds everything that makes two things different. A core that no policy uses any more is kept for ten
minutes, so that removing and adding again resets nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar, cast

GRACE_SECONDS = 600.0

T = TypeVar("T")
Identity = tuple[Hashable, ...]


class _Kept:
    __slots__ = ("core", "unused_since")

    def __init__(self, core: Any) -> None:
        self.core = core
        self.unused_since: float | None = None


class KeptState:
    """Every decision core of the process."""

    __slots__ = ("_kept", "_used")

    def __init__(self) -> None:
        self._kept: dict[Identity, _Kept] = {}
        self._used: set[Identity] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self) -> None:
        """A new policy is being assembled: what it does not ask for is no longer used."""
        self._used = set()

    def get(self, identity: Identity, make: Callable[[], T], *, was: Identity | None = None) -> T:
        """Returns the core of this identity, made if there is none; `was` is the identity it had before a renaming."""
        kept = self._kept.get(identity)
        if kept is None:
            old = self._kept.pop(was, None) if was is not None else None
            kept = self._kept[identity] = old if old is not None else _Kept(make())
        self._used.add(identity)
        kept.unused_since = None
        return cast(T, kept.core)

    def commit(self, now: float) -> None:
        """The assembled policy is live: the ten minutes of everything that it does not use begin."""
        for identity, kept in self._kept.items():
            if identity not in self._used and kept.unused_since is None:
                kept.unused_since = now

    def expire(self, now: float) -> list[Any]:
        """Drops and returns the cores whose ten minutes are over."""
        over = [
            identity
            for identity, kept in self._kept.items()
            if kept.unused_since is not None and kept.unused_since + GRACE_SECONDS <= now
        ]
        return [self._kept.pop(identity).core for identity in over]

    def all(self, kind: type[T]) -> Iterator[tuple[Identity, T, bool]]:
        """Yields (identity, core, in use) of one type, for `/status` and the ticker."""
        for identity, kept in list(self._kept.items()):
            if isinstance(kept.core, kind):
                yield identity, kept.core, kept.unused_since is None
