"""Bodies in memory: one bound for all, conserved whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.bodies import BodyMemory, BodySettings

SETTINGS = BodySettings(replay=100, most=200)


def holding(size: int) -> BodyMemory:
    memory = BodyMemory(SETTINGS)
    memory.held = size
    return memory


def test_a_quarter_of_a_gibibyte_may_be_sent_again_and_half_a_one_is_all() -> None:
    memory = BodyMemory()
    assert (memory.replay, memory.most) == (256 << 20, 512 << 20)


def test_what_is_taken_is_given_back() -> None:
    memory = holding(0)
    assert memory.take(70)
    assert memory.take(40, own=70)
    assert memory.held == 110
    memory.give_back(110)
    assert memory.held == 0


def test_what_would_be_too_much_is_not_counted() -> None:
    memory = holding(150)
    assert memory.take(50)
    assert not memory.take(1)
    assert memory.held == 200


def test_a_body_that_is_alone_is_taken_however_large() -> None:
    memory = holding(0)
    assert memory.has_room(1000)
    assert memory.take(1000)
    assert memory.take(1000, own=1000)
    assert not memory.take(1)
    assert not memory.has_room(1)


def test_memory_is_crowded_above_what_may_be_sent_again() -> None:
    assert not holding(100).crowded
    assert holding(101).crowded


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 120)), max_size=80))
def test_what_may_be_sent_again_never_exceeds_its_bound_and_all_together_never_theirs(
    steps: list[tuple[int, int]],
) -> None:
    """Nine callers: a size adds to the caller's body, 0 ends it."""
    memory = BodyMemory(SETTINGS)
    own: dict[int, int] = {}
    again: dict[int, int] = {}
    for caller, size in steps:
        if size == 0:
            memory.give_back(own.pop(caller, 0))
            again.pop(caller, None)
            continue
        others = sum(own.values()) - own.get(caller, 0)
        if memory.take(size, own=own.get(caller, 0)):
            own[caller] = own.get(caller, 0) + size
            if not memory.crowded:
                again[caller] = own[caller]
            else:
                again.pop(caller, None)
        else:
            assert others
        assert memory.held == sum(own.values())
        assert sum(again.values()) <= SETTINGS.replay
        assert memory.held <= SETTINGS.most or len([size for size in own.values() if size]) <= 1
