"""The queue of answers that wait to be written: its bounds, its order, and what it tells meanwhile."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from proxy.store.writes import BATCH_BYTES, BATCH_NUMBER, BYTES_MAX, ENTRY_MAX, NUMBER_MAX, Writes, key_of
from tests.fakes import FakeClock, settle
from tests.store.contract import answer


def waiting(*names: bytes, size: int = 10) -> Writes:
    """Returns a queue in which these wait."""
    writes = Writes(FakeClock())
    for name in names:
        writes.add(name, answer(bytes(size)), seconds=60.0, now=1000.0)
    return writes


def test_a_key_has_its_own_corner_of_the_server() -> None:
    assert key_of(b"\x00\xffa") == "sponson:cache:1:00ff61"


async def test_what_waits_is_found_with_its_age_until_its_time_is_up() -> None:
    writes = waiting(b"name")
    found = writes.find(b"name", 1012.0)
    assert found is not None
    assert found.age == 12.0
    assert writes.find(b"name", 1060.0) is None
    assert writes.find(b"other", 1000.0) is None


async def test_entries_wait_until_they_are_done() -> None:
    writes = waiting(b"a", b"b")
    entries = await writes.next()
    assert [entry.name for entry in entries] == [b"a", b"b"]
    assert len(writes) == 2
    writes.done(entries)
    assert (len(writes), writes.size, writes.written, writes.dropped) == (0, 0, 2, 0)


async def test_one_that_was_replaced_meanwhile_waits_on() -> None:
    writes = waiting(b"name")
    entries = await writes.next()
    writes.add(b"name", answer(b"new"), seconds=60.0, now=1000.0)
    writes.done(entries)
    assert [entry.answer.body for entry in await writes.next()] == [b"new"]


async def test_the_next_ones_come_when_there_are_some() -> None:
    writes = waiting()
    taking = asyncio.create_task(writes.next())
    await settle()
    assert not taking.done()
    writes.add(b"name", answer(), seconds=60.0, now=1000.0)
    assert [entry.name for entry in await taking] == [b"name"]


async def test_they_come_in_batches_of_a_number_and_of_a_size() -> None:
    many = waiting(*(b"%d" % number for number in range(BATCH_NUMBER * 2)))
    assert len(await many.next()) == BATCH_NUMBER
    large = waiting(b"a", b"b", size=BATCH_BYTES)
    assert len(await large.next()) == 1


async def test_what_finds_no_room_is_dropped() -> None:
    writes = waiting(*(b"%d" % number for number in range(NUMBER_MAX + 5)))
    assert (len(writes), writes.dropped) == (NUMBER_MAX, 5)
    writes = waiting(b"name", size=ENTRY_MAX + 1)
    assert (len(writes), writes.dropped) == (0, 1)


async def test_an_older_answer_does_not_outlive_one_that_was_dropped() -> None:
    writes = waiting(b"name")
    writes.add(b"name", answer(bytes(ENTRY_MAX + 1)), seconds=60.0, now=1000.0)
    assert writes.find(b"name", 1000.0) is None


async def test_clearing_ends_the_wait_for_all() -> None:
    writes = waiting(b"a", b"b")
    drained = asyncio.create_task(writes.drained())
    await settle()
    assert not drained.done()
    writes.clear()
    await asyncio.wait_for(drained, 10)
    assert (writes.size, writes.dropped) == (0, 2)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.sampled_from([1, 1000, ENTRY_MAX, ENTRY_MAX + 1]))
        | st.just(None),
        max_size=60,
    )
)
def test_sizes_add_up_and_nothing_exceeds_the_bounds(steps: list[tuple[bytes, int] | None]) -> None:
    async def play() -> None:
        writes = waiting()
        for step in steps:
            if step is not None:
                writes.add(step[0], answer(bytes(step[1])), seconds=60.0, now=1000.0)
            elif len(writes):
                writes.done(await writes.next())
            assert 0 <= writes.size <= BYTES_MAX
            assert (writes.size == 0) is (len(writes) == 0)

    asyncio.run(play())
