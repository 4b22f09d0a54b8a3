"""Decision cores by identity: what did not change keeps its state across reloads (`architecture.md`, life of a policy).

An identity holds everything that makes two things different. A core that no policy uses any more is kept for ten
minutes, so that removing and adding again resets nothing. Between `begin` and `commit` nothing that lives is taken
away: an assembly that fails leaves every core where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from proxy.decisions.addresses import Openings, Site
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.quota import Bucket
from proxy.decisions.room import Room
from proxy.decisions.tenants import Tenants
from proxy.upstream.aside import Aside
from proxy.upstream.pool import Pool

GRACE_SECONDS = 600.0

T = TypeVar("T")
Identity = tuple[Hashable, ...]


@runtime_checkable
class Closable(Protocol):
    """A core with connections."""

    async def close(self) -> None:
        """Ends them."""
        ...


class _Kept:
    """A core; `in_use` by the live policy, else `unused_since`, which is None until it has ever been in use."""

    __slots__ = ("core", "in_use", "unused_since")

    def __init__(self, core: Any, *, in_use: bool) -> None:
        self.core = core
        self.in_use = in_use
        self.unused_since: float | None = None


def _still_busy(core: object, now: float) -> bool:
    """Whether something of a removed policy still holds it, or it is owed: then its ten minutes have not begun."""
    match core:
        case Places():
            return core.used > 0
        case Site():
            return core.in_use > 0
        case Openings():
            return core.calls > 0
        case Pool():
            return core.busy > 0
        case Aside():
            return core.pool.busy > 0
        case Line():
            return any(core.waiters)
        case Room():
            return core.waiting > 0 or core.running > 0
        case Bucket():
            # A large prompt of a large fleet takes its share longer to pay than removed cores are kept.
            return core.level(now) < 0 < core.rate
        case Tenants():
            return core.busy
    return False


class KeptState:
    """Every decision core of the process; `commits` counts the policies that went live."""

    __slots__ = ("_assembling", "_asked", "_kept", "_renamed", "commits")

    def __init__(self) -> None:
        self.commits = 0
        self._kept: dict[Identity, _Kept] = {}
        self._assembling = False
        self._asked: set[Identity] = set()
        self._renamed: dict[Identity, Identity] = {}

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"<KeptState {len(self)} cores>"

    def begin(self) -> None:
        """A new policy is being assembled: what it does not ask for is no longer used, once it is live."""
        for identity in self._renamed:
            del self._kept[identity]
        self._assembling = True
        self._asked = set()
        self._renamed = {}

    def get(self, identity: Identity, make: Callable[[], T], *, was: Sequence[Identity] = ()) -> T:
        """Returns the core of this identity, made if there is none; `was` are those it may have had before renamings.

        The first of them that has a core counts. One that the same policy asks for under its old identity is not
        renamed.
        """
        kept = self._kept.get(identity)
        if kept is None:
            kept = self._kept[identity] = self._renamed_from(was, identity) or _Kept(make(), in_use=False)
        if self._assembling:
            self._asked.add(identity)
        else:
            kept.in_use, kept.unused_since = True, None
        return cast(T, kept.core)

    def _renamed_from(self, was: Sequence[Identity], identity: Identity) -> _Kept | None:
        old = next((one for one in was if one in self._kept), None)
        if old is None or old in self._asked:
            return None
        if not self._assembling:
            return self._kept.pop(old)
        self._renamed[identity] = old
        return _Kept(self._kept[old].core, in_use=False)

    def commit(self, now: float) -> None:
        """The assembled policy is live: old names are forgotten, the ten minutes of what it does not use begin."""
        self.commits += 1
        self._assembling = False
        for old in self._renamed.values():
            self._kept.pop(old, None)
        self._renamed = {}
        for identity, kept in self._kept.items():
            kept.in_use = identity in self._asked
            if kept.in_use:
                kept.unused_since = None
            elif kept.unused_since is None:
                kept.unused_since = now

    def expire(self, now: float) -> list[Any]:
        """Drops and returns the cores whose ten minutes are over; of what is still held they begin later."""
        over = []
        for identity, kept in self._kept.items():
            if kept.unused_since is None:
                continue
            if _still_busy(kept.core, now):
                kept.unused_since = now
            elif kept.unused_since + GRACE_SECONDS <= now:
                over.append(identity)
        return [self._kept.pop(identity).core for identity in over]

    def closable(self) -> Iterator[Closable]:
        """Yields what has to be closed when the process ends."""
        return (kept.core for kept in list(self._kept.values()) if isinstance(kept.core, Closable))

    def all(self, kind: type[T]) -> Iterator[tuple[Identity, T, bool]]:
        """Yields (identity, core, in use) of one type, for `/status` and the ticker."""
        for identity, kept in list(self._kept.items()):
            if isinstance(kept.core, kind):
                yield identity, kept.core, kept.in_use
