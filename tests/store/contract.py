"""What every cache of answers does, whatever keeps them; each check takes a store that is ready, and empty.

`settled` lets a store that writes behind finish.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from proxy.exchange import Usage
from proxy.ports import CacheStore, StoredAnswer

Settled = Callable[[], Awaitable[None]]
Check = Callable[[CacheStore, Settled, float], Awaitable[None]]

HOUR = 3600.0


def answer(body: bytes = b'{"id": 1}', *, usage: Usage | None = None) -> StoredAnswer:
    """Returns an answer as a cache gets it."""
    return StoredAnswer(
        status=200,
        phrase=b"OK",
        lines=b"content-type: application/json\r\n",
        body=body,
        length=len(body),
        provider="alpha",
        model="m",
        tier=1,
        usage=usage,
    )


async def nothing_is_found_of_an_unknown_name(store: CacheStore, settled: Settled, now: float) -> None:
    """A cache that has kept nothing gives nothing."""
    assert await store.find(b"unknown", now) is None


async def what_is_kept_is_found_whole(store: CacheStore, settled: Settled, now: float) -> None:
    """At once, and after it was written."""
    kept = answer(bytes(range(256)), usage=Usage(10, 20, 5, estimated=True))
    store.keep(b"name", kept, owner="tenant", seconds=HOUR, now=now)
    found = await store.find(b"name", now)
    assert found is not None
    assert found.answer == kept
    await settled()
    found = await store.find(b"name", now)
    assert found is not None
    assert found.answer == kept
    assert 0 <= found.age < HOUR / 2


async def names_keep_apart(store: CacheStore, settled: Settled, now: float) -> None:
    """Whatever bytes they are made of."""
    names = [b"a", b"A", b"a\x00", b"\xff" * 32, b"*", b"a b\r\n"]
    for number, name in enumerate(names):
        store.keep(name, answer(b"%d" % number), owner="tenant", seconds=HOUR, now=now)
    await settled()
    for number, name in enumerate(names):
        found = await store.find(name, now)
        assert found is not None
        assert found.answer.body == b"%d" % number


async def the_newest_is_found(store: CacheStore, settled: Settled, now: float) -> None:
    """Also where the older one was written before."""
    for number in range(3):
        store.keep(b"name", answer(b"%d" % number), owner="tenant", seconds=HOUR, now=now)
        if number == 1:
            await settled()
    await settled()
    found = await store.find(b"name", now)
    assert found is not None
    assert found.answer.body == b"2"


async def what_is_too_large_for_anybody_is_not_kept(store: CacheStore, settled: Settled, now: float) -> None:
    """And takes nothing else's place."""
    store.keep(b"small", answer(), owner="tenant", seconds=HOUR, now=now)
    store.keep(b"large", answer(bytes(100_000_000)), owner="tenant", seconds=HOUR, now=now)
    await settled()
    assert await store.find(b"large", now) is None
    assert await store.find(b"small", now) is not None


CHECKS: tuple[Check, ...] = (
    nothing_is_found_of_an_unknown_name,
    what_is_kept_is_found_whole,
    names_keep_apart,
    the_newest_is_found,
    what_is_too_large_for_anybody_is_not_kept,
)
