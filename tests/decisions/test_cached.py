"""Answers in memory: bounds, fairness, expiry."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.decisions.cached import LARGEST_PART, MOST_EXPIRED, OVERHEAD, Cached
from proxy.ports import StoredAnswer

ROOM = 100 * 1024


def answer(size: int = 100, mark: str = "") -> StoredAnswer:
    """An answer with a body of that size."""
    return StoredAnswer(
        status=200, phrase=b"OK", lines=b"", body=b"x" * size, length=size, provider="a", model=mark, tier=1
    )


def keep(
    cached: Cached, name: str, owner: str = "t1", *, size: int = 100, seconds: float = 60.0, now: float = 0.0
) -> None:
    """Keeps an answer that is marked with its name."""
    cached.keep(name.encode(), answer(size, name), owner=owner, seconds=seconds, now=now)


def has(cached: Cached, name: str, now: float = 0.0) -> bool:
    """Whether it is kept; a look counts as a use."""
    found = cached.look(name.encode(), now)
    assert found is None or found.answer.model == name
    return found is not None


async def test_what_is_kept_is_found_with_its_age() -> None:
    cached = Cached(ROOM)
    keep(cached, "a", now=10.0)
    found = await cached.find(b"a", 12.5)
    assert found is not None
    assert found.age == 2.5
    assert found.answer == answer(100, "a")
    assert await cached.find(b"b", 12.5) is None


def test_nothing_is_found_after_its_time() -> None:
    cached = Cached(ROOM)
    keep(cached, "a", now=10.0, seconds=5.0)
    assert has(cached, "a", 14.9)
    assert not has(cached, "a", 15.0)
    assert cached.held == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_what_has_no_time_is_not_kept(seconds: float) -> None:
    cached = Cached(ROOM)
    keep(cached, "a", seconds=seconds)
    assert cached.statistics().entries == 0


def test_a_newer_answer_takes_an_older_ones_place() -> None:
    cached = Cached(ROOM)
    keep(cached, "a", "t1", size=1000, now=0.0)
    keep(cached, "a", "t2", size=10, now=5.0)
    found = cached.look(b"a", 6.0)
    assert found is not None
    assert (found.age, len(found.answer.body)) == (1.0, 10)
    statistics = cached.statistics()
    assert (statistics.entries, statistics.owners, statistics.evicted) == (1, 1, 0)
    assert statistics.bytes == cached.held == 10 + len(b"a") + len("t2") + OVERHEAD


def test_a_newer_answer_lives_from_its_own_time() -> None:
    cached = Cached(ROOM)
    keep(cached, "a", now=0.0, seconds=10.0)
    keep(cached, "a", now=8.0, seconds=10.0)
    assert has(cached, "a", 17.9)
    assert not has(cached, "a", 18.0)


def test_an_answer_that_takes_too_much_is_not_kept_and_what_it_replaces_goes() -> None:
    cached = Cached(ROOM)
    most = ROOM // LARGEST_PART - OVERHEAD - len(b"a") - len("t1")
    keep(cached, "a", size=most)
    assert has(cached, "a")
    keep(cached, "a", size=most + 1)
    assert not has(cached, "a")
    assert cached.held == 0


def test_the_least_recently_used_goes_first() -> None:
    cached = Cached(ROOM, most_entries=3)
    for name in "abc":
        keep(cached, name)
    assert has(cached, "a")
    keep(cached, "d")
    assert not has(cached, "b")
    assert all(has(cached, name) for name in "acd")


def test_who_fills_the_cache_empties_their_own_part() -> None:
    cached = Cached(ROOM)
    for number in range(3):
        keep(cached, f"small{number}", "small")
    for number in range(1000):
        keep(cached, f"large{number}", "large", size=3000)
    assert all(has(cached, f"small{number}") for number in range(3))
    assert cached.held <= ROOM


def test_who_has_nothing_finds_room_among_equals() -> None:
    size = ROOM // LARGEST_PART - OVERHEAD - 3
    cached = Cached(ROOM)
    for number in range(LARGEST_PART):
        keep(cached, f"{number}", f"{number}", size=size)
    keep(cached, "n", "n", size=size)
    assert has(cached, "n")
    assert not has(cached, "0")
    assert all(has(cached, f"{number}") for number in range(1, LARGEST_PART))


def test_another_bound_holds_at_once() -> None:
    cached = Cached(ROOM)
    for number in range(50):
        keep(cached, f"{number}")
    cached.reconfigure(10 * 1024)
    assert 0 < cached.held <= 10 * 1024
    assert has(cached, "49")
    cached.reconfigure(0)
    assert cached.held == cached.statistics().entries == cached.statistics().owners == 0
    keep(cached, "a")
    assert not has(cached, "a")
    cached.reconfigure(ROOM)
    keep(cached, "a")
    assert has(cached, "a")


def test_the_same_bound_lets_everything_be() -> None:
    cached = Cached(ROOM)
    for number in range(20):
        keep(cached, f"{number}")
    for _ in range(1000):
        cached.reconfigure(ROOM)
    assert cached.statistics().entries == 20


def test_what_is_due_goes_bit_by_bit() -> None:
    cached = Cached(10 * 1024 * 1024)
    for number in range(3 * MOST_EXPIRED):
        keep(cached, f"{number}", seconds=10.0 + number % 3)
    keep(cached, "later", seconds=100.0)
    cached.expire(50.0)
    assert cached.statistics().entries == 2 * MOST_EXPIRED + 1
    cached.expire(50.0)
    cached.expire(50.0)
    assert cached.statistics().entries == 1
    cached.expire(50.0)
    assert has(cached, "later", 50.0)


def test_owners_that_come_and_go_leave_nothing() -> None:
    cached = Cached(ROOM)
    for number in range(5000):
        keep(cached, f"{number}", f"owner {number}", now=float(number), seconds=5.0)
    cached.expire(1e6)
    assert cached.statistics().owners == 0
    assert len(cached._largest) <= 4 * cached.statistics().owners + 4 * 100 + 65


def test_an_entry_takes_no_more_memory_than_is_counted() -> None:
    cached = Cached(64 * 1024 * 1024)
    names = [b"%020d" % number for number in range(5000)]
    tracemalloc.start()
    try:
        for number, name in enumerate(names):
            cached.keep(name, answer(10, str(number)), owner=f"o{number}", seconds=60.0 + number % 7, now=0.0)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= cached.held


def test_it_can_be_shown() -> None:
    cached = Cached(ROOM)
    keep(cached, "a")
    assert repr(cached) == f"<Cached 1 answers of 1 owners, {cached.held} bytes>"


class Walk(RuleBasedStateMachine):
    """A cache, and a model that counts everything anew at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.room, self.now = 16 * 1024, 0.0
        self.cached = Cached(self.room, most_entries=8)
        self.model: dict[str, tuple[str, int, float, float]] = {}
        """Owner, bytes, when it was kept, when it is due; in the order of last use."""

    def _largest(self) -> int:
        held: dict[str, int] = {}
        for owner, size, _, _ in self.model.values():
            held[owner] = held.get(owner, 0) + size
        return max(held.values())

    def _held_by(self, who: str) -> int:
        return sum(size for owner, size, _, _ in self.model.values() if owner == who)

    def _settle(self) -> None:
        """Takes out of the model what the cache has evicted, and checks that it was the right one each time."""
        while sum(size for _, size, _, _ in self.model.values()) > self.room or len(self.model) > 8:
            candidates = [owner for owner, *_ in self.model.values() if self._held_by(owner) == self._largest()]
            gone = [
                name
                for name, (owner, *_) in self.model.items()
                if owner in candidates and name.encode() not in self.cached._entries
            ]
            assert gone, "it has evicted from somebody with fewer bytes"
            owner = self.model[gone[0]][0]
            assert gone[0] == next(name for name, (other, *_) in self.model.items() if other == owner)
            del self.model[gone[0]]

    def _expire(self) -> None:
        self.model = {name: entry for name, entry in self.model.items() if entry[3] > self.now}

    @rule(
        name=st.sampled_from("abcdefghijkl"),
        owner=st.sampled_from("xyz"),
        size=st.integers(0, 1200),
        seconds=st.sampled_from([1.0, 5.0, 60.0]),
    )
    def keep(self, name: str, owner: str, size: int, seconds: float) -> None:
        """Somebody's answer is kept."""
        keep(self.cached, name, owner, size=size, seconds=seconds, now=self.now)
        self._expire()
        self.model.pop(name, None)
        cost = size + 2 + OVERHEAD
        if cost <= self.room // LARGEST_PART:
            self.model[name] = (owner, cost, self.now, self.now + seconds)
            self._settle()

    @rule(name=st.sampled_from("abcdefghijkl"))
    def look(self, name: str) -> None:
        """Somebody asks."""
        found = self.cached.look(name.encode(), self.now)
        entry = self.model.pop(name, None)
        if entry is None or entry[3] <= self.now:
            assert found is None
            return
        assert found is not None
        assert found.age == self.now - entry[2]
        self.model[name] = entry

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += seconds

    @rule()
    def expire(self) -> None:
        """What is due goes."""
        self.cached.expire(self.now)
        self._expire()

    @precondition(lambda self: self.model)
    @rule(room=st.sampled_from([0, 4096, 8192, 16384, 32768]))
    def reconfigure(self, room: int) -> None:
        """A policy brings another bound."""
        self.room = room
        self.cached.reconfigure(room)
        self._settle()

    @invariant()
    def bounds_hold(self) -> None:
        """Bytes and names are within their bounds, and are what the model has."""
        statistics = self.cached.statistics()
        assert statistics.bytes == self.cached.held == sum(size for _, size, _, _ in self.model.values())
        assert statistics.bytes <= self.room == statistics.most_bytes
        assert statistics.entries == len(self.model) <= 8
        assert statistics.owners == len({owner for owner, *_ in self.model.values()})
        assert {name.encode() for name in self.model} == set(self.cached._entries)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=150, stateful_step_count=40)
